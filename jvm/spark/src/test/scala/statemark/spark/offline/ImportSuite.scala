package statemark.spark.offline

import java.nio.file.Files
import org.apache.spark.sql.{Column, DataFrame}
import org.apache.spark.sql.functions._
import org.apache.spark.sql.streaming.{GroupState, GroupStateTimeout, OutputMode}
import statemark.spark.Tmpfs
import statemark.spark.checkpoint.OperatorFacts
import statemark.spark.local.LocalDirectory
import statemark.spark.conf.ProviderClass
import statemark.spark.offline.checkpoint.QueryCheckpoint
import statemark.spark.offline.cli.ExitCode
import statemark.spark.offline.ownership.Ownership
import statemark.spark.offline.switching.{StateImport, SwitchCommand, UndescribedStores}
import statemark.spark.process.JvmState
import statemark.transaction.CommitPhase

final case class ImportEvent(key: Int, ts: java.sql.Timestamp)

/** A query that began on Spark's HDFS-backed provider goes on under Statemark, and then under Spark's
  * RocksDB provider, as if nothing had happened: every operator that the first one supports.
  * `STATEMARK_IMPORT_KEYS=1000000` gives each that many keys.
  */
class ImportSuite extends OfflineSuite {
  import ImportSuite._

  private val append = OutputMode.Append()
  private val update = OutputMode.Update()
  private val late = "10 seconds"

  private def join(events: DataFrame, how: String): DataFrame = {
    val left = events.withWatermark("ts", late).as("l")
    val right = events.filter(col("key") % 3 =!= 0)
      .selectExpr("key AS other", "ts AS seen").withWatermark("seen", late).as("r")
    val close: Column = col("key") === col("other") && col("seen") >= col("ts") &&
      col("seen") <= col("ts") + expr("INTERVAL 5 SECONDS")
    left.join(right, close, how)
  }

  private val operators: Seq[Operator] = Seq(
    Operator("aggregation", update)(_.groupBy("key").agg(count("*"), max("ts"))),
    Operator("aggregation without a key", OutputMode.Complete())(_.groupBy().count()),
    Operator(
      "aggregation in state format 1",
      update,
      "spark.sql.streaming.aggregation.stateFormatVersion" -> "1"
    )(_.groupBy("key").count()),
    Operator("windowed aggregation", append)(
      _.withWatermark("ts", late).groupBy(window(col("ts"), "5 seconds"), col("key")).count()
    ),
    Operator("deduplication", append)(_.dropDuplicates("key")),
    Operator("deduplication within a watermark", append)(
      _.withWatermark("ts", late).dropDuplicatesWithinWatermark("key")
    ),
    Operator("session windows", append)(
      _.withWatermark(
        "ts",
        late
      ).groupBy(session_window(col("ts"), "3 seconds"), col("key")).count()
    ),
    Operator("flatMapGroupsWithState", append)(running),
    Operator(
      "flatMapGroupsWithState in state format 1",
      append,
      "spark.sql.streaming.flatMapGroupsWithState.stateFormatVersion" -> "1"
    )(running),
    Operator("limit", append)(_.limit(11)),
    Operator(
      "two operators, rows with checksums, another codec",
      append,
      "spark.sql.streaming.stateStore.rowChecksum.enabled" -> "true",
      "spark.sql.streaming.stateStore.compression.codec" -> "zstd"
    )(
      _.withWatermark("ts", late).dropDuplicatesWithinWatermark("key", "ts")
        .groupBy(window(col("ts"), "5 seconds")).count()
    )
  ) ++ (for ((format, how) <- Seq("1" -> "inner", "2" -> "inner", "2" -> "left_outer"))
    yield Operator(
      s"$how join in state format $format",
      append,
      "spark.sql.streaming.join.stateFormatVersion" -> format
    )(join(_, how)))

