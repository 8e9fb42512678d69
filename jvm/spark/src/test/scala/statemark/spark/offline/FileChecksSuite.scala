package statemark.spark.offline

import java.io.{ByteArrayInputStream, IOException}
import java.nio.{ByteBuffer, ByteOrder}
import java.nio.file.{Files, Path}
import org.apache.spark.sql.execution.streaming.state.StatemarkBridge
import org.scalatest.funsuite.AnyFunSuite
import statemark.spark.checkpoint.{ChangelogSignature, RepairLimits}
import statemark.spark.{Line, Providers, Tmpfs}
import statemark.spark.offline.verify.{
  ChangelogCheck,
  ChangelogFacts,
  CommittedVersion,
  Finding,
  FindingKind,
  RowChecksumCheck,
  SnapshotCheck,
  SstCheck,
  StoreFiles,
  StoreReport,
  StoreTask,
  StoreVerifier,
  VerifySettings
}

/** Every byte of a file counts, and what lost attempts leave behind is no orphan. */
class FileChecksSuite extends AnyFunSuite with Providers {
  private val checksums = Map("spark.sql.streaming.stateStore.rowChecksum.enabled" -> "true")

  private def report(committed: Long*): StoreReport = new StoreVerifier(
    StoreTask(
      0,
      0,
      "default",
      location + "/0/0",
      "state/0/0",
      committed.map(CommittedVersion(_, None))
    ),
    VerifySettings(
      "lz4",
      hasRowChecksums = false,
      ",",
      5,
      Map.empty,
      RepairLimits.never,
      readsChecksumFiles = true,
      isDeep = false
    ),
    Providers.hadoopConf(java.util.UUID.randomUUID())
  ).run()

  if (Line.hasStoreOf42) test("a full local disk is no damage of the file that is copied there") {
    commit(open(), 0, Map("k" -> 1), force = true): Unit
    val mounted = Tmpfs.mount(queryDir.resolve("scratch"), "size=400k")
    assume(mounted.isDefined, "needs mount")
    mounted.foreach { disk =>
      val files = new StoreFiles(
        new org.apache.hadoop.fs.Path(s"$location/0/0"),
        Providers.hadoopConf(java.util.UUID.randomUUID()),
        disk.directory.toFile,
        readsChecksumFiles = true,
        unread = _ => ()
      )
      def unpacked() = {
        val image = files.fresh()
        SnapshotCheck.unpacked(storeDir.resolve("1.zip").toFile, image)
      }
      try {
        disk.fill()
        Seq(intercept[IOException](files.copied("1.zip")), intercept[IOException](unpacked()))
          .foreach(e => assert(e.getMessage.contains("No space left on device")))
        disk.empty()
        assert(files.copied("1.zip").isRight && unpacked().isRight)
      } finally disk.unmount()
    }
  }

  private def sst(): Path = {
    val name = storeDir.resolve("SSTs").toFile.list.filter(_.endsWith(".sst")).head
    storeDir.resolve("SSTs").resolve(name)
  }

  if (Line.hasStoreOf42)
    test("a change of any byte of an SST file is found, and of any bit of its footer") {
      val provider = open()
      commit(provider, 0, (0 until 6).map(i => s"k$i" -> i).toMap, force = true): Unit
      val good = Files.readAllBytes(sst())
      val copy = Files.createTempFile("statemark-", ".sst").toFile
      def problem(bytes: Array[Byte]): Option[String] = {
        Files.write(copy.toPath, bytes)
        SstCheck.problem(copy, 5).map(_._1)
      }
      assert(problem(good).isEmpty)
      for (
        at <- good.indices; bits = if (at >= good.length - 53) 0 to 7 else Seq(at % 8); bit <- bits
      ) {
        val bad = good.clone()
        bad(at) = (bad(at) ^ (1 << bit)).toByte
        assert(problem(bad).isDefined, s"byte $at of ${good.length}, bit $bit")
      }
      assert(problem(good.dropRight(1)).isDefined && problem(good :+ 0.toByte).isDefined)
      assert(problem(Array.emptyByteArray).isDefined)
    }

  for (codec <- Seq("lz4", "zstd", "snappy", "lzf") if Line.hasStoreOf42)
    test(s"a change of a byte of a changelog is found, or changes nothing that is read: $codec") {
      val provider = open(checksums + ("spark.sql.streaming.stateStore.compression.codec" -> codec))
      commit(provider, 0, (0 until 8).map(i => s"k$i" -> i).toMap): Unit
      val good = Files.readAllBytes(storeDir.resolve("1.changelog"))
      val copy = Files.createTempFile("statemark-", ".changelog").toFile
      val stream = StatemarkBridge.codec(codec)
      val check = new ChangelogCheck(stream, hasRowChecksums = true, delimiterBytes = 0)
      def found(bytes: Array[Byte]): Either[String, ChangelogFacts] = {
        Files.write(copy.toPath, bytes)
        check.changelog(copy, mayBeSigned = true)
      }
      def read(bytes: Array[Byte]): Seq[Byte] = {
        val compressed = new ByteArrayInputStream(bytes.dropRight(ChangelogSignature.Length))
        stream.compressedInputStream(compressed).readAllBytes().toSeq
      }
      assert(found(good) == Right(ChangelogFacts(None, 8)))
      val content = read(good)
      for (at <- good.indices; bit <- Seq(at % 8, 7)) {
        val bad = good.clone()
        bad(at) = (bad(at) ^ (1 << bit)).toByte
        if (found(bad).isRight)
          assert(read(bad) == content, s"byte $at of ${good.length}, bit $bit")
      }
      for (n <- Seq(1, 3, 25)) {
        assert(found(good.dropRight(n)).isLeft, s"$n bytes less")
        assert(found(good ++ Array.fill[Byte](n)(7)).isLeft, s"$n bytes more")
      }
    }

