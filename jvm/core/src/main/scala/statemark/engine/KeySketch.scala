package statemark.engine

import java.util.Arrays
import scala.util.hashing.MurmurHash3

/** About how many different keys it was shown: HyperLogLog in a kilobyte, within a tenth up to some millions.
  *
  * ''Thread:'' one at a time.
  *
  * ''Source:'' P. Flajolet et al., HyperLogLog, 2007.
  */
private[statemark] final class KeySketch {
  import KeySketch._

  private val registers = new Array[Byte](Registers)

  def add(key: Array[Byte]): Unit = {
    val hash = MurmurHash3.bytesHash(key)
    val register = hash >>> (Integer.SIZE - Bits)
    val rank = Integer.numberOfLeadingZeros(hash << Bits | 1 << (Bits - 1)) + 1
    if (rank > registers(register)) registers(register) = rank.toByte
  }

  def clear(): Unit = Arrays.fill(registers, 0: Byte)

  def estimate: Long = {
    val empty = registers.count(_ == 0)
    val sum = registers.iterator.map(rank => 1.0 / (1L << rank)).sum
    val many = Alpha * Registers * Registers / sum
    // Few keys leave registers empty, whose number tells more.
    val isFew = many <= 2.5 * Registers && empty > 0
    math.round(if (isFew) Registers * math.log(Registers.toDouble / empty) else many)
  }
}

private object KeySketch {
  private val Bits = 10
  private val Registers = 1 << Bits
  private val Alpha = 0.7213 / (1 + 1.079 / Registers)
}