  for (operator <- operators) test(operator.name) {
    import operator.{build, mode, name}
    val settings = operator.settings.toMap
    val wanted = new Job(build, mode, directory.resolve("reference"), settings)
      .run(ProviderClass.Hdfs, crowded: _*).output
    assert(wanted.values.exists(_.nonEmpty))
    val job = new Job(build, mode, checkpoint, settings)
    // The session's own provider counts for nothing once the checkpoint pins one.
    job.run(ProviderClass.Hdfs, crowded.take(3): _*)
    requireKnownWithoutMetadata()
    assert(switchTo(ProviderClass.Statemark).text.contains("imported version 3 of the state"))
    job.run(ProviderClass.Hdfs, crowded.slice(3, 5): _*)
    assert(job.metrics.exists(_.startsWith("statemark")))
    assert(switchTo(ProviderClass.RocksDb).text.contains("offset entries changed: 2 to 4, of 5"))
    job.run(ProviderClass.Hdfs, crowded.drop(5): _*)
    assert(
      job.metrics.exists(_.startsWith("rocksdb")) && !job.metrics.exists(_.startsWith("statemark"))
    )
    assert(job.output == wanted)
    assert(pinned() == (0 to 6).map(b => b.toLong -> provider(b)).toMap)
    // Retained batches can still be read, by the provider that their entry names.
    if (!name.contains("join")) for (batch <- Seq(1, 2, 6))
      spark.read.format("statestore").option("batchId", batch.toString).load(checkpoint.toString)
        .collect(): Unit
  }

  /** Fails unless what Spark's metadata tells of the stores is known without it. */
  private def requireKnownWithoutMetadata(): Unit = {
    val opened = QueryCheckpoint.open(checkpoint.toString, context(new RecordingConsole))
    val described = for {
      operator <- opened.operators(opened.latestOffset.batch)
      store <- OperatorFacts.storesOf(operator)
    } yield (operator.operatorInfo.operatorId, store.storeName) -> store.numColsPrefixKey
    assert(described.nonEmpty)
    assert(UndescribedStores.problem(described.map(_._1).toSet, Set.empty).isEmpty)
    for (((operator, store), columns) <- described) {
      val schema =
        opened.schemas(operator, store).getOrElse(fail(s"$operator $store has no schema"))
      assert(UndescribedStores.prefixColumns(schema) == columns, s"$operator, $store")
    }
  }

  private def provider(batch: Int): ProviderClass =
    if (batch < 2) ProviderClass.Hdfs else ProviderClass.RocksDb

  test("rows read at the imported version are those that were there before") {
    val job = new Job(_.groupBy("key").count(), update, checkpoint)
    job.run(ProviderClass.Hdfs, batches.take(4): _*)
    def rows: Seq[String] =
      spark.read.format(
        "statestore"
      ).load(checkpoint.toString).collect().map(_.toString).sorted.toSeq
    val before = rows
    val out = switchTo(ProviderClass.RocksDb)
    assert(rows == before && before.nonEmpty)
    assert(out.text.contains(
      s"imported version 4 of the state: $partitions stores, ${before.length} rows"
    ))
    assert(out.progressed.last.contains(s"imported $partitions of $partitions stores"))
  }

  test("a batch that was not committed is run again from the state before it") {
    val job = new Job(_.groupBy("key").count(), update, checkpoint)
    job.run(ProviderClass.Hdfs, batches.take(4): _*)
    Files.delete(checkpoint.resolve("commits/3"))
    Files.deleteIfExists(checkpoint.resolve("commits/.3.crc")): Unit
    val refused =
      intercept[statemark.common.InvalidInputException](switchTo(ProviderClass.Statemark))
    assert(refused.getMessage.contains("cannot be known"))
    assert(pinned().values.toSet == Set[ProviderClass](ProviderClass.Hdfs))
    val out = switchTo(ProviderClass.Statemark, "--force").text
    assert(out.contains("imported version 3 of the state") && out.contains("changed: 2 to 3, of 4"))
    job.run(ProviderClass.Hdfs, batches(4))
    val wanted = new Job(_.groupBy("key").count(), update, directory.resolve("reference"))
      .run(ProviderClass.Hdfs, batches.take(5): _*).output
    assert(job.output == wanted)
  }

