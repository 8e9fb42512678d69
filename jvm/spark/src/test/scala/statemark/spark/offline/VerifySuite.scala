package statemark.spark.offline

import java.io.{ByteArrayInputStream, ByteArrayOutputStream}
import java.nio.file.{Files, Path, StandardCopyOption}
import java.util.UUID
import java.util.zip.{ZipEntry, ZipInputStream, ZipOutputStream}
import org.apache.spark.sql.{DataFrame, Encoders}
import org.apache.spark.sql.streaming._
import org.json4s.jackson.JsonMethods.parse
import org.json4s.JString
import org.scalatest.funsuite.AnyFunSuite
import scala.concurrent.{Await, Future}
import scala.concurrent.duration.Duration
import scala.concurrent.ExecutionContext.Implicits.global
import statemark.spark.{DeniedFileSystem, Line}
import statemark.spark.conf.ProviderClass
import statemark.spark.offline.cli.ExitCode
import statemark.spark.offline.verify.{FindingKind, VerifyCommand}

/** `verify` is silent on whatever Spark and Statemark write, and finds each fault that is planted. */
class VerifySuite extends AnyFunSuite with QueryCheckpoints {
  private val lively = Map(
    s"${prefix}minDeltasForSnapshot" -> "2",
    s"${prefix}maintenanceInterval" -> "50ms"
  )
  private val changelogs = s"${prefix}rocksdb.changelogCheckpointing.enabled"
  private val format = s"${prefix}checkpointFormatVersion"
  private val few = Map(
    "spark.sql.streaming.minBatchesToRetain" -> "2",
    "spark.sql.streaming.ratioExtraSpaceAllowedInCheckpoint" -> "0"
  )

  private def assertHealthy(checkpoint: Path, words: String*): Unit = {
    val (code, lines) = verify(checkpoint, words: _*)
    assert(
      code == ExitCode.Ok && lines.length == 1 && lines.head.startsWith("ok: "),
      lines.mkString("\n")
    )
  }

  // ---- healthy

  private val join: DataFrame => DataFrame = { in =>
    val left = in.selectExpr("value AS l")
    left.join(in.selectExpr("value AS r"), org.apache.spark.sql.functions.expr("l = r"))
  }

  for {
    provider <- Seq(ProviderClass.Statemark, ProviderClass.RocksDb)
    version <- Seq("1", "2")
    hasChangelogs <- Seq("true", "false")
  } test(s"healthy: $provider, format v$version, Spark's changelogs $hasChangelogs") {
    val checkpoint = newDirectory()
    val settings = lively ++ few ++ Map(changelogs -> hasChangelogs, format -> version)
    runQuery(checkpoint, provider, settings, 4)
    runQuery(checkpoint, provider, settings, 2)
    assertHealthy(checkpoint)
    assertHealthy(checkpoint, "--deep")
  }

  test("healthy: the HDFS-backed provider, with row checksums") {
    val checkpoint = newDirectory()
    val settings = lively + (s"${prefix}rowChecksum.enabled" -> "true")
    runQuery(checkpoint, ProviderClass.Hdfs, settings, 5)
    assertHealthy(checkpoint)
  }

  for (version <- Seq("2", "3") if version == "2" || Line.hasStoreOf41)
    test(s"healthy: a join with stores of state format $version, ids and row checksums") {
      val checkpoint = newDirectory()
      val settings = lively ++ Map(
        format -> "2",
        "spark.sql.streaming.join.stateFormatVersion" -> version,
        "spark.sql.streaming.join.stateFormatV4.enabled" -> "false",
        s"${prefix}rowChecksum.enabled" -> "true"
      )
      for (provider <- Seq(ProviderClass.Statemark, ProviderClass.RocksDb)) {
        val own = checkpoint.resolve(provider.shortName)
        runQuery(own, provider, settings, 4, join)
        assertHealthy(own, "--deep")
      }
    }

