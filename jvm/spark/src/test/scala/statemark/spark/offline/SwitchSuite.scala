package statemark.spark.offline

import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Path => JPath}
import java.util.zip.{ZipEntry, ZipOutputStream}
import org.apache.spark.sql.execution.streaming.state.RocksDBLoader
import org.apache.spark.sql.streaming.OutputMode
import org.json4s.{JArray, JBool, JField, JInt, JObject}
import org.json4s.jackson.JsonMethods.parse
import org.rocksdb.{ColumnFamilyDescriptor, Options, RocksDB}
import scala.jdk.CollectionConverters._
import scala.util.Using
import statemark.common.InvalidInputException
import statemark.spark.conf.ProviderClass
import statemark.spark.offline.switching.SwitchCommand

/** `switch` between the two providers that share a format, and what it refuses. */
class SwitchSuite extends OfflineSuite {
  import ProviderClass.{Hdfs, RocksDb, Statemark}

  private val batches: Seq[Seq[(Int, Long)]] =
    Seq.tabulate(6)(b => Seq.tabulate(20)(i => ((i * (b + 2)) % 13, b.toLong)))

  private def counts(at: JPath = checkpoint): Job =
    new Job(_.groupBy("key").count(), OutputMode.Update(), at)

  private lazy val names = Seq(Statemark, RocksDb)

  /** Every file below the offset log, by name, hidden ones too. */
  private def offsetFiles(): Map[String, Seq[Byte]] = {
    val list = Files.list(checkpoint.resolve("offsets"))
    try list.iterator.asScala.map(p => p.getFileName.toString -> Files.readAllBytes(p).toSeq).toMap
    finally list.close()
  }

  private def refused(to: ProviderClass, more: String*): String =
    intercept[InvalidInputException](switchTo(to, more: _*)).getMessage

  private def edit(batch: Int, change: String => String): Unit = {
    val path = checkpoint.resolve(s"offsets/$batch")
    Files.write(path, change(Files.readString(path)).getBytes(UTF_8))
    Files.deleteIfExists(checkpoint.resolve(s"offsets/.$batch.crc")): Unit
  }

  for (from <- Seq(Statemark, RocksDb); changelogs <- Seq("true", "false"))
    test(s"there and back from $from, Spark's changelogs $changelogs") {
      val to = names.filterNot(_ == from).head
      val wanted = counts(directory.resolve("reference")).run(from, batches: _*).output
      val job = new Job(
        _.groupBy("key").count(),
        OutputMode.Update(),
        checkpoint,
        Map("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled" -> changelogs)
      )
      job.run(from, batches.take(2): _*)
      val before = offsetFiles()
      val out = switchTo(to).text
      assert(out.contains(s"was switched from $from to $to"))
      assert(out.contains("offset entries changed: 0 to 1, of 2"))
      assert(out.contains("the query is taken for stopped: the last batch (1) is committed"))
      assert(pinned().values.toSet == Set[ProviderClass](to))
      // The backup has the bytes as they were.
      for (b <- Seq("0", "1")) assert(
        Files.readAllBytes(checkpoint.resolve(s"_statemark/switch-1/offsets/$b")).toSeq == before(b)
      )
      assert(Files.exists(checkpoint.resolve("_statemark/switch-1/finished")))
      for (b <- 0 to 1)
        spark.read.format("statestore").option("batchId", b.toString).load(checkpoint.toString)
          .collect(): Unit
      job.run(from, batches.slice(2, 4): _*)
      assert(job.metrics.exists(_.startsWith("statemark")) == (to == Statemark))
      switchTo(from): Unit
      job.run(to, batches.drop(4): _*)
      assert(job.metrics.exists(_.startsWith("statemark")) == (from == Statemark))
      assert(job.output == wanted)
    }

  test("back at once gives the bytes that were there") {
    counts().run(RocksDb, batches.take(2): _*)
    val before = offsetFiles().filter(!_._1.startsWith("."))
    switchTo(Statemark): Unit
    assert(offsetFiles().filter(!_._1.startsWith(".")) != before)
    switchTo(RocksDb): Unit
    assert(offsetFiles().filter(!_._1.startsWith(".")) == before)
  }

  for (from <- Seq(RocksDb, Hdfs))
    test(s"a dry run from $from says what a switch does, and does nothing") {
      counts().run(from, batches.take(2): _*)
      val before = offsetFiles()
      val shown = switchTo(Statemark, "--dry-run").results
      val JObject(dry) = parse(switchTo(Statemark, "--dry-run", "--json").text): @unchecked
      assert(offsetFiles() == before && !Files.exists(checkpoint.resolve("_statemark")))
      assert(shown.head.endsWith(s" would be switched from $from to $Statemark"))
      assert(shown.last == "nothing was done")
      val JObject(done) = parse(switchTo(Statemark, "--json").text): @unchecked
      def plan(of: List[JField]) = of.toMap.view.filterKeys(
        Set(
          "schema",
          "checkpoint",
          "from",
          "to",
          "changedBatches",
          "leftBatches",
          "importedVersion"
        )
      ).toMap
      assert(dry.head == "schema" -> JInt(1) && plan(dry) == plan(done))
      assert(dry.toMap.apply("dryRun") == JBool(true) && done.toMap.apply("dryRun") == JBool(false))
      val JObject(again) = parse(switchTo(Statemark, "--json").text): @unchecked
      assert(again.toMap.apply("changedBatches") == JArray(Nil))
    }