  test("a checkpoint without a committed batch has no state to import") {
    val job = new Job(_.groupBy("key").count(), update, checkpoint)
    job.run(ProviderClass.Hdfs, batches.head)
    Files.delete(checkpoint.resolve("commits/0"))
    Files.deleteIfExists(checkpoint.resolve("commits/.0.crc")): Unit
    assert(switchTo(ProviderClass.Statemark, "--force").text.contains("no state to import"))
    job.run(ProviderClass.Hdfs, batches(1))
    assert(job.metrics.exists(_.startsWith("statemark")))
    assert(job.output.keySet == Set(0L, 1L))
  }

  test("a full checkpoint: the command says so, and with room it does its work") {
    val disk = Tmpfs.mount(checkpoint, "size=4m,nr_inodes=4000")
    assume(disk.isDefined, "needs mount")
    val job = new Job(_.groupBy("key").count(), update, checkpoint)
    def run(): RecordingConsole = {
      val console = new RecordingConsole
      val args = Seq(checkpoint.toString, "--to", "statemark", "--observe", "0")
      val code = Main.attempt(console, isVerbose = false, asJson = false) {
        CommandLine.run(SwitchCommand, args, context(console))
      }
      val isDone = pinned()(3) == ProviderClass.Statemark
      assert(code == (if (isDone) ExitCode.Ok else ExitCode.Failed))
      disk.foreach(_.empty())
      console
    }
    def assertFull(console: RecordingConsole, file: String): Unit = {
      val said = console.progressed.mkString("\n")
      assert(said.contains("statemark: the command failed\n"))
      assert(said.contains(s"\n  reason: The checkpoint location is full: file:$checkpoint/$file"))
      assert(said.contains("\n  remedy: Make room there") && said.contains("Nothing is lost"))
    }
    try {
      job.run(ProviderClass.Hdfs, batches.take(4): _*)
      disk.foreach(_.fill())
      assertFull(run(), "_statemark/owner-")
      JvmState.observer.set { phase =>
        if (phase == CommitPhase.BatchSerialized) disk.foreach(_.fill())
      }
      assertFull(run(), "state/0/")
      JvmState.clear()
      assert(run().text.contains("imported version 4 of the state"))
      job.run(ProviderClass.Hdfs, batches.drop(4): _*)
      val wanted = new Job(_.groupBy("key").count(), update, directory.resolve("reference"))
        .run(ProviderClass.Hdfs, batches: _*).output
      assert(job.output == wanted)
    } finally {
      JvmState.clear()
      spark.streams.active.foreach(_.stop())
      disk.foreach(_.unmount())
    }
  }

  private def deleteMetadata(operator: Int): Unit = {
    val folder = checkpoint.resolve(s"state/$operator/_metadata")
    Files.delete(folder.resolve("metadata"))
    Files.deleteIfExists(folder.resolve(".metadata.crc")): Unit
  }

  test("without metadata, as before Spark 4.0, what is missing is named") {
    val twice = new Job(
      _.withWatermark("ts", late).dropDuplicatesWithinWatermark("key", "ts")
        .groupBy(window(col("ts"), "5 seconds")).count(),
      append,
      checkpoint
    )
    twice.run(ProviderClass.Hdfs, batches.take(3): _*)
    def refused(): String =
      intercept[statemark.common.InvalidInputException](switchTo(
        ProviderClass.Statemark
      )).getMessage
    // The metadata of one operator is lost: its files say enough.
    deleteMetadata(0)
    assert(switchTo(ProviderClass.Statemark, "--dry-run").text.contains("would be switched"))
    deleteMetadata(1)
    val strange = checkpoint.resolve("state/0/0/strange")
    Files.createDirectory(strange)
    assert(refused().contains("no operator of a Spark before 4.0 has the stores default, strange"))
    Files.delete(strange)
    Files.move(checkpoint.resolve("state/0"), directory.resolve("kept"))
    assert(refused().contains("the directories of the operators 0 are missing"))
    Files.move(directory.resolve("kept"), checkpoint.resolve("state/0"))
    val schema = checkpoint.resolve("state/0/0/_metadata/schema")
    Files.move(schema, directory.resolve("schema"))
    assert(refused().contains("if the query last ran on a Spark before 3.1"))
  }

