package statemark.common

import java.nio.ByteBuffer
import java.util.Arrays
import org.scalatest.funsuite.AnyFunSuite

/** Comparisons of eight bytes at a time against those of the JDK, byte by byte. */
class BuffersSuite extends AnyFunSuite {
  private val from = 3

  private def buffers(bytes: Array[Byte]): Seq[ByteBuffer] =
    Seq(ByteBuffer.allocate(_: Int), ByteBuffer.allocateDirect(_: Int))
      .map(make => make(from + bytes.length).put(from, bytes))

  private val pairs = for {
    length <- 0 to 26
    a = Array.tabulate(length)(i => (i * 37 - 100).toByte)
    b <- a +: (for (at <- 0 until length; bit <- Seq(1, 0x80))
      yield a.updated(at, (a(at) ^ bit).toByte))
  } yield (a, b)

  test("bytes that keys have in common are counted up to the first that differs") {
    for ((a, b) <- pairs; left <- buffers(a); right <- buffers(b)) {
      val same = Arrays.mismatch(a, b)
      val expected = if (same < 0) a.length else same
      assert(Buffers.shared(left, from, right, from, a.length) == expected)
    }
  }

  test("keys compare by their bytes, unsigned, one that the other begins with first") {
    for ((a, b) <- pairs; cut <- Seq(0, 1, 9).filter(_ <= b.length)) {
      val shorter = b.dropRight(cut)
      for (left <- buffers(a); right <- buffers(shorter)) {
        val found = Buffers.compare(left, from, a.length, right, from, shorter.length)
        assert(found.sign == Arrays.compareUnsigned(a, shorter).sign)
      }
    }
  }

  test("keys are equal where all bytes are") {
    for ((a, b) <- pairs; left <- buffers(a)) {
      val padded = Array.fill[Byte](from)(7) ++ b :+ 9.toByte
      assert(Buffers.isEqual(left, from, padded, from, a.length) == Arrays.equals(a, b))
    }
  }

  test("what is written is read, of any length") {
    for (length <- 0 to 300; buffer <- buffers(new Array(length))) {
      val bytes = Array.tabulate(length + 2)(_.toByte)
      Buffers.write(buffer, from, bytes, 1, length)
      val read = new Array[Byte](length + 2)
      Buffers.read(buffer, from, read, 1, length)
      assert(read.slice(1, length + 1).sameElements(bytes.slice(1, length + 1)))
      assert(read.head == 0 && read.last == 0)
    }
  }
}
