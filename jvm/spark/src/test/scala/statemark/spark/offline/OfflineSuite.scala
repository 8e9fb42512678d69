package statemark.spark.offline

import java.nio.file.{Files, Path => JPath}
import java.util.Comparator
import org.apache.spark.sql.{DataFrame, SQLContext, SparkSession}
import org.apache.spark.sql.streaming.{OutputMode, StreamingQuery}
import org.scalatest.{BeforeAndAfterAll, BeforeAndAfterEach}
import org.scalatest.funsuite.AnyFunSuite
import scala.collection.concurrent.TrieMap
import statemark.common.Clock
import statemark.spark.Line.MemoryStream
import statemark.spark.conf.ProviderClass
import statemark.spark.offline.checkpoint.QueryCheckpoint
import statemark.spark.offline.cli.{CommandContext, Console, ExitCode}
import statemark.spark.offline.switching.SwitchCommand

/** Keeps what a command writes. */
final class RecordingConsole extends Console {
  @volatile var results: Seq[String] = Nil
  @volatile var progressed: Seq[String] = Nil
  override def result(line: String): Unit = synchronized(results :+= line)
  override def progress(line: String): Unit = synchronized(progressed :+= line)
  def text: String = results.mkString("\n")
}

/** A session, a checkpoint directory for each test, and queries that stop and go on. */
trait OfflineSuite extends AnyFunSuite with BeforeAndAfterAll with BeforeAndAfterEach {
  protected val partitions = 2

  protected lazy val spark: SparkSession = SparkSession.builder()
    .master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", partitions.toString)
    // A batch without data would be running whenever a test stops its query.
    .config("spark.sql.streaming.noDataMicroBatches.enabled", "false")
    .getOrCreate()

  protected implicit def sqlContext: SQLContext = spark.sqlContext

  private var temporary: Option[JPath] = None
  protected def directory: JPath =
    temporary.getOrElse(throw new IllegalStateException("no test runs"))
  protected def checkpoint: JPath = directory.resolve("checkpoint")

  override protected def beforeEach(): Unit = {
    super.beforeEach()
    temporary = Some(Files.createTempDirectory("statemark-offline-"))
  }

  override protected def afterEach(): Unit = {
    spark.streams.active.foreach(_.stop())
    temporary.foreach { path =>
      val walk = Files.walk(path)
      try walk.sorted(Comparator.reverseOrder[JPath]()).forEach(p => Files.deleteIfExists(p): Unit)
      finally walk.close()
    }
    super.afterEach()
  }

  override protected def afterAll(): Unit = {
    spark.stop()
    super.afterAll()
  }

  /** A context whose waiting does `meanwhile`. */
  protected def context(console: Console, meanwhile: () => Unit = () => ()): CommandContext =
    new CommandContext(spark, console, Clock.system, _ => meanwhile())

  /** A query on rows of (key, seconds); what it wrote, by batch. */
  protected final class Job(
      build: DataFrame => DataFrame,
      mode: OutputMode,
      at: JPath,
      settings: Map[String, String] = Map.empty
  ) {
    import spark.implicits._
    private val input = MemoryStream[(Int, Long)]
    private val written = TrieMap.empty[Long, Seq[String]]
    @volatile private var last: Option[StreamingQuery] = None

    /** Runs a batch for each, in a run of its own, on the provider that the checkpoint pins, or on
      * `provider` where it is new.
      */
    def run(provider: ProviderClass, batches: Seq[(Int, Long)]*): Job = {
      val query = start(provider)
      try
        batches.foreach { batch =>
          input.addData(batch)
          query.processAllAvailable()
        }
      finally query.stop()
      this
    }

    def start(provider: ProviderClass): StreamingQuery = {
      val all = settings + ("spark.sql.streaming.stateStore.providerClass" -> provider.className)
      val before = all.keys.map(k => k -> spark.conf.getOption(k)).toMap
      all.foreach { case (k, v) => spark.conf.set(k, v) }
      try {
        val events = input.toDF().selectExpr("_1 AS key", "timestamp_seconds(_2) AS ts")
        val query = build(events).writeStream.outputMode(mode)
          .option("checkpointLocation", at.toString)
          .foreachBatch { (rows: DataFrame, batch: Long) =>
            written.put(batch, rows.collect().map(_.toString).sorted.toSeq): Unit
          }.start()
        last = Some(query)
        query
      } finally
        before.foreach { case (k, v) => v.fold(spark.conf.unset(k))(spark.conf.set(k, _)) }
    }

    def add(batch: (Int, Long)*): Unit = input.addData(batch): Unit

    /** What every batch wrote. */
    def output: Map[Long, Seq[String]] = written.toMap

    /** Names of the metrics that the stores of the last batch reported. */
    def metrics: Set[String] = {
      import scala.jdk.CollectionConverters._
      last.toSet.flatMap((q: StreamingQuery) =>
        q.lastProgress.stateOperators.toSeq.flatMap(_.customMetrics.keySet.asScala)
      )
    }
  }

  /** What the offset log pins, by batch. */
  protected def pinned(): Map[Long, ProviderClass] =
    QueryCheckpoint.open(checkpoint.toString, spark, context(new RecordingConsole).hadoopConf)
      .offsets.flatMap(e => e.provider.map(e.batch -> _)).toMap

  /** Runs `switch` on the test's checkpoint; what it wrote. */
  protected def switchTo(to: ProviderClass, more: String*): RecordingConsole = {
    val console = new RecordingConsole
    val args = Seq(checkpoint.toString, "--to", to.shortName, "--observe", "1") ++ more
    assert(CommandLine.run(SwitchCommand, args, context(console)) == ExitCode.Ok)
    console
  }
}
