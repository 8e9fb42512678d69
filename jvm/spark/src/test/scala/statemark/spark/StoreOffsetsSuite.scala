package statemark.spark

import java.nio.file.{Files, Path}
import java.util.concurrent.{ConcurrentLinkedQueue, Executors, Semaphore}
import org.apache.spark.sql.{Dataset, Row, SQLContext}
import org.apache.spark.sql.execution.streaming.state.StateStore
import org.apache.spark.sql.streaming.{
  DataStreamWriter,
  StreamingQuery,
  StreamingQueryException,
  Trigger
}
import org.apache.spark.TaskContext
import org.json4s.{JBool, JString}
import org.json4s.jackson.JsonMethods.parse
import org.rocksdb._
import org.scalatest.BeforeAndAfterEach
import org.scalatest.funsuite.AnyFunSuite
import scala.jdk.CollectionConverters._
import statemark.common.{Clock, Position, SourceEnd, SourceOffset}
import statemark.engine.OffsetsColumnFamily
import statemark.IsolationLevel
import statemark.spark.checkpoint.StoreAddress
import statemark.spark.cluster.BatchOffsets
import statemark.spark.conf.StoreSettings
import statemark.spark.errors.{FailureKinds, LookupException, StoreKind}
import statemark.spark.live.LiveLookup
import statemark.spark.local.StoreDirectory
import statemark.spark.offline.{CommandLine, RecordingConsole}
import statemark.spark.offline.cli.{Command, CommandContext}
import statemark.spark.offline.inspect.InspectCommand
import statemark.spark.offline.local.LocalCommand
import statemark.spark.process.JvmState
import statemark.spark.reads.ReadableStores
import statemark.transaction.{CommitObserver, CommitPhase}

/** The source offsets that stores hold are theirs again after each load, and a batch begins where its stores stand (I12). */
class StoreOffsetsSuite extends AnyFunSuite with OneSession with BeforeAndAfterEach {
  // Two for a batch whose tasks wait, and two for reads meanwhile.
  override protected def master: String = "local[4]"

  private val StateStorePrefix = "spark.sql.streaming.stateStore."
  private var directory: Path = _
  private var query: Option[StreamingQuery] = None
  @volatile private var atCommit = CommitObserver.none

  override protected def beforeEach(): Unit = {
    super.beforeEach()
    directory = Files.createTempDirectory("statemark-store-offsets-")
    atCommit = CommitObserver.none
    // A store keeps the observer that it finds as it is made.
    JvmState.observer.set(phase => atCommit.reached(phase))
  }

  override protected def afterEach(): Unit = {
    query.foreach(_.stop())
    StateStore.stop()
    JvmState.observer.clear()
    super.afterEach()
  }

  /** A query that counts numbers, a batch for each [[add]].
    *
    * @param localDir below which its stores lie: another one has none, and they are loaded from the checkpoint
    */
  private final class Counts {
    private val session = spark
    import session.implicits._
    private implicit val context: SQLContext = session.sqlContext
    val input: Line.MemoryStream[Int] = Line.MemoryStream[Int]
    val name: String = directory.getFileName.toString

    def start(
        checkpoint: Path,
        localDir: String,
        settings: Map[String, String] = Map.empty,
        write: DataStreamWriter[Row] => DataStreamWriter[Row] = _.format("noop")
    ): StreamingQuery = {
      query.foreach(_.stop())
      val all = settings ++ Map(s"${StoreSettings.Prefix}localDir" -> local(localDir).toString)
      all.foreach { case (key, value) => spark.conf.set(key, value) }
      val started =
        try
          write(input.toDF().groupBy("value").count().writeStream.outputMode("update"))
            .queryName(name).option("checkpointLocation", checkpoint.toString)
            .trigger(Trigger.ProcessingTime(0)).start()
        finally all.keys.foreach(spark.conf.unset)
      query = Some(started)
      started
    }

    def add(numbers: Int*): Unit = {
      input.addData(numbers: _*)
      query.foreach(_.processAllAvailable())
    }
  }

  private def local(name: String): Path = directory.resolve(name)
  private def checkpoint: Path = directory.resolve("checkpoint")

  /** Runs `body`, and returns what the base of each store held when its batch was about to be committed. */
  private def heldDuring(body: => Unit): Set[(Long, Option[String])] = {
    val seen = new ConcurrentLinkedQueue[(Long, Option[String])]
    atCommit = { phase =>
      if (phase == CommitPhase.BatchSerialized) {
        val told = BatchOffsets.decode(TaskContext.get().getLocalProperty(BatchOffsets.Property))
        val address = StoreAddress(told.runId, 0, TaskContext.getPartitionId(), "default")
        val held =
          ReadableStores.offsets(address, told.batch, Set.empty, IsolationLevel.ReadCommitted)
        seen.add((told.batch, held.flatMap(_.position).map(BatchOffsets.written))): Unit
      }
    }
    try body
    finally atCommit = CommitObserver.none
    seen.asScala.toSet
  }