  if (Line.hasStoreOf42) test(
    "an overwritten attempt's SST files wait for retention; a newer one that nobody names is an orphan"
  ) {
    val provider = open()
    commit(provider, 0, Map("a" -> 0)): Unit
    commit(provider, 1, Map("lost" -> 1), force = true): Unit
    commit(provider, 1, Map("kept" -> 2), force = true): Unit
    commit(provider, 2, Map("b" -> 2)): Unit
    val healthy = report(1, 2, 3)
    assert(healthy.findings.isEmpty && healthy.leftovers > 0 && healthy.restorable == Seq(1, 2, 3))
    val orphan = sst().resolveSibling("000077-planted.sst")
    Files.copy(sst(), orphan)
    assert(report(1, 2, 3).findings.map(f => (f.file, f.kind)) ==
      Seq(("state/0/0/SSTs/000077-planted.sst", FindingKind.Orphan)))
  }

  test(
    "files of a version that is being written: nothing is missing and nothing an orphan for good"
  ) {
    val provider = open()
    commit(provider, 0, Map("a" -> 0)): Unit
    commit(provider, 1, Map("b" -> 1)): Unit
    Files.write(storeDir.resolve(".3.changelog.0d7e.TID5.tmp"), Array[Byte](1))
    assert(report(1).findings.isEmpty)
  }

  if (Line.hasStoreOf42)
    test("retention: versions before the oldest snapshot are gone, holes after it are not") {
      val provider = open()
      for (v <- 0 until 9) commit(provider, v, Map(s"k$v" -> v), force = v == 3): Unit
      for (v <- 1 to 3) Files.delete(storeDir.resolve(s"$v.changelog"))
      val healthy = report(2L to 9L: _*)
      assert(healthy.findings.isEmpty && healthy.restorable == (4L to 9L))
      Files.delete(storeDir.resolve("7.changelog"))
      val hole = report(2L to 9L: _*).findings
      assert(hole.map(f => (f.file, f.versions, f.lost)) ==
        Seq(("state/0/0/7.changelog", Seq(7, 8, 9), Seq(7, 8, 9))))
      assert(hole.head.remedy.endsWith("can be restored is 5"))
      Files.delete(storeDir.resolve("4.zip"))
      assert(report(2L to 9L: _*).findings.exists(_.kind == FindingKind.Missing))
    }

  test("row checksums: wrong lengths are wrong checksums") {
    val key = Array[Byte](1, 2, 3)
    val row = Array[Byte](9, 8, 7)
    val crc = new java.util.zip.CRC32C
    crc.update(key ++ row)
    val value = ByteBuffer.allocate(11).order(ByteOrder.nativeOrder())
      .putInt(crc.getValue.toInt).putInt(3).put(row).array
    assert(RowChecksumCheck.isValue(key, value))
    assert(RowChecksumCheck.areValues(key, (value :+ ','.toByte) ++ value, 1))
    assert(RowChecksumCheck.areValues(key, value ++ value, 0))
    assert(!RowChecksumCheck.isValue(key, value ++ value))
    for (at <- value.indices; bit <- 0 to 7) {
      val bad = value.clone()
      bad(at) = (bad(at) ^ (1 << bit)).toByte
      assert(!RowChecksumCheck.isValue(key, bad) && !RowChecksumCheck.areValues(key, bad, 1))
    }
    value.indices.foreach(n => assert(!RowChecksumCheck.isValue(key, value.take(n))))
  }

  test("checksum files") {
    def said(text: String): Option[String] = StoreFiles.mismatch(text.getBytes, 3, 7)
    val right = """{"algorithm":"CRC32C","value":7,"mainFileSize":3,"timestampMs":1}"""
    assert(said(right).isEmpty)
    for (
      bad <- Seq(
        "",
        "{",
        "[]",
        right.replace("7", "8"),
        right.replace("3,", "4,"),
        right.replace("CRC32C", "MD5")
      )
    )
      assert(said(bad).isDefined, bad)
  }

  test("numbers as ranges") {
    assert(Finding.ranges(Seq(3, 1, 2, 7, 9, 10)) == "1-3, 7, 9-10" && Finding.ranges(Nil) == "")
  }
}
