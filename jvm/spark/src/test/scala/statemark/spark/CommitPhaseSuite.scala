package statemark.spark

import java.nio.file.Files
import java.util.concurrent.atomic.AtomicInteger
import org.apache.spark.sql.{DataFrame, SQLContext, SparkSession}
import org.scalatest.BeforeAndAfterAll
import org.scalatest.funsuite.AnyFunSuite
import statemark.transaction.{CommitObserver, CommitPhase}

/** Goal: a task that dies at any phase of a commit leaves the answer as it is. Method: a real query; at
  * one phase, once, the task's thread throws; Spark retries the task; the result is that of a batch.
  */
class CommitPhaseSuite extends AnyFunSuite with BeforeAndAfterAll {
  private lazy val spark = SparkSession.builder()
    .master("local[2,4]")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "2")
    .config(
      "spark.sql.streaming.stateStore.providerClass",
      classOf[StatemarkStateStoreProvider].getName
    )
    .getOrCreate()

  override protected def afterAll(): Unit = {
    StatemarkStateStoreProvider.observer = CommitObserver.none
    spark.stop()
    super.afterAll()
  }

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
    // Without joins in column families no query needs a snapshot in a commit.
    phase <- tested.filter(_ != CommitPhase.SnapshotUploaded || Line.hasStoreOf41)
    version <- Seq("1", "2")
  } test(s"a task dies at ${phase.name}, checkpoint format v$version") {
    spark.conf.set("spark.sql.streaming.stateStore.checkpointFormatVersion", version)
    val (fault, result, expected) = phase match {
      // Only a version that creates column families needs a snapshot in its commit.
      case CommitPhase.SnapshotUploaded =>
        val fault = new FaultAt(phase, atVisit = 1)
        (fault, selfJoin(fault), counts.map { case (k, n) => k -> n * n })
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

  private def selfJoin(fault: FaultAt): Map[Int, Long] = {
    implicit val sql: SQLContext = spark.sqlContext
    import spark.implicits._
    spark.conf.set("spark.sql.streaming.join.stateFormatVersion", "3")
    val (left, right) = (Line.MemoryStream[Int], Line.MemoryStream[Int])
    run(left.toDF().join(right.toDF(), "value"), "append", fault, Seq(left, right))
    spark.table(sink).groupBy("value").count().as[(Int, Long)].collect().toMap
  }

  private val sink = "phases"

  private def run(
      rows: DataFrame,
      mode: String,
      fault: FaultAt,
      inputs: Seq[Line.MemoryStream[Int]]
  ): Unit = {
    val checkpoint = Files.createTempDirectory("statemark-phases-").toString
    StatemarkStateStoreProvider.observer = fault
    val query = rows.writeStream.format("memory").queryName(sink).outputMode(mode)
      .option("checkpointLocation", checkpoint).start()
    try
      batches.foreach { batch =>
        inputs.foreach(_.addData(batch))
        query.processAllAvailable()
      }
    finally {
      query.stop()
      StatemarkStateStoreProvider.observer = CommitObserver.none
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