  test("healthy: batches that ran again, and partitions beyond the current number") {
    val checkpoint = newDirectory()
    val settings = lively ++ Map(format -> "2", changelogs -> "true")
    runQuery(checkpoint, ProviderClass.RocksDb, settings, 4)
    // As if the query had died before it committed its last batch.
    Files.delete(checkpoint.resolve("commits/3"))
    Files.deleteIfExists(checkpoint.resolve("commits/3.crc"))
    Files.deleteIfExists(checkpoint.resolve("commits/.3.crc"))
    runQuery(checkpoint, ProviderClass.RocksDb, settings, 2)
    assert(names(checkpoint.resolve("state/0/0"), ".changelog").count(_.startsWith("4_")) == 2)
    Files.createDirectories(checkpoint.resolve("state/0/2"))
    Files.copy(
      checkpoint.resolve("state/0/0").resolve(names(
        checkpoint.resolve("state/0/0"),
        ".changelog"
      ).last),
      checkpoint.resolve("state/0/2/1.changelog")
    )
    assertHealthy(checkpoint, "--deep")
  }

  for (version <- Seq("1", "2")) test(s"healthy: a query that runs, format v$version") {
    val checkpoint = newDirectory()
    val settings = lively ++ few ++ Map(
      changelogs -> "true",
      format -> version,
      s"${prefix}maintenanceInterval" -> "20ms"
    )
    runQuery(checkpoint, ProviderClass.Statemark, settings, 1)
    val run = Future(runQuery(checkpoint, ProviderClass.Statemark, settings, 10))
    var looks = 0
    while (!run.isCompleted) {
      val (code, lines) = command(VerifyCommand, checkpoint, Waiters.short)
      assert(code == ExitCode.Ok, lines.mkString("\n"))
      looks += 1
    }
    Await.result(run, Duration.Inf)
    assert(looks > 3)
  }

  private def counting: DataFrame => DataFrame = { in =>
    import spark.implicits._
    in.as[Int].groupByKey(identity)
      .transformWithState(new CountEach, TimeMode.None(), OutputMode.Append()).toDF()
  }

  // ---- planted faults

  private lazy val v1: Path = written("1")
  private lazy val v2: Path = written("2")

  private def written(version: String): Path = {
    val checkpoint = newDirectory()
    val settings = Map(
      changelogs -> "true",
      format -> version,
      s"${prefix}minDeltasForSnapshot" -> "3",
      s"${prefix}maintenanceInterval" -> "50ms",
      s"${prefix}rowChecksum.enabled" -> "true"
    )
    // Without maintenance at the end, a snapshot is never the newest file.
    runQuery(
      checkpoint,
      ProviderClass.Statemark,
      settings,
      8,
      between = () => Waiters.short.pause(0)
    )
    val store = checkpoint.resolve("state/0/0")
    assert(names(store, ".zip").nonEmpty, names(store, ""))
    assertHealthy(copyOf(checkpoint), "--deep")
    checkpoint
  }

  /** @param plant damages a store and says which file of it must be named */
  private def fault(name: String, kind: FindingKind, base: => Path, words: String*)(
      plant: Path => String
  ): Unit = test(s"found: $name") {
    val checkpoint = copyOf(base)
    val file = plant(checkpoint.resolve("state/0/0"))
    val (code, lines) = verify(checkpoint, words :+ "--json": _*)
    val found = parse(lines.mkString) \ "findings"
    assert(code == ExitCode.Findings)
    val pairs = found.children.map(f => (f \ "file", f \ "kind"))
    assert(pairs.contains((JString(s"state/0/0/$file"), JString(kind.name))), lines.mkString)
    val (_, text) = verify(checkpoint, words: _*)
    assert(text.exists(
      _.startsWith(s"state/0/0/$file: ${kind.name}: ")
    ) && text.last.contains(" findings: "))
  }

  private def flip(file: Path, at: Int => Int, mask: Int = 0x40): Unit = {
    val bytes = Files.readAllBytes(file)
    bytes(at(bytes.length)) = (bytes(at(bytes.length)) ^ mask).toByte
    rewrite(file, bytes)
  }

  private def rewrite(file: Path, bytes: Array[Byte]): Unit = {
    val modified = Files.getLastModifiedTime(file)
    Files.write(file, bytes)
    Files.setLastModifiedTime(file, modified): Unit
  }

