package statemark.spark

import java.io.File
import java.nio.file.{Files, Path}
import java.util.UUID
import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.atomic.AtomicReference
import org.apache.spark.sql.execution.streaming.state.OwnThreadQuery
import org.apache.spark.sql.streaming.{
  StreamingQuery,
  StreamingQueryException,
  StreamingQueryListener,
  Trigger
}
import org.apache.spark.sql.{SQLContext, SparkSession}
import org.scalatest.BeforeAndAfterEach
import org.scalatest.concurrent.Eventually
import org.scalatest.funsuite.AnyFunSuite
import org.scalatest.time.SpanSugar._
import scala.jdk.CollectionConverters._
import scala.util.Try
import statemark.spark.conf.{ProviderName, StoreSettings}
import statemark.spark.plan.{RealTimeMode, StreamStart, StreamStarts}

/** Goal: in a session with `allowRealTime` a micro-batch query begins on the provider that the session asks for, or does
  * not begin. Method: queries whose step at the start is as it is, throws, is interrupted, or is left out; the offset log
  * says which provider Spark has pinned.
  */
class StreamStartSuite extends AnyFunSuite with OneSession with BeforeAndAfterEach with Eventually {
  implicit override val patienceConfig: PatienceConfig = PatienceConfig(60.seconds, 50.millis)

  private type Step = (OwnThreadQuery, Boolean) => Unit
  private val rocksdb = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
  private val allow = StoreSettings.AllowRealTime.key

  private val step = new AtomicReference[Step](StreamStart.begin)

  private val listeners = "spark.sql.streaming.streamingQueryListeners"

  override protected def sessionSettings: Map[String, String] =
    Map(allow -> "true", listeners -> classOf[StartedQueries].getName)

  // Its rule comes before the one that Spark finds by itself, which leaves such a plan alone.
  override protected lazy val spark: SparkSession = {
    val builder = SparkSession.builder().master(master)
      .config("spark.ui.enabled", "false")
      .config("spark.sql.shuffle.partitions", "2")
      .withExtensions(_.injectPostHocResolutionRule(new StreamStarts(_, step.get.apply(_, _))))
    sessionSettings.foreach { case (key, value) => builder.config(key, value) }
    builder.getOrCreate()
  }

  override protected def beforeEach(): Unit = {
    super.beforeEach()
    step.set(StreamStart.begin)
    spark.conf.set(allow, "true")
    spark.conf.unset(ProviderName.Key)
  }

  override protected def afterEach(): Unit = {
    spark.streams.active.foreach(_.stop())
    super.afterEach()
  }

  /** Counts of rows, in runs on one checkpoint. */
  private class Counts(in: SparkSession = spark) {
    private implicit val sql: SQLContext = in.sqlContext
    import in.implicits._
    private val input = Line.MemoryStream[Int]
    val checkpoint: Path = Files.createTempDirectory("statemark-start-")

    def start(rows: Int*): StreamingQuery = {
      input.addData(rows)
      input.toDF().groupBy("value").count().writeStream.format("noop").outputMode("update")
        .option("checkpointLocation", checkpoint.toString).start()
    }

    /** Processes rows in a run of its own. */
    def process(rows: Int*): Unit = {
      val query = start(rows: _*)
      try query.processAllAvailable()
      finally query.stop()
    }

    /** The providers that the batches of the offset log name. */
    def pinned: Seq[String] = StreamStartSuite.pinned(checkpoint)
  }

  test("without providerClass a query begins on Statemark, and goes on there after a restart") {
    val counts = new Counts
    for (row <- 1 to 2) counts.process(row)
    assert(counts.pinned == Seq.fill(2)(ProviderName.Statemark))
    assert(!spark.conf.getAll.contains(ProviderName.Key))
  }

  test("providerClass of Statemark goes out of the session where Spark refuses real-time queries") {
    spark.conf.set(ProviderName.Key, ProviderName.Statemark)
    val counts = new Counts
    for (row <- 1 to 2) counts.process(row)
    assert(counts.pinned == Seq.fill(2)(ProviderName.Statemark))
    assert(spark.conf.getAll.contains(ProviderName.Key) != RealTimeMode.refusesProviders)
  }

  test("a provider that the session chooses counts") {
    spark.conf.set(ProviderName.Key, rocksdb)
    val counts = new Counts
    counts.process(1)
    assert(counts.pinned == Seq(rocksdb))
    // The checkpoint keeps it, as it does in every session.
    spark.conf.unset(ProviderName.Key)
    counts.process(2)
    assert(counts.pinned == Seq(rocksdb, rocksdb))
  }

  test("another session of the same application has queries on Statemark as well") {
    val counts = new Counts(spark.newSession())
    counts.process(1)
    assert(counts.pinned == Seq(ProviderName.Statemark))
  }

