package statemark.spark

import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Path}
import org.scalatest.funsuite.AnyFunSuite
import scala.jdk.CollectionConverters._
import scala.util.Using
import statemark.spark.checkpoint.{
  Before,
  ChangelogSignature,
  FileBytes,
  NamedChangelog,
  SnapshotSignature,
  SnapshotWriter
}

/** The signatures by which Statemark knows its own files in checkpoint format v1: their bytes, who has them, and that Spark's
  * provider does not see them (I10).
  */
class FileSignaturesSuite extends AnyFunSuite with Providers {
  private val stateStore = "spark.sql.streaming.stateStore"
  private val changelogs =
    Map(s"$stateStore.rocksdb.changelogCheckpointing.enabled" -> "true")
  private val everyTwo = changelogs + (s"$stateStore.minDeltasForSnapshot" -> "2")

  private val unsigned = NamedChangelog.Unsigned(FileBytes(1234, 0xdeadbeef))
  private val signatures = Seq(
    "changelog 1, on the empty store" -> ChangelogSignature(1, Before.Empty).bytes,
    "changelog 42, on an own version" -> ChangelogSignature(42, Before.Own).bytes,
    "changelog 43, on another's version" -> ChangelogSignature(43, Before.Foreign).bytes,
    "snapshot, no changelog known" -> SnapshotSignature.encode(None),
    "snapshot beside an unsigned changelog" -> SnapshotSignature.encode(Some(unsigned)),
    "snapshot beside changelog 42" -> SnapshotSignature.encode(Some(NamedChangelog.Signed(42)))
  )

  test("bytes are those of the golden file") {
    val golden = getClass.getResourceAsStream("/golden/file-signatures-1.txt")
    val now =
      signatures.map { case (name, bytes) =>
        s"$name\n  ${bytes.map(b => f"$b%02x").mkString}\n"
      }.mkString
    assert(new String(golden.readAllBytes(), UTF_8) == now)
  }

  test("a signature of a changelog reads back, and no other bytes do") {
    val signature = ChangelogSignature(42, Before.Own)
    assert(ChangelogSignature.of(Array[Byte](1, 2) ++ signature.bytes).contains(signature))
    for (at <- signature.bytes.indices; bit <- 0 to 7) {
      val bad = signature.bytes
      bad(at) = (bad(at) ^ (1 << bit)).toByte
      assert(ChangelogSignature.of(bad).isEmpty && ChangelogSignature.isIn(bad))
    }
    for (n <- signature.bytes.indices)
      assert(ChangelogSignature.of(signature.bytes.take(n)).isEmpty)
  }

  test(
    "a signature of a snapshot reads back; one of another format is a signature, and names nothing"
  ) {
    for (named <- Seq(None, Some(unsigned), Some(NamedChangelog.Signed(7))))
      assert(SnapshotSignature.decode(SnapshotSignature.encode(named)) == named)
    assert(
      SnapshotSignature.decode(2.toByte +: SnapshotSignature.encode(Some(unsigned)).tail).isEmpty
    )
    assert(SnapshotSignature.decode(Array.emptyByteArray).isEmpty)
  }

  private def file(name: String): Path = storeDir.resolve(name)
  private def signatureOf(version: Int): Option[ChangelogSignature] =
    ChangelogSignature.of(Files.readAllBytes(file(s"$version.changelog")))
  private def writerOf(version: Int): SnapshotWriter =
    SnapshotSignature.ofZip(Files.readAllBytes(file(s"$version.zip")))
  private def namedBy(version: Int): NamedChangelog = {
    val bytes = Files.readAllBytes(file(s"$version.changelog"))
    val crc = new java.util.zip.CRC32C
    crc.update(bytes)
    NamedChangelog(signatureOf(version), FileBytes(bytes.length.toLong, crc.getValue.toInt))
  }

  private def entriesOf(version: Int): Set[String] =
    Using.resource(new java.util.zip.ZipFile(file(s"$version.zip").toFile)) {
      _.entries.asScala.map(_.getName).toSet
    }