  private val loads = for {
    format <- Seq("1", "2")
    (from, settings) <- Seq(
      "changelogs" -> Map.empty[String, String],
      "a snapshot" -> Map(s"${StateStorePrefix}rocksdb.changelogCheckpointing.enabled" -> "false")
    )
  } yield (
    s"$from (v$format)",
    settings + (s"${StateStorePrefix}checkpointFormatVersion" -> format)
  )

  for ((from, settings) <- loads) test(s"a store that is loaded from $from has its offsets again") {
    val counts = new Counts
    counts.start(checkpoint, "first", settings)
    (1 to 3).foreach(counts.add(_))
    counts.start(checkpoint, "second", settings)
    assert(heldDuring(counts.add(4)) == Set((3L, Some("""["2"]"""))))
    // Also where no batch has begun since the load: then they are those of the log.
    assert(committed(counts.name) == Seq("3"))
  }

  private def committed(name: String, options: (String, String)*): Seq[String] =
    spark.read.format("statemark").option("queryName", name).option("what", "committedOffset")
      .options(options.toMap).load().orderBy("source").collect().map(_.getString(2)).toSeq

  private def refused(batch: => Unit): Throwable = {
    val e = intercept[StreamingQueryException](batch)
    assert(FailureKinds.find(e).contains(StoreKind.OffsetsDiffer), e)
    e
  }

  test("an offset log that was changed in a copy is refused by name, and goes on with 'warn'") {
    val counts = new Counts
    counts.start(checkpoint, "local")
    (1 to 3).foreach(counts.add(_))
    // A store has a version in its base when the next batch begins.
    duringNextBatch(counts.input.addData(4): Unit)(query.foreach(_.stop()))
    StateStore.stop()
    def copied(name: String): Path = {
      val copy = directory.resolve(name)
      new ProcessBuilder("cp", "-a", checkpoint.toString, copy.toString).start().waitFor(): Unit
      val entry = copy.resolve("offsets/2")
      val lines = Files.readAllLines(entry)
      lines.set(lines.size - 1, "1")
      Files.write(entry, lines): Unit
      Files.deleteIfExists(entry.resolveSibling(".2.crc")): Unit
      copy
    }
    val planted = counts.start(copied("copy"), "local")
    val e = refused(planted.processAllAvailable())
    assert(e.getMessage.contains("2 of source 0") && e.getMessage.contains("1 of source 0"))
    val warned = Map(s"${StoreSettings.Prefix}checkOffsets" -> "warn")
    counts.start(copied("warned"), "local", warned).processAllAvailable()
    // The checkpoint itself is as it was.
    counts.start(checkpoint, "local").processAllAvailable()
  }

  /** Has a batch begin, and runs `meanwhile` before any of its two stores commits. */
  private def duringNextBatch(begin: => Unit)(meanwhile: => Unit): Unit = {
    val begun = new Semaphore(0)
    val goesOn = new Semaphore(0)
    atCommit = { phase =>
      if (phase == CommitPhase.BatchSerialized) {
        begun.release()
        goesOn.acquire()
      }
    }
    begin
    begun.acquire(2)
    try meanwhile
    finally {
      atCommit = CommitObserver.none
      goesOn.release(2)
    }
  }

  test("offsets that were changed in a store are shown, and a lookup fails by name") {
    val counts = new Counts
    counts.start(checkpoint, "local")
    (1 to 3).foreach(counts.add(_))
    assert(Seq("0", "1").forall(id => committed(counts.name, "partition" -> id) == Seq("2")))
    duringNextBatch(counts.input.addData(4): Unit)(query.foreach(_.stop()))
    StateStore.stop()
    val changed = Position(Vector(SourceOffset("0", SourceEnd.Offset("7"))))
    StoreDirectory.all(local("local").toFile).foreach(home => plant(home.toPath, changed))

    def shown(command: Command, words: String*) = {
      val console = new RecordingConsole
      CommandLine.run(
        command,
        words :+ "--json",
        new CommandContext(spark, console, Clock.system, _ => ())
      ): Unit
      parse(console.text)
    }
    val homes = shown(LocalCommand, "--local-dir", local("local").toString) \ "homes"
    assert(homes.children.nonEmpty && homes.children.forall(_ \ "offsets" \ "0" == JString("7")))
    spark.conf.set(s"${StoreSettings.Prefix}localDir", local("local").toString)
    val facts =
      try shown(InspectCommand, checkpoint.toString)
      finally spark.conf.unset(s"${StoreSettings.Prefix}localDir")
    assert(facts \ "offsets" \ "0" == JString("2"))
    assert((facts \ "localStores").children.forall(_ \ "offsets" \ "0" == JString("7")))
    assert((facts \ "localStores").children.exists(_ \ "differs" == JBool.True))

    refused(counts.start(checkpoint, "local").processAllAvailable())
    val warned = Map(s"${StoreSettings.Prefix}checkOffsets" -> "warn")
    duringNextBatch(counts.start(checkpoint, "local", warned): Unit) {
      assert(committed(counts.name) == Seq("7"))
      val options = Map("queryName" -> counts.name)
      val e = intercept[LookupException](
        LiveLookup.get(s"""{"queryName": "${counts.name}"}""", """[{"value": 1}, {"value": 2}]""")
      )
      assert(e.kind == StoreKind.OffsetsDiffer)
      val read = spark.read.format("statemark").options(options).load()
      val failed = intercept[Exception](read.collect())
      assert(FailureKinds.find(failed).contains(StoreKind.OffsetsDiffer), failed)
    }
    query.foreach(_.processAllAvailable())
    assert(committed(counts.name) == Seq("3"))
    assert(LiveLookup.find(Map("queryName" -> counts.name), """[{"value": 1}]""")._1.head.isDefined)
  }