  test("without the setting Spark's default counts, and a bad value fails start() alone") {
    spark.conf.set(allow, "false")
    val counts = new Counts
    counts.process(1)
    assert(counts.pinned.forall(_ != ProviderName.Statemark))
    spark.conf.set(allow, "perhaps")
    assert(spark.range(3).count() == 3)
    val refused = intercept[Exception](new Counts().process(1))
    assert(refused.getMessage.contains(s"$allow is 'perhaps', but it must be true or false"))
  }

  test("the user's listeners are there as they were, and all may be removed") {
    val before = spark.streams.listListeners()
    assert(spark.conf.get(listeners) == classOf[StartedQueries].getName)
    assert(before.count(_.isInstanceOf[StartedQueries]) == 1)
    val query = new Counts().start(1)
    assert(StartedQueries.ids.contains(query.id))
    query.stop()
    before.foreach(spark.streams.removeListener)
    try {
      val counts = new Counts
      counts.process(1)
      assert(counts.pinned == Seq(ProviderName.Statemark))
    } finally before.foreach(spark.streams.addListener)
  }

  test("a query of continuous processing, which has no state, starts as before") {
    val checkpoint = Files.createTempDirectory("statemark-start-")
    val query = spark.readStream.format("rate").option("numPartitions", 1).load().writeStream
      .format("noop").trigger(Trigger.Continuous("100 milliseconds"))
      .option("checkpointLocation", checkpoint.toString).start()
    try
      eventually {
        assert(query.exception.isEmpty)
        assert(StreamStartSuite.batches(checkpoint).nonEmpty)
      }
    finally query.stop()
  }

  for (fault <- Seq(new IllegalStateException("injected"), new InterruptedException("injected")))
    test(
      s"a step that throws ${fault.getClass.getSimpleName} ends the query before its offset log"
    ) {
      step.set((_, _) => throw fault)
      val counts = new Counts
      val failed = intercept[StreamingQueryException](counts.process(1))
      assert(Iterator.iterate[Throwable](failed)(_.getCause).takeWhile(_ != null).contains(fault))
      assert(counts.pinned.isEmpty)
      // Neither this query nor another has lost anything by it.
      step.set(StreamStart.begin)
      for (again <- Seq(counts, new Counts)) {
        again.process(2)
        assert(again.pinned == Seq(ProviderName.Statemark))
      }
    }

  test("an interrupt in the middle of the step pins no other provider, and later queries have it") {
    step.set { (query, isChosen) =>
      Thread.currentThread.interrupt()
      StreamStart.begin(query, isChosen)
    }
    val counts = new Counts
    val query = counts.start(1)
    Try(query.processAllAvailable()): Unit
    query.stop()
    assert(counts.pinned.forall(_ == ProviderName.Statemark))
    step.set(StreamStart.begin)
    for (again <- Seq(counts, new Counts)) {
      again.process(2)
      assert(again.pinned.nonEmpty && again.pinned.forall(_ == ProviderName.Statemark))
    }
  }

  test("a query that is stopped while it starts pins no other provider") {
    val counts = new Counts
    for (row <- 1 to 5) counts.start(row).stop()
    counts.process(6)
    assert(counts.pinned.nonEmpty && counts.pinned.forall(_ == ProviderName.Statemark))
  }

  test("a batch with state is refused where the step did not run, before any task") {
    step.set((_, _) => ())
    val counts = new Counts
    val failed = intercept[StreamingQueryException](counts.process(1))
    for (part <- Seq(s"$allow=true", "did not run", ProviderName.Statemark))
      assert(failed.getMessage.contains(part))
    // Spark writes schemas as it plans a batch; a store has a file for its first version.
    val files = Files.walk(counts.checkpoint.resolve("state")).iterator.asScala
    assert(!files.exists(_.getFileName.toString.matches(raw"1\..*")))
  }
}

/** A user's listener, that Spark makes for each session. */
class StartedQueries extends StreamingQueryListener {
  override def onQueryStarted(event: StreamingQueryListener.QueryStartedEvent): Unit =
    StartedQueries.ids.add(event.id): Unit

  override def onQueryProgress(event: StreamingQueryListener.QueryProgressEvent): Unit = ()

  override def onQueryTerminated(event: StreamingQueryListener.QueryTerminatedEvent): Unit = ()
}

object StartedQueries {
  val ids: java.util.Set[UUID] = ConcurrentHashMap.newKeySet[UUID]()
}

object StreamStartSuite {
  private val Pinned = raw""""spark.sql.streaming.stateStore.providerClass":"([^"]+)"""".r

  /** The providers that the batches of a checkpoint's offset log name, in order. */
  def pinned(checkpoint: Path): Seq[String] = batches(checkpoint).flatMap(file =>
    Pinned.findFirstMatchIn(Files.readString(file.toPath)).map(_.group(1))
  )

  /** The batches of a checkpoint's offset log, in order. */
  def batches(checkpoint: Path): Seq[File] =
    Option(checkpoint.resolve("offsets").toFile.listFiles).toSeq.flatten
      .filter(_.getName.forall(_.isDigit)).sortBy(_.getName.toInt)
}
