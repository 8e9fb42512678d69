package statemark.spark

import java.nio.charset.StandardCharsets.UTF_8
import org.scalatest.funsuite.AnyFunSuite
import statemark.common.Fingerprint
import statemark.spark.checkpoint.{FileBytes, FileProof, SeenFile}

/** Pins the bytes of a fingerprint to a golden file, which FORMAT.md describes. */
class FileProofSuite extends AnyFunSuite {
  private val file = SeenFile(false, FileBytes(1234, 0xdeadbeef), 1700000000123L)
  private val before = SeenFile(false, FileBytes(7, 1), 1699999999968L)
  private val proofs = Seq(
    "found" -> FileProof(file, FileProof.Found),
    "found, a snapshot" -> FileProof(file.copy(isSnapshot = true), FileProof.Found),
    "written, nothing known before" -> FileProof(file, FileProof.Written(None)),
    "written, known before" -> FileProof(file, FileProof.Written(Some(before)))
  )

  test("bytes are those of the golden file") {
    val golden = getClass.getResourceAsStream("/golden/fingerprint-1.txt")
    val now = proofs.map { case (name, proof) =>
      s"$name\n  ${proof.fingerprint.bytes.map(b => f"$b%02x").mkString}\n"
    }.mkString
    assert(new String(golden.readAllBytes(), UTF_8) == now)
  }

  test("what was written reads back, and nothing else does") {
    for ((name, proof) <- proofs) {
      val fingerprint = proof.fingerprint
      assert(FileProof.of(fingerprint).contains(proof), name)
      assert(FileProof.of(fingerprint.copy(kind = 2)).isEmpty, name)
      assert(FileProof.of(Fingerprint(1, fingerprint.bytes :+ 0.toByte)).isEmpty, name)
      for (n <- fingerprint.bytes.indices)
        assert(FileProof.of(Fingerprint(1, fingerprint.bytes.take(n))).isEmpty, s"$name, $n bytes")
    }
  }
}
