package statemark.spark

import java.nio.file.Files
import java.util.concurrent.atomic.AtomicInteger
import java.util.concurrent.{CountDownLatch, TimeUnit}
import org.apache.spark.scheduler.{
  SparkListener,
  SparkListenerJobEnd,
  SparkListenerJobStart,
  SparkListenerTaskStart
}
import org.apache.spark.sql.{DataFrame, Dataset, Row, SQLContext, SparkSession}
import org.apache.spark.sql.execution.exchange.ShuffleExchangeExec
import org.apache.spark.sql.execution.{ProjectExec, SparkPlan, WholeStageCodegenExec}
import org.apache.spark.sql.execution.streaming.runtime.{MemoryStream, StreamingQueryWrapper}
import org.apache.spark.sql.streaming._
import org.scalatest.BeforeAndAfterEach
import org.scalatest.funsuite.AnyFunSuite
import statemark.spark.conf.StoreSettings
import statemark.spark.plan.{AcceptsStatemark, StatefulNodes, StatemarkTransformWithStateExec}

/** Counts the rows of a key. */
class CountProcessor extends StatefulProcessor[Int, Int, (Int, Long)] {
  @transient private var count: ValueState[Long] = _

  override def init(outputMode: OutputMode, timeMode: TimeMode): Unit =
    count = getHandle.getValueState[Long](
      "count",
      org.apache.spark.sql.Encoders.scalaLong,
      TTLConfig.NONE
    )

  override def handleInputRows(
      key: Int,
      rows: Iterator[Int],
      timers: TimerValues
  ): Iterator[(Int, Long)] = {
    count.update((if (count.exists()) count.get() else 0L) + rows.size)
    Iterator((key, count.get()))
  }
}

/** What the extension does to plans, by each way to register it. */
class ExtensionsSuite extends AnyFunSuite with BeforeAndAfterEach {
  private val providerClass = "spark.sql.streaming.stateStore.providerClass"
  private val byName = "spark.sql.extensions" -> classOf[StatemarkExtensions].getName
  private val hdfs = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
  private val rocksdb = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

  private var started = Option.empty[SparkSession]

  override protected def afterEach(): Unit = {
    started.foreach(_.stop())
    SparkSession.clearActiveSession()
    SparkSession.clearDefaultSession()
    super.afterEach()
  }

  /** Builds a session that finds no extension by itself. */
  private def unannounced(build: => SparkSession): SparkSession = {
    val thread = Thread.currentThread
    val loader = thread.getContextClassLoader
    thread.setContextClassLoader(new ClassLoader(loader) {
      override def getResources(name: String): java.util.Enumeration[java.net.URL] =
        if (name.startsWith("META-INF/services/")) java.util.Collections.emptyEnumeration()
        else super.getResources(name)
    })
    try build
    finally thread.setContextClassLoader(loader)
  }

  private def session(confs: (String, String)*): SparkSession = {
    val builder = SparkSession.builder()
      .master("local[2]")
      .config("spark.ui.enabled", "false")
      .config("spark.sql.shuffle.partitions", "2")
      // As users have it: a step of the preparation that comes after the node was swapped.
      .config("spark.sql.codegen.wholeStage", "true")
      .config("spark.sql.codegen.factoryMode", "FALLBACK")
      .config(providerClass, classOf[StatemarkStateStoreProvider].getName)
    confs.foreach { case (key, value) => builder.config(key, value) }
    val spark = builder.getOrCreate()
    started = Some(spark)
    // Else it is the session of another test, and how this one is registered was not looked at.
    for ((key, value) <- confs) assert(spark.sparkContext.getConf.get(key) == value)
    spark
  }

  /** A stream, what is made of it, and its checkpoint. */
  private class Stream(
      spark: SparkSession,
      checkpoint: String = Files.createTempDirectory("statemark-extensions-").toString
  )(transform: Dataset[Int] => DataFrame) {
    private implicit val sql: SQLContext = spark.sqlContext
    import spark.implicits._
    private val input = MemoryStream[Int]
    private val result = transform(input.toDS())

    /** Rows that an earlier run on the checkpoint has processed: one batch of them. */
    def had(rows: Int*): Unit = input.addData(rows): Unit

    /** Processes one batch; the plan of the last one. */
    def process(rows: Int*): SparkPlan = processEach(rows)

    /** Processes batches in one run; the plan of the last one. */
    def processEach(batches: Seq[Int]*): SparkPlan = {
      input.addData(batches.head)
      val query = result.writeStream.format("noop").outputMode("update")
        .option("checkpointLocation", checkpoint).start()
      try {
        query.processAllAvailable()
        for (rows <- batches.tail) {
          input.addData(rows)
          query.processAllAvailable()
        }
        query.asInstanceOf[StreamingQueryWrapper].streamingQuery.lastExecution.executedPlan
      } finally query.stop()
    }
  }