  private def newest(store: Path, suffix: String): String = names(store, suffix).last
  private def sst(store: Path): String =
    s"SSTs/${names(store.resolve("SSTs"), ".sst").head}"

  /** A changelog that is needed: the version has no snapshot. */
  private def needed(store: Path): String = {
    val zips = names(store, ".zip").map(_.takeWhile(_.isDigit))
    names(store, ".changelog").map(n => (n.takeWhile(_.isDigit), n))
      .collectFirst { case (v, n) if v.toLong > 1 && !zips.contains(v) => n }.get
  }

  for ((version, base) <- Seq[(String, () => Path)]("v1" -> (() => v1), "v2" -> (() => v2))) {
    fault(s"a missing changelog, $version", FindingKind.Missing, base()) { store =>
      val name = needed(store)
      Files.deleteIfExists(store.resolve(s"$name.crc"))
      Files.delete(store.resolve(name))
      name
    }
    fault(s"a flipped byte in a changelog, $version", FindingKind.Damaged, base()) { store =>
      Files.deleteIfExists(store.resolve(s"${needed(store)}.crc"))
      // Among the first literals: where matches follow, a change may read the same.
      flip(store.resolve(needed(store)), _ => 25)
      needed(store)
    }
    fault(s"bytes after a changelog, $version", FindingKind.Damaged, base()) { store =>
      val file = store.resolve(needed(store))
      Files.deleteIfExists(store.resolve(s"${needed(store)}.crc"))
      rewrite(file, Files.readAllBytes(file) ++ Array[Byte](1, 2, 3))
      needed(store)
    }
    fault(s"a changelog cut short, $version", FindingKind.Damaged, base()) { store =>
      val file = store.resolve(needed(store))
      Files.deleteIfExists(store.resolve(s"${needed(store)}.crc"))
      rewrite(file, Files.readAllBytes(file).dropRight(30))
      needed(store)
    }
    fault(s"a snapshot cut short, $version", FindingKind.Damaged, base()) { store =>
      val file = store.resolve(newest(store, ".zip"))
      Files.deleteIfExists(store.resolve(s"${newest(store, ".zip")}.crc"))
      rewrite(file, Files.readAllBytes(file).dropRight(10))
      newest(store, ".zip")
    }
    fault(s"damaged metadata, $version", FindingKind.Damaged, base()) { store =>
      withMetadata(store, newest(store, ".zip"))(_.dropRight(5))
    }
    fault(s"a wrong number of rows, $version", FindingKind.WrongRows, base(), "--deep") { store =>
      withMetadata(store, newest(store, ".zip"))(_.replaceFirst("\"numKeys\":", "\"numKeys\":1"))
    }
    fault(s"a missing SST file, $version", FindingKind.Missing, base()) { store =>
      val name = sst(store)
      Files.delete(store.resolve(name))
      name
    }
    fault(s"an SST file of another size, $version", FindingKind.WrongSize, base()) { store =>
      val file = store.resolve(sst(store))
      rewrite(file, Files.readAllBytes(file).dropRight(1))
      sst(store)
    }
    fault(s"a flipped byte in an SST file, $version", FindingKind.Damaged, base()) { store =>
      flip(store.resolve(sst(store)), _ => 20)
      sst(store)
    }
    fault(s"an SST file that no snapshot names, $version", FindingKind.Orphan, base()) { store =>
      val name = s"SSTs/000999-${UUID.randomUUID()}.sst"
      Files.copy(store.resolve(sst(store)), store.resolve(name))
      name
    }
    fault(s"a file with a foreign name, $version", FindingKind.Foreign, base()) { store =>
      Files.write(store.resolve("notes.zip"), Array[Byte](1))
      "notes.zip"
    }
  }

