package statemark.engine

import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Paths}
import org.scalatest.funsuite.AnyFunSuite
import statemark.common.StoreUnusableException

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
    Vector.empty
  )
  private val v2 = StoreState(
    VersionId(42, Some("id-42")),
    RowCounts.untracked,
    families,
    VersionId(40, Some("id-40")),
    Vector(VersionId(40, Some("id-40")), VersionId(41, Some("id-41")), VersionId(42, Some("id-42")))
  )

  private def records: Seq[(String, Array[Byte])] = Seq(
    "format" -> OffsetsColumnFamily.encodeFormat(FormatVersion.current),
    "identity" -> OffsetsColumnFamily.encodeIdentity(identity),
    "state, checkpoint format v1" -> OffsetsColumnFamily.encodeState(v1),
    "state, checkpoint format v2" -> OffsetsColumnFamily.encodeState(v2),
    "families" -> OffsetsColumnFamily.encodeFamilies(families)
  )

  test("bytes are those of the golden file") {
    val golden = Paths.get("src/test/resources/golden/offsets-v1.txt") match {
      case inProject if Files.exists(inProject.getParent) => inProject
      case _ => Paths.get("jvm/core/src/test/resources/golden/offsets-v1.txt")
    }
    val now = records.map { case (name, bytes) =>
      s"$name\n  ${bytes.map(b => f"$b%02x").mkString}\n"
    }.mkString
    if (sys.env.contains("REWRITE")) Files.write(golden, now.getBytes(UTF_8)): Unit
    assert(new String(Files.readAllBytes(golden), UTF_8) == now)
  }

  test("every record reads back") {
    val stored = records.toMap
    assert(OffsetsColumnFamily.decodeFormat(stored("format")) == FormatVersion.V1)
    assert(OffsetsColumnFamily.decodeIdentity(stored("identity")) == identity)
    assert(OffsetsColumnFamily.decodeFamilies(stored("families")) == families)
    for ((name, state) <- Seq("v1" -> v1, "v2" -> v2))
      assert(OffsetsColumnFamily.decodeState(stored(s"state, checkpoint format $name"), families)
        == state)
  }

  test("a record that is cut short, too long or of a newer format is refused by name") {
    for ((name, bytes) <- records if name.startsWith("state"); n <- bytes.indices) {
      val e = intercept[StoreUnusableException](
        OffsetsColumnFamily.decodeState(bytes.take(n), families)
      )
      assert(e.getMessage.contains("state"))
    }
    intercept[StoreUnusableException](
      OffsetsColumnFamily.decodeState(OffsetsColumnFamily.encodeState(v1) :+ 0.toByte, families)
    )
    val newer = intercept[StoreUnusableException](
      OffsetsColumnFamily.decodeFormat(Array[Byte](0, 0, 0, 9))
    )
    assert(newer.getMessage.contains("format 9"))
  }
}