  private def counted(spark: SparkSession)(rows: Dataset[Int]): DataFrame = {
    import spark.implicits._
    rows.groupByKey(identity).transformWithState(
      new CountProcessor,
      TimeMode.None(),
      OutputMode.Update()
    ).toDF("key", "count")
  }

  private def swapped(plan: SparkPlan): Seq[AcceptsStatemark] =
    plan.collect { case node: AcceptsStatemark => node }

  private def node(spark: SparkSession): StatemarkTransformWithStateExec =
    swapped(new Stream(spark)(counted(spark)).process(1, 2, 2)).head
      .asInstanceOf[StatemarkTransformWithStateExec]

  private val ways = Seq[(String, () => SparkSession)](
    "by itself" -> (() => session()),
    "by its name" -> (() => unannounced(session(byName))),
    "in both ways" -> (() => session(byName))
  )

  for ((how, start) <- ways) test(s"registered $how, the node is swapped once, in every batch") {
    val spark = start()
    val stream = new Stream(spark)(counted(spark))
    for (batch <- 1 to 2) assert(swapped(stream.process(batch)).size == 1)
  }

  test("without it Spark refuses") {
    val spark = unannounced(session())
    val e = intercept[StreamingQueryException](new Stream(spark)(counted(spark)).process(1))
    assert(e.getMessage.contains("STORE_BACKEND_NOT_SUPPORTED_FOR_TWS"))
  }

  test("the node equals its copies and no node of Spark's") {
    val ours = node(session())
    val spark = ours.copy()
    assert(
      spark.getClass != ours.getClass && spark.productIterator.sameElements(ours.productIterator)
    )
    assert(ours != spark && spark != ours)
    assert(ours == StatefulNodes.opened(spark))
    assert(ours.hashCode == StatefulNodes.opened(spark).hashCode)
  }

  test("the node stays ours in whatever way Spark copies it, and where it is there already") {
    val ours = node(session())
    assert(ours.child.isInstanceOf[WholeStageCodegenExec], "its child was replaced after the swap")
    val copies = Seq(
      ours.mapChildren(child => ProjectExec(child.output, child)),
      ours.withNewChildren(ours.children.map(child => ProjectExec(child.output, child))),
      ours.makeCopy(ours.productIterator.map(_.asInstanceOf[AnyRef]).toArray),
      ours.clone(),
      ours.transformDown { case project: ProjectExec => project.copy(project.projectList) },
      ours.canonicalized
    )
    for (copy <- copies) assert(copy.isInstanceOf[StatemarkTransformWithStateExec])
    assert(StatefulNodes.opened(ours: SparkPlan) eq ours)
    assert(ours.shortName == ours.copy().shortName)
  }

  test("an exchange above two equal nodes is one to Spark, above ours and Spark's two") {
    val ours = node(session())
    def above(plan: SparkPlan) = ShuffleExchangeExec(plan.outputPartitioning, plan)
    assert(above(ours).sameResult(above(StatefulNodes.opened(ours.copy()))))
    assert(!above(ours).sameResult(above(ours.copy())))
  }

  test("another provider is refused by Spark") {
    val spark = session(providerClass -> hdfs)
    val stream = new Stream(spark)(counted(spark))
    val e = intercept[StreamingQueryException](stream.process(1))
    assert(e.getMessage.contains("STORE_BACKEND_NOT_SUPPORTED_FOR_TWS"))
    assert(e.getMessage.contains(hdfs))
  }

  test("Spark's provider keeps Spark's node, and so does a batch query") {
    val spark = session(providerClass -> rocksdb, StoreSettings.Prefix + "isolationLevle" -> "x")
    import spark.implicits._
    assert(swapped(new Stream(spark)(counted(spark)).process(1)).isEmpty)
    spark.conf.set(providerClass, classOf[StatemarkStateStoreProvider].getName)
    val batch = counted(spark)(Seq(1, 2, 2).toDS())
    assert(swapped(batch.queryExecution.executedPlan).isEmpty)
    assert(batch.collect().toSet == Set(Row(1, 1L), Row(2, 2L)))
  }

  private val badSettings = Seq(
    (StoreSettings.Prefix + "isolationLevle", "READ_COMMITTED", "isolationLevel"),
    (StoreSettings.Prefix + "maxUncommittedBytes", "lots", "-1 for no limit"),
    (StoreSettings.Prefix.toLowerCase + "localDir", "/data", StoreSettings.Prefix + "localDir")
  )

  for ((key, value, allowed) <- badSettings)
    test(s"$key = $value fails the query on the driver, before any task; corrected, it goes on") {
      val spark = session()
      val stream = new Stream(spark)(_.groupBy("value").count())
      spark.conf.set(key, value)
      val tasks = tasksOf(spark) {
        val e = intercept[StreamingQueryException](stream.process(1, 2))
        for (part <- Seq(key, value, allowed)) assert(e.getMessage.contains(part))
      }
      assert(tasks == 0)
      spark.conf.unset(key)
      assert(tasksOf(spark)(stream.process(3)) > 0)
    }