  for {
    codec <- Seq("lz4", "zstd", "snappy", "lzf")
    usesFamilies <- Seq(true, false)
  } test(
    s"Spark's provider reads signed files and goes on: $codec, column families $usesFamilies"
  ) {
    val extra = changelogs + (s"$stateStore.compression.codec" -> codec)
    // More than a buffer of any codec; a batch without rows is where Spark's readers look behind the end.
    val many = (0 until 5000).map(i => s"key-$i-${i * 7919 % 104729}" -> i * 7919).toMap
    val ours = open(extra, usesFamilies = usesFamilies)
    commit(ours, 0, Map("k0" -> 0)): Unit
    commit(ours, 1, many): Unit
    commit(ours, 2, Map.empty): Unit
    ours.close()
    val signed = (1 to 3).flatMap(signatureOf)
    assert(signed.map(_.before) == Seq(Before.Empty, Before.Own, Before.Own))
    assert(signed.map(_.id).distinct.length == 3)
    val wanted = many + ("k0" -> 0)
    for (className <- Seq(Providers.sparksOwn, classOf[StatemarkStateStoreProvider].getName)) {
      val reader = open(extra, className, usesFamilies)
      val store = reader.getStore(3, None)
      try assert(rows(store) == wanted, className)
      finally {
        store.abort()
        reader.close()
      }
    }
    val sparks = open(extra, Providers.sparksOwn, usesFamilies)
    commit(sparks, 3, Map("k3" -> 3)): Unit
    sparks.close()
    assert(signatureOf(4).isEmpty)
    val again = open(extra, usesFamilies = usesFamilies)
    commit(again, 4, Map("k4" -> 4)): Unit
    assert(signatureOf(5).exists(_.before == Before.Foreign))
    again.close()
  }

  test("a snapshot names its changelog, whatever is committed while it is uploaded") {
    lazy val ours = open(everyTwo)
    besideSnapshot {
      commit(ours, 2, Map("c" -> 1)): Unit
      commit(ours, 3, Map("d" -> 1)): Unit
    } {
      commit(ours, 0, Map("a" -> 1)): Unit
      commit(ours, 1, Map("b" -> 1)): Unit
      ours.getStore(2, None).abort()
      ours.doMaintenance()
    }
    ours.close()
    assert(writerOf(2) == SnapshotWriter.Own(Some(namedBy(2))))
  }

  test("Spark's provider reads a signed snapshot, and its next has none") {
    val ours = open(everyTwo)
    (0 until 3).foreach { v =>
      commit(ours, v.toLong, Map(s"k$v" -> v)): Unit
      ours.getStore(v + 1L, None).abort()
      ours.doMaintenance()
    }
    ours.close()
    val newest = files(".zip").map(_.stripSuffix(".zip").toInt).max
    assert(writerOf(newest) == SnapshotWriter.Own(Some(namedBy(newest))))
    assert(!entriesOf(newest).exists(_.startsWith("OPTIONS-")))
    (1 to 3).foreach(v => if (v <= newest) Files.delete(file(s"$v.changelog")))
    val without = Map(s"$stateStore.rocksdb.changelogCheckpointing.enabled" -> "false")
    val sparks = open(without, Providers.sparksOwn)
    (3 until 5).foreach { v =>
      commit(sparks, v.toLong, Map(s"k$v" -> v)): Unit
      sparks.doMaintenance()
    }
    sparks.close()
    for (v <- 4 to 5) {
      assert(writerOf(v) == SnapshotWriter.Foreign)
      assert(!entriesOf(v)(SnapshotSignature.FileName))
      assert(rowsAt(v.toLong) == (0 until v).map(i => s"k$i" -> i).toMap)
    }
    // A zip that is cut tells as well; one that is cut before any name does not.
    for (v <- Seq(newest, 5)) {
      val zip = Files.readAllBytes(file(s"$v.zip"))
      val known = (0 to zip.length by 16).map(n => SnapshotSignature.ofZip(zip.take(n))).distinct
      assert(known.head == SnapshotWriter.Unknown)
      assert(known.forall(w => w == SnapshotWriter.Unknown || w.getClass == writerOf(v).getClass))
    }
  }

  test("a commit that needs a snapshot of its own names its changelog in it") {
    val ours = open(changelogs)
    commit(ours, 0, Map("a" -> 1)): Unit
    commit(ours, 1, Map("b" -> 1), force = true): Unit
    assert(writerOf(2) == SnapshotWriter.Own(Some(namedBy(2))))
  }

  test("files of checkpoint format v2 have no signatures") {
    val ours = open(everyTwo ++ Providers.v2)
    val id = commit(ours, 0, Map("a" -> 1)).stateStoreCkptId
    commit(ours, 1, Map("b" -> 1), id, force = true): Unit
    ours.close()
    for (name <- files(".changelog"))
      assert(ChangelogSignature.of(Files.readAllBytes(file(name))).isEmpty)
    assert(files(".zip").nonEmpty)
    for (name <- files(".zip"))
      assert(SnapshotSignature.ofZip(Files.readAllBytes(file(name))) == SnapshotWriter.Unknown)
  }
}
