package statemark.common

import java.nio.ByteBuffer
import org.scalatest.funsuite.AnyFunSuite
import scala.util.Random

class KeyHashSuite extends AnyFunSuite {

  test(
    "it is SipHash-1-3: values that others publish for the bytes 0, 1, 2, … and the secret 0 to 15"
  ) {
    val published = Map(
      0 -> 0xabac0158050fc4dcL,
      1 -> 0xc9f49bf37d57ca93L,
      7 -> 0xd3927d989bb11140L,
      8 -> 0x369095118d299a8eL,
      9 -> 0x25a48eb36c063de4L,
      15 -> 0xd320d86d2a519956L,
      16 -> 0xcc4fdd1a7d908b66L,
      63 -> 0x9d199062b7bbb3a8L
    )
    for ((length, expected) <- published) {
      val bytes = Array.tabulate(length)(_.toByte)
      val found =
        KeyHash.sipHash13(bytes, 0, bytes.length, 0x0706050403020100L, 0x0f0e0d0c0b0a0908L)
      assert(found == expected, s"$length bytes")
      val within = Array.fill[Byte](3)(7) ++ bytes ++ Array.fill[Byte](9)(7)
      assert(
        KeyHash.sipHash13(within, 3, length, 0x0706050403020100L, 0x0f0e0d0c0b0a0908L) == expected
      )
    }
  }

  test("bytes above 127 at the end count as they are, in a short key and in a long one") {
    // Python's hash of bytes, where PYTHONHASHSEED is 0.
    val expected = Map(
      Seq(0xff) -> 0x30406ea523c53defL,
      Seq(0x80, 0xff, 0x90) -> 0xe73dd6e980399520L,
      Seq.fill(8)(0xee) ++ Seq(0x80, 0xff, 0x90) -> 0x5ccc4b51d1313c2cL
    )
    for ((bytes, hash) <- expected)
      assert(KeyHash.sipHash13(bytes.map(_.toByte).toArray, 0, bytes.length, 0, 0) == hash)
  }

  test("keys that agree under XXH64 whatever its seed do not agree here") {
    import java.lang.Long.rotateLeft
    val (p1, p2, p4, p5) =
      (0x9e3779b185ebca87L, 0xc2b2ae3d27d4eb4fL, 0x85ebca77c2b2ae63L, 0x27d4eb2f165667c5L)
    def inverse(odd: Long): Long = (1 to 6).foldLeft(odd)((x, _) => x * (2 - odd * x))
    // The state of XXH64 after the two words of a key of 16 bytes. What follows maps different states to different hashes.
    def state(seed: Long, words: Seq[Long]): Long = words.foldLeft(seed + p5 + 16) { (h, word) =>
      rotateLeft(h ^ rotateLeft(word * p2, 31) * p1, 27) * p1 + p4
    }
    // The word that its round turns into a given one.
    def before(turned: Long): Long = rotateLeft(turned * inverse(p1), 33) * inverse(p2)
    val random = new Random(27)
    for (_ <- 1 to 1000) {
      val (a, b, seed) = (random.nextLong(), random.nextLong(), random.nextLong())
      val one = Seq(before(a), before(b))
      val other = Seq(before(a ^ 1L << 36), before(b ^ 1L << 63))
      assert(one != other && state(seed, one) == state(seed, other))
      val Seq(first, second) = Seq(one, other).map { words =>
        KeyHash.of(ByteBuffer.allocate(16).putLong(words(0)).putLong(words(1)).array)
      }: @unchecked
      assert(first != second)
    }
  }

  test("equal keys have one hash, and the secret is one of many") {
    val key = "a key".getBytes
    assert(KeyHash.of(key) == KeyHash.of(key.clone))
    assert(KeyHash.of(key) != KeyHash.sipHash13(key, 0, key.length, 0, 0))
  }
}