  test("a thread of an earlier batch says nothing of a later one") {
    val counts = new Counts
    val pool = Executors.newSingleThreadExecutor()
    val second = (rows: Dataset[Row]) => pool.submit(() => rows.collect().length).get()
    try {
      counts.start(
        checkpoint,
        "local",
        write = _.foreachBatch { (rows: Dataset[Row], _: Long) =>
          rows.collect()
          second(rows): Unit
        }
      )
      // The thread is made in the first batch, and has its properties for ever.
      (1 to 4).foreach { n =>
        counts.add(n)
        assert(committed(counts.name) == Seq(s"${n - 1}"))
      }
    } finally pool.shutdown()
  }

  test("at READ_UNCOMMITTED a bound is met by the batch that runs, once it has begun") {
    val counts = new Counts
    counts.start(checkpoint, "first")
    counts.add(1)
    val level = "isolationLevel" -> "READ_UNCOMMITTED"
    val bound = "positionBound" -> """["1"]"""
    def options(more: (String, String)*) =
      Map("queryName" -> counts.name, "timeout" -> "100ms") ++ more
    def values(more: (String, String)*) =
      spark.read.format("statemark").options(options(more: _*)).load()
        .select("key.value").collect().map(_.getInt(0)).toSet
    def lookup(more: (String, String)*) =
      LiveLookup.find(options(more: _*), """[{"value": 1}, {"value": 2}]""")._1.map(_.isDefined)
    def unmet(read: => Any) = {
      val e = intercept[Exception](read)
      assert(FailureKinds.find(e).contains(StoreKind.PositionBound), e)
    }
    duringNextBatch(counts.input.addData(2): Unit) {
      assert(values(level, bound) == Set(1, 2) && lookup(level, bound) == Seq(true, true))
      unmet(values(bound))
      unmet(lookup(bound))
      unmet(values(level, "positionBound" -> """["2"]"""))
      // Offsets are those of a commit.
      unmet(spark.read.format("statemark").options(options(level, bound, "what" -> "position"))
        .load().collect())
      // Its rows are those of the last commit, and more.
      val held = spark.read.format("statemark").options(options(level, "what" -> "committedOffset"))
        .load().head()
      assert(held.getString(2) == "0" && held.getAs[Boolean]("and_more"))
      assert(held.getAs[Boolean]("held"))
    }
    query.foreach(_.processAllAvailable())
    // One of the two stores has not begun the batch.
    val goesOn = new Semaphore(0)
    val isAt = new Semaphore(0)
    atCommit = { phase =>
      val waits = if (TaskContext.getPartitionId() == 0) CommitPhase.BatchSerialized
      else CommitPhase.StoreLoaded
      if (phase == waits) {
        isAt.release()
        goesOn.acquire()
      }
    }
    counts.start(checkpoint, "second")
    counts.input.addData(3)
    isAt.acquire(2)
    try {
      val next = "positionBound" -> """["2"]"""
      unmet(values(level, next))
      assert(values(level, next, "partition" -> "0").subsetOf(Set(1, 2, 3)))
    } finally {
      atCommit = CommitObserver.none
      goesOn.release(2)
    }
    query.foreach(_.processAllAvailable())
    assert(values("positionBound" -> """["2"]""") == Set(1, 2, 3))
  }

  /** Writes other source offsets into a base store that no process uses. */
  private def plant(home: Path, position: Position): Unit = {
    val base = home.resolve(StoreDirectory.BaseName).toString
    val names = RocksDB.listColumnFamilies(new Options(), base).asScala
    val handles = new java.util.ArrayList[ColumnFamilyHandle]()
    val options = new DBOptions()
    val db =
      RocksDB.open(options, base, names.map(new ColumnFamilyDescriptor(_)).asJava, handles)
    val offsets = handles.get(names.indexWhere(new String(_) == OffsetsColumnFamily.Name))
    db.put(
      offsets,
      OffsetsColumnFamily.PositionKey,
      OffsetsColumnFamily.encodePosition(Some(position))
    )
    db.flush(new FlushOptions().setWaitForFlush(true), handles)
    handles.forEach(_.close())
    db.close()
    options.close()
  }
}
