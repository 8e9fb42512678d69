package statemark.spark

import java.nio.file.Files
import java.util.concurrent.atomic.AtomicInteger
import org.apache.spark.sql.{DataFrame, Encoders, SQLContext}
import org.apache.spark.sql.streaming._
import org.scalatest.funsuite.AnyFunSuite
import statemark.spark.process.JvmState
import statemark.transaction.{CommitObserver, CommitPhase}

/** Goal: a task that dies at any phase of a commit leaves the answer as it is. Method: a real query; at
  * one phase, once, the task's thread throws; Spark retries the task; the result is that of a batch.
  */
class CommitPhaseSuite extends AnyFunSuite with OneSession {
  override protected def master: String = "local[2,4]"

  private val tested = Seq(
    CommitPhase.BatchSerialized,
    CommitPhase.ChangelogDurable,
    CommitPhase.SnapshotUploaded,
    CommitPhase.VersionPrepared,
    CommitPhase.CommitReported,
    CommitPhase.ConfirmStarted,
    CommitPhase.ConfirmApplied
  )

  test("every phase has a test of a task that dies in it") {
    assert(tested == CommitPhase.all)
  }

  for {
    phase <- tested
    version <- Seq("1", "2")
  } test(s"a task dies at ${phase.name}, checkpoint format v$version") {
    spark.conf.set("spark.sql.streaming.stateStore.checkpointFormatVersion", version)
    val (fault, result, expected) = phase match {
      // Only a version that creates column families needs a snapshot in its commit.
      case CommitPhase.SnapshotUploaded =>
        val fault = new FaultAt(phase, atVisit = 1)
        (fault, countInFamily(fault), counts)
      case _ =>
        val fault = new FaultAt(phase, atVisit = 3)
        (fault, count(fault), counts)
    }
    assert(fault.fired == 1, "the fault did not fire")
    assert(result == expected)
  }

  private val batches = Seq(Seq(1, 2, 3, 4), Seq(3, 4, 5), Seq(5, 6, 1), Seq(1, 1, 7), Seq(2, 8))
  private val counts = batches.flatten.groupBy(identity).map { case (k, v) => k -> v.length.toLong }

  private def count(fault: FaultAt): Map[Int, Long] = {
    implicit val sql: SQLContext = spark.sqlContext
    import spark.implicits._
    val input = Line.MemoryStream[Int]
    run(input.toDF().groupBy("value").count(), "complete", fault, Seq(input))
    spark.table(sink).as[(Int, Long)].collect().toMap
  }

  private def countInFamily(fault: FaultAt): Map[Int, Long] = {
    implicit val sql: SQLContext = spark.sqlContext
    import spark.implicits._
    val input = Line.MemoryStream[Int]
    val counted = input.toDS().groupByKey(identity)
      .transformWithState(new CountEach, TimeMode.None(), OutputMode.Update())
    run(counted.toDF("key", "n"), "update", fault, Seq(input))
    spark.table(sink).groupBy("key").max("n").as[(Int, Long)].collect().toMap
  }

  private val sink = "phases"

  private def run(
      rows: DataFrame,
      mode: String,
      fault: FaultAt,
      inputs: Seq[Line.MemoryStream[Int]]
  ): Unit = {
    val checkpoint = Files.createTempDirectory("statemark-phases-").toString
    JvmState.observer.set(fault)
    val query = rows.writeStream.format("memory").queryName(sink).outputMode(mode)
      .option("checkpointLocation", checkpoint).start()
    try
      batches.foreach { batch =>
        inputs.foreach(_.addData(batch))
        query.processAllAvailable()
      }
    finally {
      query.stop()
      JvmState.observer.clear()
    }
  }

  /** Throws once, when `phase` is passed for the `atVisit`th time. */
  private final class FaultAt(phase: CommitPhase, atVisit: Int) extends CommitObserver {
    private val visits = new AtomicInteger()
    private val fires = new AtomicInteger()
    def fired: Int = fires.get
    override def reached(passed: CommitPhase): Unit =
      if (passed == phase && visits.incrementAndGet() == atVisit) {
        fires.incrementAndGet(): Unit
        throw new IllegalStateException(s"injected at ${phase.name}")
      }
  }
}

/** Counts the values of each key, in a column family. */
final class CountEach extends StatefulProcessor[Int, Int, (Int, Long)] {
  @transient private var count: ValueState[Long] = _

  override def init(outputMode: OutputMode, timeMode: TimeMode): Unit =
    count = getHandle.getValueState("count", Encoders.scalaLong, TTLConfig.NONE)

  override def handleInputRows(
      key: Int,
      values: Iterator[Int],
      timers: TimerValues
  ): Iterator[(Int, Long)] = {
    val n = (if (count.exists()) count.get() else 0L) + values.size
    count.update(n)
    Iterator((key, n))
  }
}
