package statemark.spark

import java.nio.file.{Files, Path}
import java.util.concurrent.ConcurrentLinkedQueue
import org.apache.spark.sql.execution.streaming.sources.LowLatencyMemoryStream
import org.apache.spark.sql.streaming.{StreamingQuery, StreamingQueryException, Trigger}
import org.apache.spark.sql.{DataFrame, ForeachWriter, Row, SQLContext, SparkSession}
import org.scalatest.BeforeAndAfterEach
import org.scalatest.concurrent.Eventually
import org.scalatest.funsuite.AnyFunSuite
import org.scalatest.time.SpanSugar._
import scala.jdk.CollectionConverters._
import statemark.spark.conf.{ProviderName, StoreSettings}

/** Goal: a session on Statemark starts real-time queries without state, and never runs one with state on a provider that
  * nobody asked for. Method: Spark's own source for tests of the mode, and a row-by-row sink in this process.
  */
class RealTimeSuite extends AnyFunSuite with OneSession with BeforeAndAfterEach with Eventually {
  implicit override val patienceConfig: PatienceConfig = PatienceConfig(60.seconds, 50.millis)

  private val rocksdb = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
  private val allow = StoreSettings.AllowRealTime.key

  // Spark runs all stages of a real-time query at once.
  override protected def master: String = "local[4]"

  // What `statemark.configure` sets on this line.
  override protected def sessionSettings: Map[String, String] = super.sessionSettings ++ Map(
    allow -> "true",
    "spark.sql.streaming.realTimeMode.minBatchDuration" -> "500"
  )

  override protected def beforeEach(): Unit = {
    super.beforeEach()
    spark.conf.set(allow, "true")
    spark.conf.set(ProviderName.Key, ProviderName.Statemark)
  }

  override protected def afterEach(): Unit = {
    spark.streams.active.foreach(_.stop())
    super.afterEach()
  }

  private def checkpoint(): Path = Files.createTempDirectory("statemark-real-time-")

  /** A real-time query on a checkpoint of its own. */
  private class RealTime(in: SparkSession = spark)(transform: DataFrame => DataFrame) {
    private implicit val sql: SQLContext = in.sqlContext
    import in.implicits._
    private val input = LowLatencyMemoryStream.singlePartition[String]
    private val written = new Written
    private val result = transform(input.toDF())
    val location: Path = checkpoint()

    def start(): StreamingQuery =
      result.writeStream.foreach(written).outputMode("update").trigger(Trigger.RealTime(500))
        .option("checkpointLocation", location.toString).start()

    /** Has rows gone through the query and into a batch that is over. */
    def process(rows: String*)(expected: Row*): Unit = {
      val query = start()
      try {
        input.addData(rows)
        eventually {
          assert(query.exception.isEmpty)
          assert(query.recentProgress.map(_.numInputRows).sum == rows.size)
          assert(expected.toSet.subsetOf(written.rows))
        }
      } finally query.stop()
    }
  }

  private def upper(rows: DataFrame): DataFrame = rows.selectExpr("upper(value) AS value")

  /** Counts of rows in micro-batches. */
  private class MicroBatch(in: SparkSession = spark) {
    private implicit val sql: SQLContext = in.sqlContext
    import in.implicits._
    private val input = Line.MemoryStream[String]
    private val location = checkpoint()

    def process(rows: String*): Unit = {
      input.addData(rows)
      val query = input.toDF().groupBy("value").count().writeStream.format("noop")
        .outputMode("update").option("checkpointLocation", location.toString).start()
      try query.processAllAvailable()
      finally query.stop()
    }

    def pinned: Seq[String] = StreamStartSuite.pinned(location)
  }

  test("one session has real-time queries, and micro-batch queries on Statemark, over a restart") {
    val (micro, realTime) = (new MicroBatch, new RealTime()(upper))
    micro.process("a")
    realTime.process("a", "b")(Row("A"), Row("B"))
    micro.process("b")
    realTime.process("c")(Row("C"))
    assert(micro.pinned == Seq.fill(2)(ProviderName.Statemark))
  }

  test("both at the same time, in another session of the application") {
    val other = spark.newSession()
    val micro = new MicroBatch(other)
    val realTime = new RealTime(other)(upper)
    val query = realTime.start()
    try {
      micro.process("a")
      assert(query.isActive && query.exception.isEmpty)
    } finally query.stop()
    realTime.process("a")(Row("A"))
    assert(micro.pinned == Seq(ProviderName.Statemark))
  }

  for (
    withState <- Seq[(String, DataFrame => DataFrame)](
      "an aggregation" -> (_.groupBy("value").count()),
      "dropDuplicates" -> (_.dropDuplicates("value"))
    )
  ) test(s"a real-time query with state, ${withState._1}, is refused, and nothing is pinned") {
    val realTime = new RealTime()(withState._2)
    val failed = intercept[StreamingQueryException](realTime.start().processAllAvailable())
    for (part <- Seq("real-time mode", "another trigger", ProviderName.Key, rocksdb))
      assert(failed.getMessage.contains(part))
    assert(StreamStartSuite.pinned(realTime.location).isEmpty)
  }

  test("a real-time query with state runs on Spark's provider where the session asks for it") {
    spark.conf.set(ProviderName.Key, rocksdb)
    val realTime = new RealTime()(_.dropDuplicates("value"))
    realTime.process("a", "b")(Row("a"), Row("b"))
    assert(StreamStartSuite.pinned(realTime.location).forall(_ == rocksdb))
  }

  test("without the setting Spark refuses real-time queries, and allows them once it is there") {
    spark.conf.set(allow, "false")
    val refused = intercept[IllegalArgumentException](new RealTime()(upper).start())
    assert(refused.getMessage.contains("STREAMING_REAL_TIME_MODE.SQL_CONFIGURATION_NOT_SUPPORTED"))
    assert(refused.getMessage.contains(ProviderName.Key))
    spark.conf.set(allow, "true")
    new RealTime()(upper).process("a")(Row("A"))
  }
}

/** Rows that tasks of this process have written. */
private class Written extends ForeachWriter[Row] {
  private val id = Written.all.synchronized {
    Written.all += new ConcurrentLinkedQueue[Row]
    Written.all.size - 1
  }

  def rows: Set[Row] = queue.asScala.toSet

  private def queue = Written.all.synchronized(Written.all(id))

  override def open(partition: Long, epoch: Long): Boolean = true

  override def process(row: Row): Unit = queue.add(row): Unit

  override def close(failure: Throwable): Unit = ()
}

private object Written {
  private val all = scala.collection.mutable.ArrayBuffer.empty[ConcurrentLinkedQueue[Row]]
}
