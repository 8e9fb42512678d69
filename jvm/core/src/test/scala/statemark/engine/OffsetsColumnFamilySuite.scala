package statemark.engine

import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Paths}
import org.scalatest.funsuite.AnyFunSuite
import scala.collection.immutable.ArraySeq
import scala.jdk.CollectionConverters._
import statemark.common._

/** Pins the bytes of the offsets column family to a golden file, which FORMAT.md describes. Rewrite it
  * with `REWRITE=1`, together with FORMAT.md and a new format version.
  */
class OffsetsColumnFamilySuite extends AnyFunSuite {
  private val identity = StoreIdentity("0a1b-query", 2, 17, "left-keyToNumValues", 200)
  private val families = ColumnFamilies(Map.empty, 0)
    .created("default", isInternal = false).created("$index", isInternal = true)
    .created("gone", isInternal = false).removed("gone")
  private val v1 = StoreState(
    VersionId(41, None),
    RowCounts(1000000, 5),
    families,
    VersionId(40, None),
    Vector.empty,
    None,
    Some(Fingerprint(1, ArraySeq[Byte](0, 1, 2, -3)))
  )
  private val v2 = StoreState(
    VersionId(42, Some("id-42")),
    RowCounts.untracked,
    families,
    VersionId(40, Some("id-40")),
    Vector(
      VersionId(40, Some("id-40")),
      VersionId(41, Some("id-41")),
      VersionId(42, Some("id-42"))
    ),
    Some(Position(Vector(
      SourceOffset("0", SourceEnd.Offset("""{"topic":{"0":42}}""")),
      SourceOffset("clicks", SourceEnd.Nothing),
      SourceOffset("orders", SourceEnd.Digest("00ff"))
    )))
  )
  private val proof = HistoryProof(41, v1.fingerprint.get)
  private val redo = Redo(
    "42.batch",
    Seq("state" -> "next", "families" -> "").map { case (k, v) => (k.getBytes, v.getBytes) }
  )
  private val uploads = Vector(UploadedSst("000012.sst", "000012-0a1b.sst", 4096, 40))

  private def records: Seq[(String, Array[Byte])] = Seq(
    "format" -> OffsetsColumnFamily.encodeFormat(FormatVersion.current),
    "identity" -> OffsetsColumnFamily.encodeIdentity(identity),
    "mark" -> OffsetsColumnFamily.encodeMark(Some("5d2c-mark")),
    "mark, none" -> OffsetsColumnFamily.encodeMark(None),
    "state, checkpoint format v1" -> OffsetsColumnFamily.encodeState(v1),
    "state, checkpoint format v2" -> OffsetsColumnFamily.encodeState(v2),
    "families" -> OffsetsColumnFamily.encodeFamilies(families),
    "position" -> OffsetsColumnFamily.encodePosition(v2.position),
    "position, unknown" -> OffsetsColumnFamily.encodePosition(None),
    "proof" -> OffsetsColumnFamily.encodeProof(proof),
    "uploads" -> OffsetsColumnFamily.encodeUploads(uploads),
    "intent" -> OffsetsColumnFamily.encodeIntent(Intent(42, None)),
    "intent, writes on disk" -> OffsetsColumnFamily.encodeIntent(Intent(42, Some(redo)))
  )

  private def goldenOf(format: FormatVersion) = {
    val name = s"src/test/resources/golden/offsets-v${format.number}.txt"
    Paths.get(name) match {
      case inProject if Files.exists(inProject.getParent) => inProject
      case _ => Paths.get(s"jvm/core/$name")
    }
  }

  test("bytes are those of the golden file") {
    val golden = goldenOf(FormatVersion.current)
    val now = records.map { case (name, bytes) =>
      s"$name\n  ${bytes.map(b => f"$b%02x").mkString}\n"
    }.mkString
    if (sys.env.contains("REWRITE")) Files.write(golden, now.getBytes(UTF_8)): Unit
    assert(new String(Files.readAllBytes(golden), UTF_8) == now)
  }