  if (Line.hasStoreOf42)
    fault("a checksum file that disagrees", FindingKind.WrongChecksum, v2) { store =>
      val name = s"${needed(store)}.crc"
      val text = Files.readString(store.resolve(name))
      rewrite(store.resolve(name), text.replaceFirst("\"value\":-?", "\"value\":1").getBytes)
      name
    }
  if (Line.hasStoreOf42)
    fault("a checksum file that is none", FindingKind.WrongChecksum, v2) { store =>
      val name = s"${needed(store)}.crc"
      rewrite(store.resolve(name), "{".getBytes)
      name
    }
  fault("lineage: the file of another attempt", FindingKind.BrokenLineage, v2) { store =>
    // A whole changelog of the right version, whose header continues an attempt that is not there.
    val from = copyOf(written("2")).resolve("state/0/0")
    val name = needed(store)
    val other = names(from, ".changelog").find(_.startsWith(s"${name.takeWhile(_.isDigit)}_")).get
    Files.copy(from.resolve(other), store.resolve(name), StandardCopyOption.REPLACE_EXISTING)
    Files.deleteIfExists(store.resolve(s"$name.crc"))
    name
  }
  fault("lineage: no file has the id of the commit log", FindingKind.Missing, v2) { store =>
    val name = newest(store, ".changelog")
    val foreign = s"${name.takeWhile(_.isDigit)}_${UUID.randomUUID()}.changelog"
    Files.move(store.resolve(name), store.resolve(foreign))
    Files.deleteIfExists(store.resolve(s"$name.crc"))
    names(store, ".zip").find(_.startsWith(name.takeWhile(_.isDigit) + "_"))
      .foreach(zip => Files.delete(store.resolve(zip)))
    name
  }
  test("found: the directory of a store is gone") {
    val checkpoint = copyOf(v1)
    Files.move(checkpoint.resolve("state/0/1"), newDirectory().resolve("gone"))
    val (code, lines) = verify(checkpoint)
    assert(code == ExitCode.Findings && lines.head.startsWith("state/0/1: missing: "), lines)
  }

  test("a commit log that cannot be read is a finding; no checkpoint is an error") {
    val checkpoint = copyOf(v1)
    Files.writeString(checkpoint.resolve("commits/2"), "v9\n{}")
    val (code, lines) = verify(checkpoint)
    assert(code == ExitCode.Findings && lines.head.startsWith("commits/2: damaged: "), lines)
    intercept[statemark.common.InvalidInputException](verify(newDirectory()))
  }

  private def remove(file: Path): Unit =
    Seq(s"${file.getFileName}", s"${file.getFileName}.crc", s".${file.getFileName}.crc")
      .foreach(name => Files.deleteIfExists(file.resolveSibling(name)))

  for (gone <- Seq("offsets/7", "offsets/5", "commits/5"))
    test(s"found: $gone is gone, and later batches are there") {
      val checkpoint = copyOf(v1)
      assert(Files.exists(checkpoint.resolve("commits/7")))
      remove(checkpoint.resolve(gone))
      val (code, lines) = verify(checkpoint)
      assert(code == ExitCode.Findings && lines.head.startsWith(s"$gone: missing: "), lines)
    }

  test("a last batch that is not committed is no finding") {
    val checkpoint = copyOf(v1)
    remove(checkpoint.resolve("commits/7"))
    assertHealthy(checkpoint)
  }

  for (denied <- Seq("offsets/7", "commits/7", "commits/5", "state/0/0/8.changelog"))
    test(s"found: $denied is there and may not be read") {
      val (code, lines) = denying(copyOf(v1), denied)
      assert(code == ExitCode.Findings)
      val (first, detail) = (lines.head, "it cannot be read: ")
      assert(first.startsWith(s"$denied: damaged: $detail") && first.contains("denied"), lines)
    }

  for (denied <- Seq("state/0/0/_metadata/schema", "state/0/_metadata/metadata"))
    test(s"found: what a start reads may not be read: $denied") {
      val (code, lines) = denying(copyOf(v1), denied)
      assert(code == ExitCode.Findings && lines.exists(_.contains("damaged: ")), lines)
    }