  test("the manifest is in the format that FORMAT.md describes") {
    counts().run(Hdfs, batches.take(2): _*)
    Files.createFile(checkpoint.resolve("state/0/1/7.zip"))
    switchTo(Statemark): Unit
    val manifest = Files.readString(checkpoint.resolve("_statemark/switch-1/manifest.json"))
      .replaceFirst("\"queryId\":\"[0-9a-f-]{36}\"", "\"queryId\":\"ID\"")
      .replaceFirst("\"startedAtMs\":\\d{13}", "\"startedAtMs\":0")
      .replaceFirst("\"mark\":\"[0-9a-f-]{36}\"", "\"mark\":\"MARK\"")
    val golden = getClass.getResourceAsStream("/golden/switch-manifest-v2.json")
    assert(manifest == new String(golden.readAllBytes(), UTF_8).trim)
  }

  test("already there") {
    counts().run(RocksDb, batches.take(2): _*)
    val before = offsetFiles()
    val console = switchTo(RocksDb)
    assert(console.text.contains("is on rocksdb already; nothing was changed"))
    assert(console.progressed.isEmpty && offsetFiles() == before)
    assert(!Files.exists(checkpoint.resolve("_statemark")))
  }

  test("entries that differ are said to differ") {
    counts().run(RocksDb, batches.take(3): _*)
    edit(1, _.replace(RocksDb.className, Statemark.className))
    val out = switchTo(Statemark).text
    assert(out.contains("offset entries changed: 0, 2, of 3"))
    assert(pinned().values.toSet == Set[ProviderClass](Statemark))
  }

  test("a query that runs is refused, and not with --force") {
    val job = counts()
    job.run(RocksDb, batches.head)
    val query = job.start(RocksDb)
    try {
      val before = offsetFiles()
      def meanwhile(): Unit = {
        job.add(batches(1): _*)
        query.processAllAvailable()
      }
      val args = Seq(checkpoint.toString, "--to", "statemark")
      val failure = intercept[InvalidInputException](
        CommandLine.run(SwitchCommand, args, context(new RecordingConsole, () => meanwhile()))
      )
      assert(failure.getMessage.contains("runs\n  reason: files changed while they were watched: "))
      assert(offsetFiles().filter(f => before.contains(f._1)) == before)
    } finally query.stop()
  }

  test(
    "a query taken for stopped that only waits loses nothing: its next batch pins its own class"
  ) {
    val wanted = counts(directory.resolve("reference")).run(RocksDb, batches.take(4): _*).output
    val job = counts()
    val query = job.start(RocksDb)
    try {
      job.add(batches.head: _*)
      query.processAllAvailable()
      switchTo(Statemark): Unit
      assert(pinned() == Map(0L -> Statemark))
      job.add(batches(1): _*)
      query.processAllAvailable()
    } finally query.stop()
    assert(pinned() == Map(0L -> Statemark, 1L -> RocksDb))
    job.run(Statemark, batches(2))
    assert(!job.metrics.exists(_.startsWith("statemark")))
    switchTo(Statemark): Unit
    job.run(RocksDb, batches(3))
    assert(job.metrics.exists(_.startsWith("statemark")) && job.output == wanted)
  }

  test("an import from a query that only waits loses nothing either, and is made again") {
    val wanted = counts(directory.resolve("reference")).run(Hdfs, batches.take(4): _*).output
    val job = counts()
    val query = job.start(Hdfs)
    try {
      job.add(batches.head: _*)
      query.processAllAvailable()
      switchTo(Statemark): Unit
      job.add(batches(1): _*)
      query.processAllAvailable()
    } finally query.stop()
    assert(pinned() == Map(0L -> Statemark, 1L -> Hdfs))
    job.run(Statemark, batches(2))
    val out = switchTo(Statemark).text
    assert(out.contains("imported version 3"))
    job.run(Hdfs, batches(3))
    assert(job.metrics.exists(_.startsWith("statemark")) && job.output == wanted)
    assert(pinned() == Map(0L -> Statemark, 1L -> Hdfs, 2L -> Statemark, 3L -> Statemark))
    for (b <- 0 to 3)
      spark.read.format("statestore").option("batchId", b.toString).load(checkpoint.toString)
        .collect(): Unit
  }