  private val format = "spark.sql.streaming.stateStore.checkpointFormatVersion"

  // From Spark 4.3 on a query goes on in the format of its checkpoint, whatever its session says.
  private val isFormatKept = !org.apache.spark.SPARK_VERSION.startsWith("4.2")

  if (isFormatKept) for ((from, to) <- Seq("1" -> "2", "2" -> "1"))
    test(s"$format from $from to $to is passed over: the query goes on in the format that it has") {
      val checkpoint = Files.createTempDirectory("statemark-kept-")
      val spark = session(format -> from)
      val stream = new Stream(spark, checkpoint.toString)(_.groupBy("value").count())
      stream.process(1, 2): Unit
      spark.conf.set(format, to)
      stream.processEach(Seq(3), Seq(4)): Unit
      val changelogs = checkpoint.resolve("state/0/0").toFile.list.filter(_.endsWith(".changelog"))
      assert(changelogs.length == 3)
      assert(changelogs.forall(_.contains('_') == (from == "2")), changelogs.toSeq)
    }

  if (!isFormatKept) for ((from, to) <- Seq("1" -> "2", "2" -> "1"))
    test(s"$format from $from to $to is refused on the driver, before any task; back, it goes on") {
      val spark = session(format -> from)
      val stream = new Stream(spark)(_.groupBy("value").count())
      stream.process(1, 2): Unit
      spark.conf.set(format, to)
      val tasks = tasksOf(spark) {
        val e = intercept[StreamingQueryException](stream.process(3))
        for (part <- Seq(s"$format is $to", s"format $from")) assert(e.getMessage.contains(part))
      }
      assert(tasks == 0)
      spark.conf.set(format, from)
      assert(tasksOf(spark)(stream.process(4)) > 0)
    }

  if (!isFormatKept) test("a checkpoint whose format was changed: the text leads out") {
    val (from, to) = ("1", "2")
    val checkpoint = Files.createTempDirectory("statemark-mixed-")
    val unchecked = unannounced(session(format -> from))
    val first = new Stream(unchecked, checkpoint.toString)(_.groupBy("value").count())
    for (row <- 1 to 2) first.process(row): Unit
    unchecked.conf.set(format, to)
    first.processEach(Seq(3), Seq(4)): Unit
    unchecked.stop()

    val spark = session(format -> from)
    val stream = new Stream(spark, checkpoint.toString)(_.groupBy("value").count())
    for (row <- 1 to 4) stream.had(row)
    for (asked <- Seq(from, to)) {
      spark.conf.set(format, asked)
      val tasks = tasksOf(spark) {
        val e = intercept[StreamingQueryException](stream.process(5))
        for (part <- Seq("batch 1", s"set $format to $from", "offsets", "commits"))
          assert(e.getMessage.contains(part))
      }
      assert(tasks == 0)
    }
    // What the text says.
    for (log <- Seq("offsets", "commits"); file <- checkpoint.resolve(log).toFile.listFiles)
      if (file.getName.stripPrefix(".").takeWhile(_.isDigit).toIntOption.exists(_ > 1))
        Files.delete(file.toPath)
    spark.conf.set(format, from)
    val again = new Stream(spark, checkpoint.toString)(_.groupBy("value").count())
    for (row <- 1 to 5) again.had(row)
    assert(tasksOf(spark)(again.process(6)) > 0)
  }

  test("settings are not looked at in a query without state") {
    val spark = session(StoreSettings.Prefix + "isolationLevle" -> "x")
    new Stream(spark)(_.toDF()).process(1): Unit
  }

  /** How many tasks a body runs. */
  private def tasksOf(spark: SparkSession)(body: => Any): Int = {
    val tasks = new AtomicInteger
    val last = "last"
    val allSeen = new CountDownLatch(1)
    val listener = new SparkListener {
      @volatile private var lastJob = Option.empty[Int]
      override def onJobStart(start: SparkListenerJobStart): Unit =
        if (start.properties.getProperty("spark.job.description") == last)
          lastJob = Some(start.jobId)
      override def onTaskStart(start: SparkListenerTaskStart): Unit = tasks.incrementAndGet(): Unit
      override def onJobEnd(end: SparkListenerJobEnd): Unit =
        if (lastJob.contains(end.jobId)) allSeen.countDown()
    }
    val context = spark.sparkContext
    context.addSparkListener(listener)
    body
    // Events come in order: once the end of a job after the body is seen, all of the body's are.
    context.setJobDescription(last)
    assert(context.parallelize(Seq(1), 1).count() == 1)
    assert(allSeen.await(60, TimeUnit.SECONDS))
    context.removeSparkListener(listener)
    tasks.get - 1
  }
}