  if (Line.hasStoreOf42) {
    test("found: a schema of transformWithState is gone, may not be read, or is none") {
      val made = newDirectory()
      val settings = Map(s"${prefix}maintenanceInterval" -> "50ms")
      runQuery(made, ProviderClass.Statemark, settings, 2, counting)
      assertHealthy(copyOf(made), "--deep")
      val schemas =
        names(made.resolve("state/0/_stateSchema/default"), "").filterNot(_.endsWith(".crc"))
      val schema = s"state/0/_stateSchema/default/${schemas.last}"
      def finds(checked: (ExitCode, Seq[String]), wanted: String): Unit =
        assert(checked._1 == ExitCode.Findings && checked._2.exists(_.startsWith(wanted)), checked)
      finds(denying(copyOf(made), schema), s"$schema: damaged: ")
      val gone = copyOf(made)
      remove(gone.resolve(schema))
      finds(verify(gone), s"$schema: missing: ")
      val none = copyOf(made)
      Files.writeString(none.resolve(schema), "v3\n")
      finds(verify(none), s"$schema: damaged: ")
    }
  }

  test("found: the query has stores, and its logs have no entry") {
    val checkpoint = copyOf(v1)
    for (log <- Seq("offsets", "commits"); entry <- names(checkpoint.resolve(log), ""))
      Files.delete(checkpoint.resolve(log).resolve(entry))
    val (code, lines) = verify(checkpoint)
    assert(code == ExitCode.Findings && lines.exists(_.startsWith("offsets: missing: ")), lines)
  }

  private def denying(checkpoint: Path, file: String): (ExitCode, Seq[String]) = {
    assert(Files.exists(checkpoint.resolve(file)))
    DeniedFileSystem.settings.foreach { case (key, value) => spark.conf.set(key, value) }
    DeniedFileSystem.isDenied = _.endsWith(s"$checkpoint/$file")
    val console = new RecordingConsole
    try (
        CommandLine.run(VerifyCommand, Seq(s"counting://$checkpoint"), context(console)),
        console.results
      )
    finally {
      DeniedFileSystem.isDenied = _ => false
      DeniedFileSystem.settings.keys.foreach(spark.conf.unset)
    }
  }

  test(
    "a damaged snapshot: the versions that older ones restore are named, and those that are lost"
  ) {
    val checkpoint = copyOf(v1)
    val store = checkpoint.resolve("state/0/0")
    val zip = newest(store, ".zip")
    flip(store.resolve(zip), _ / 2)
    val (_, lines) = verify(checkpoint)
    val version = zip.takeWhile(_.isDigit)
    val others = if (Line.hasStoreOf42) "other files restore them" else "nothing else restores"
    assert(lines(1).contains(s"(versions $version") && lines(1).contains(others), lines)
    Files.delete(store.resolve(needed(store)))
    val (_, more) = verify(checkpoint)
    assert(more.exists(_.endsWith("; nothing else restores them")), more)
  }

  private def withMetadata(store: Path, zip: String)(change: String => String): String = {
    val in = new ZipInputStream(new ByteArrayInputStream(Files.readAllBytes(store.resolve(zip))))
    val bytes = new ByteArrayOutputStream
    val out = new ZipOutputStream(bytes)
    Iterator.continually(in.getNextEntry).takeWhile(_ != null).foreach { entry =>
      val content = in.readAllBytes()
      out.putNextEntry(new ZipEntry(entry.getName))
      out.write(
        if (entry.getName == "metadata") change(new String(content)).getBytes else content
      )
      out.closeEntry()
    }
    out.close()
    rewrite(store.resolve(zip), bytes.toByteArray)
    Files.deleteIfExists(store.resolve(s"$zip.crc"))
    zip
  }
}

/** How often each value came. */
class CountEach extends StatefulProcessor[Int, Int, Long] {
  @transient private var count: ValueState[Long] = _

  override def init(outputMode: OutputMode, timeMode: TimeMode): Unit =
    count = getHandle.getValueState("count", Encoders.scalaLong, TTLConfig.NONE)

  override def handleInputRows(
      key: Int,
      rows: Iterator[Int],
      timers: TimerValues
  ): Iterator[Long] = {
    count.update((if (count.exists()) count.get() else 0L) + rows.length)
    Iterator(count.get())
  }
}