  test("every record reads back") {
    val stored = records.toMap
    assert(OffsetsColumnFamily.decodeFormat(stored("format")) == FormatVersion.V5)
    assert(OffsetsColumnFamily.decodeIdentity(stored("identity")) == identity)
    assert(OffsetsColumnFamily.decodeMark(stored("mark")).contains("5d2c-mark"))
    assert(OffsetsColumnFamily.decodeMark(stored("mark, none")).isEmpty)
    assert(OffsetsColumnFamily.decodeFamilies(stored("families")) == families)
    assert(OffsetsColumnFamily.decodePosition(stored("position")) == v2.position)
    assert(OffsetsColumnFamily.decodePosition(stored("position, unknown")).isEmpty)
    assert(OffsetsColumnFamily.decodeProof(stored("proof")) == proof)
    assert(OffsetsColumnFamily.decodeUploads(stored("uploads")) == uploads)
    assert(OffsetsColumnFamily.decodeIntent(stored("intent")) == Intent(42, None))
    val intent = OffsetsColumnFamily.decodeIntent(stored("intent, writes on disk"))
    assert(intent.version == 42 && intent.redo.map(_.file).contains("42.batch"))
    val texts = (r: Redo) => r.records.map { case (k, v) => (new String(k), new String(v)) }
    assert(intent.redo.map(texts).contains(texts(redo)))
    for ((name, state) <- Seq("v1" -> v1, "v2" -> v2)) {
      val bytes = stored(s"state, checkpoint format $name")
      assert(
        OffsetsColumnFamily.decodeState(bytes, families, state.position, Some(proof)) == state
      )
    }
    // What is said of another version is not said of this one.
    val of40 = Some(HistoryProof(40, proof.fingerprint))
    val bytes = stored("state, checkpoint format v1")
    assert(OffsetsColumnFamily.decodeState(bytes, families, None, of40).fingerprint.isEmpty)
  }

  test("format 2, of which the records of today cannot tell, is known by its number") {
    val lines = Files.readAllLines(goldenOf(FormatVersion.V2))
    val number = lines.get(lines.indexOf("format") + 1).trim
    assert(OffsetsColumnFamily.decodeFormat(fromHex(number)) == FormatVersion.V2)
    val proof = lines.get(lines.indexOf("proof") + 1).trim
    intercept[StoreUnusableException](OffsetsColumnFamily.decodeProof(fromHex(proof)))
  }

  test("format 3, which has no mark, is continued; format 2 is not") {
    val lines = Files.readAllLines(goldenOf(FormatVersion.V3))
    val number = lines.get(lines.indexOf("format") + 1).trim
    assert(OffsetsColumnFamily.decodeFormat(fromHex(number)) == FormatVersion.V3)
    assert(FormatVersion.continued.head == FormatVersion.V3)
    // All that format 3 has is in format 4 as well, byte for byte.
    val now = Files.readAllLines(goldenOf(FormatVersion.V4))
    assert((lines.asScala.toSet - s"  $number").subsetOf(now.asScala.toSet))
  }

  test("format 4, whose position does not count, is continued") {
    val lines = Files.readAllLines(goldenOf(FormatVersion.V4))
    def record(name: String) = fromHex(lines.get(lines.indexOf(name) + 1).trim)
    assert(OffsetsColumnFamily.decodeFormat(record("format")) == FormatVersion.V4)
    assert(FormatVersion.continued.contains(FormatVersion.V4))
    // All else that format 4 has is in format 5 as well, byte for byte.
    val now = Files.readAllLines(goldenOf(FormatVersion.current)).asScala.toSet
    val changed = Set("format", "position").map(name => lines.get(lines.indexOf(name) + 1))
    assert((lines.asScala.toSet -- changed).subsetOf(now))
  }

  private def fromHex(text: String): Array[Byte] =
    text.grouped(2).map(Integer.parseInt(_, 16).toByte).toArray

  test("a record that is cut short, too long or of a newer format is refused by name") {
    for ((name, bytes) <- records if name.startsWith("state"); n <- bytes.indices) {
      val e = intercept[StoreUnusableException](
        OffsetsColumnFamily.decodeState(bytes.take(n), families, None, None)
      )
      assert(e.getMessage.contains("state"))
    }
    val long = OffsetsColumnFamily.encodeState(v1) :+ 0.toByte
    intercept[StoreUnusableException](OffsetsColumnFamily.decodeState(long, families, None, None))
    val newer = intercept[LocalRejectedException](
      OffsetsColumnFamily.decodeFormat(Array[Byte](0, 0, 0, 9))
    )
    assert(newer.reason == RejectReason.OtherFormat)
    assert(newer.getMessage.contains("format 9"))
  }
}