  test("a batch in flight is refused, and switched with --force") {
    val job = counts().run(RocksDb, batches.take(2): _*)
    Files.delete(checkpoint.resolve("commits/1"))
    Files.deleteIfExists(checkpoint.resolve("commits/.1.crc")): Unit
    val message = refused(Statemark)
    assert(message.contains("cannot be known") && message.contains("--force"))
    assert(switchTo(Statemark, "--force").text.contains("--force was given although batch 1 is in"))
    job.run(RocksDb, batches(2))
    val wanted = counts(directory.resolve("reference")).run(RocksDb, batches.take(3): _*).output
    assert(job.output == wanted)
  }

  for (done <- 0 to 2)
    test(s"a switch that was killed after $done of 2 entries is settled by the next") {
      val job = counts().run(RocksDb, batches.take(2): _*)
      val before = offsetFiles().filter(!_._1.startsWith("."))
      switchTo(Statemark): Unit
      // As the kill leaves it: the newest entries unchanged, no mark.
      Files.delete(checkpoint.resolve("_statemark/switch-1/finished"))
      for (b <- done until 2) edit(b, _ => new String(before(b.toString).toArray, UTF_8))
      val out = switchTo(RocksDb).text
      val how =
        if (done == 2) "had changed every entry" else "was undone: its entries are as they were"
      assert(out.linesIterator.next().contains(how))
      assert(offsetFiles().filter(!_._1.startsWith(".")) == before)
      job.run(Statemark, batches(2))
      assert(!job.metrics.exists(_.startsWith("statemark")))
    }

  test("an entry that somebody else changed after a kill is left alone") {
    counts().run(RocksDb, batches.take(2): _*)
    switchTo(Statemark): Unit
    Files.delete(checkpoint.resolve("_statemark/switch-1/finished"))
    edit(0, _.replace("\"batchWatermarkMs\":0", "\"batchWatermarkMs\":1"))
    val before = offsetFiles()
    assert(refused(RocksDb).contains("neither what it was nor what it should become"))
    assert(offsetFiles() == before)
  }

  for {
    (name, spoil, message) <- Seq[(String, () => Unit, String)](
      (
        "an unknown provider",
        () => edit(0, _.replace(RocksDb.className, "com.example.Provider")),
        "pins the state store provider com.example.Provider"
      ),
      (
        "an entry without a provider",
        () => edit(0, _.replace("stateStore.providerClass", "stateStore.other")),
        "pins no state store provider"
      ),
      ("an unknown version of the log", () => edit(1, _.replaceFirst("v1", "v9")), "is 'v9'"),
      (
        "a file in a store that nobody knows",
        () => Files.createFile(checkpoint.resolve("state/0/1/1.new")): Unit,
        "holds 1 files that this command does not know"
      ),
      (
        "a file in the log that nobody knows",
        () => Files.createFile(checkpoint.resolve("offsets/1.compact")): Unit,
        "holds 1 files that this command does not know"
      ),
      (
        "logs that disagree",
        () => Files.delete(checkpoint.resolve("offsets/1")),
        "the logs of"
      )
    )
  } test(s"refused, and nothing is changed: $name") {
    counts().run(RocksDb, batches.take(2): _*)
    spoil()
    val before = offsetFiles()
    assert(refused(Statemark, "--force").contains(message))
    assert(offsetFiles() == before && !Files.exists(checkpoint.resolve("_statemark")))
  }

  test("a snapshot with a column family of its own is not left to Spark's provider") {
    counts().run(Statemark, batches.take(2): _*)
    RocksDBLoader.loadLibrary()
    val local = directory.resolve("db")
    Using.Manager { use =>
      val db = use(RocksDB.open(use(new Options().setCreateIfMissing(true)), local.toString))
      use(db.createColumnFamily(new ColumnFamilyDescriptor("private".getBytes(UTF_8)))): Unit
    }.get
    Using.Manager { use =>
      val out = Files.newOutputStream(checkpoint.resolve("state/0/1/2.zip"))
      val zip = use(new ZipOutputStream(out))
      use(Files.list(local)).iterator.asScala
        .filter(_.getFileName.toString.matches("CURRENT|MANIFEST-.*")).foreach { file =>
          zip.putNextEntry(new ZipEntry(file.getFileName.toString))
          Files.copy(file, zip): Unit
        }
    }.get
    val before = offsetFiles()
    val message = refused(RocksDb)
    assert(message.contains("/state/0/1/2.zip") && message.contains("default, private"))
    assert(offsetFiles() == before && !Files.exists(checkpoint.resolve("_statemark")))
  }

  test("what is no checkpoint of a stateful query") {
    assert(refused(Statemark).contains("does not exist"))
    Files.createDirectories(checkpoint)
    assert(refused(Statemark).contains("is not the checkpoint of a query"))
    Files.writeString(checkpoint.resolve("metadata"), "{\"id\":\"x\"}")
    assert(refused(Statemark).contains("stateless"))
    Files.createDirectories(checkpoint.resolve("state/0/0"))
    assert(refused(Statemark).contains("has no batch yet"))
    intercept[InvalidInputException](
      CommandLine.run(
        SwitchCommand,
        Seq(checkpoint.toString, "--to", "hdfs"),
        context(new RecordingConsole)
      )
    )
  }
}
