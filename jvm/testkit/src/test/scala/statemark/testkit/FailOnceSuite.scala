package statemark.testkit

import java.nio.file.Files

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.{DataFrame, SparkSession}
import org.apache.spark.sql.streaming.Trigger
import org.scalatest.{BeforeAndAfterAll, BeforeAndAfterEach}
import org.scalatest.funsuite.AnyFunSuite

/** A real query on Spark's own RocksDB provider is failed once, at the moment that was asked for. */
class FailOnceSuite extends AnyFunSuite with BeforeAndAfterAll with BeforeAndAfterEach {

  private val rows = 6000L
  private var spark: SparkSession = _
  private var dir: String = _

  override def beforeAll(): Unit = {
    val prefix = "spark.sql.streaming.stateStore"
    spark = SparkSession
      .builder()
      .master("local[2,4]")
      .config("spark.ui.enabled", "false")
      .config("spark.sql.shuffle.partitions", "2")
      .config(
        s"$prefix.providerClass",
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
      )
      .config(s"$prefix.rocksdb.changelogCheckpointing.enabled", "true")
      .config("spark.hadoop.fs.counting.impl", classOf[CountingFileSystem].getName)
      .config(
        "spark.hadoop.fs.AbstractFileSystem.counting.impl",
        classOf[CountingAbstractFileSystem].getName
      )
      .getOrCreate()
    FailOnce.register(spark, "fail_once")
  }

  override def afterAll(): Unit = spark.stop()

  override def beforeEach(): Unit = {
    dir = Files.createTempDirectory("failonce").toRealPath().toString
    FileCounts.reset()
    // Two files, so two batches: the first makes the state that the second one's retry has to find again.
    for (i <- 0 until 2)
      spark
        .range(i * rows, (i + 1) * rows)
        .coalesce(1)
        .write
        .parquet(s"$dir/in/$i")
  }

  override def afterEach(): Unit = FailOnce.disarm()

  private def checkpoint = s"counting://$dir/checkpoint"

  private def deduplicated: DataFrame =
    spark.readStream
      .schema("id LONG")
      .option("maxFilesPerTrigger", 1)
      .option("recursiveFileLookup", true)
      .parquet(s"$dir/in")
      .dropDuplicates("id")
      .where("fail_once()")

  private def run(): Unit = {
    val query = deduplicated.writeStream
      .option("checkpointLocation", checkpoint)
      .trigger(Trigger.AvailableNow())
      .format("parquet")
      .start(s"$dir/out")
    query.awaitTermination(60000)
    query.stop()
  }

  test("fails one attempt of the asked partition in the asked batch, after another has committed") {
    FailOnce.arm(
      s"$checkpoint/state/0",
      minRows = 1000,
      batchId = 1,
      partition = 1,
      timeoutMs = 30000
    )
    run()
    val report = FailOnce.report()
    assert(report.fired, report.problem)
    assert(report.batchId === 1)
    assert(report.partition === 1)
    assert(report.attempt === 0)
    assert(report.rows === 1000)
    assert(report.committedPartition === 0)
    assert(spark.read.parquet(s"$dir/out").count() === 2 * rows)

    val events = FileCounts.events(s"$dir/checkpoint/state/0").asScala.toSeq
    def commit(partition: Int) = events
      .find(e => e.kind == "rename" && e.path.endsWith(s"/$partition/2.changelog"))
      .getOrElse(fail(s"no commit of partition $partition in $events"))
    assert(commit(0).nanos < report.nanos && report.nanos < commit(1).nanos)
    assert(commit(0).seq < report.seq && report.seq <= commit(1).seq)

    val recovery = FailOnce.recovery()
    assert(recovery.toCommitMs === (commit(1).nanos - report.nanos) / 1e6)
    // Spark's provider has dropped what it held, so it reads the version before again; some lines with its checksum.
    assert(recovery.opened.asScala.filterNot(_.endsWith(".crc")).toSet === Set("1/1.changelog"))
  }

  test("fires in the first batch that has the rows when none is named") {
    FailOnce.arm(s"$dir/checkpoint/state/0", minRows = 1500, batchId = -1, partition = -1, 30000)
    run()
    assert(FailOnce.report().fired, FailOnce.report().problem)
    assert(FailOnce.report().batchId === 0)
    assert(spark.read.parquet(s"$dir/out").count() === 2 * rows)
  }

  test("says why it did not fire when no other partition commits where it looks") {
    FailOnce.arm(s"$dir/elsewhere", minRows = 1000, batchId = -1, partition = -1, timeoutMs = 200)
    run()
    assert(!FailOnce.report().fired)
    assert(FailOnce.report().problem.contains("elsewhere"))
    assert(intercept[IllegalStateException](FailOnce.recovery()).getMessage.contains("elsewhere"))
  }

  test("does nothing when it is not armed") {
    FailOnce.arm(s"$dir/x", minRows = 1, batchId = 0, partition = 0, timeoutMs = 1)
    FailOnce.disarm()
    run()
    assert(FailOnce.report() === FailReport())
    assert(spark.read.parquet(s"$dir/out").count() === 2 * rows)
  }
}