  test("a join without metadata needs all of its stores") {
    new Job(join(_, "inner"), append, checkpoint).run(ProviderClass.Hdfs, batches.take(3): _*)
    deleteMetadata(0)
    for (p <- 0 until partitions)
      LocalDirectory.deleteTree(checkpoint.resolve(s"state/0/$p/left-keyToNumValues").toFile)
    val refused =
      intercept[statemark.common.InvalidInputException](switchTo(
        ProviderClass.Statemark
      )).getMessage
    assert(refused.contains("the stores left-keyToNumValues of the join, operator 0, are missing"))
  }

  test("leftovers of an import that was not finished disturb neither provider") {
    val job = new Job(_.groupBy("key").count(), update, checkpoint)
    job.run(ProviderClass.Hdfs, batches.take(4): _*)
    val opened = QueryCheckpoint.open(checkpoint.toString, context(new RecordingConsole))
    val console = new RecordingConsole
    Ownership.during(opened)(new StateImport(opened, 4, context(console)).run(_)): Unit
    // A later snapshot than the import will write, as a roll back by hand leaves it.
    Files.copy(checkpoint.resolve("state/0/0/4.zip"), checkpoint.resolve("state/0/0/8.zip"))
    job.run(ProviderClass.Hdfs, batches.slice(4, 6): _*)
    switchTo(ProviderClass.Statemark): Unit
    assert(!Files.exists(checkpoint.resolve("state/0/0/8.zip")))
    assert(Files.exists(checkpoint.resolve("_statemark/switch-1/aside/state/0/0/8.zip")))
    assert(!Files.exists(checkpoint.resolve("state/0/0/4.zip")))
    job.run(ProviderClass.Hdfs, batches.drop(6): _*)
    val wanted = new Job(_.groupBy("key").count(), update, directory.resolve("reference"))
      .run(ProviderClass.Hdfs, batches: _*).output
    assert(job.output == wanted)
  }
}

object ImportSuite {
  private final case class Operator(name: String, mode: OutputMode, settings: (String, String)*)(
      val build: DataFrame => DataFrame
  )

  /** Seven batches with keys that come back, duplicates, and gaps in time. */
  private val batches: Seq[Seq[(Int, Long)]] = Seq.tabulate(7) { b =>
    Seq.tabulate(30)(i => ((i * (b + 3)) % 17, b * 7L + i % 6))
  }

  /** The same among many keys, of which a few come back in each later batch. */
  private val crowded: Seq[Seq[(Int, Long)]] = {
    val keys = sys.env.get("STATEMARK_IMPORT_KEYS").fold(2000)(_.toInt)
    batches.zipWithIndex.map { case (rows, b) =>
      val others = if (b == 1) 0 until keys else if (b > 1) b until keys by 500 else Nil
      rows ++ others.map(k => (100 + k, b * 7L + k % 6))
    }
  }

  private def running(events: DataFrame): DataFrame = {
    import events.sparkSession.implicits._
    events.withWatermark("ts", "10 seconds").as[ImportEvent].groupByKey(_.key)
      .flatMapGroupsWithState[Long, (Int, Long)](
        OutputMode.Append(),
        GroupStateTimeout.EventTimeTimeout()
      ) { (key: Int, rows: Iterator[ImportEvent], state: GroupState[Long]) =>
        if (state.hasTimedOut) {
          state.remove()
          Iterator((key, -1L))
        } else {
          val total = state.getOption.getOrElse(0L) + rows.length
          state.update(total)
          state.setTimeoutTimestamp(state.getCurrentWatermarkMs() + 15000)
          Iterator((key, total))
        }
      }.toDF()
  }
}
