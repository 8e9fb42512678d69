package statemark.engine

import java.io.{BufferedInputStream, File, FileInputStream}
import java.nio.{ByteBuffer, ByteOrder}
import java.nio.charset.StandardCharsets.ISO_8859_1
import java.nio.file.Files
import java.util.zip.CRC32C
import scala.annotation.tailrec
import scala.util.Using
import statemark.common.StoreUnusableException

/** The file that tells RocksDB which files make up a store, in its log format: blocks of 32 KiB, in them
  * records of checksum, length, type and payload. It is checked before RocksDB reads it: the reader of 9.8.4
  * never ends where a flipped bit makes the type of a record that of a recycled log.
  *
  * ''Source:'' RocksDB 9.8 `db/log_format.h`.
  */
private[engine] object RocksManifest {
  private val BlockBytes = 32 * 1024
  private val HeaderBytes = 7
  // Full, first, middle, last.
  private val Types = 1 to 4

  /** Does nothing where there is none: RocksDB makes one, or refuses.
    * @throws StoreUnusableException where a record is not what was written
    */
  def check(directory: File): Unit = current(directory).foreach { manifest =>
    Using.resource(new BufferedInputStream(new FileInputStream(manifest), BlockBytes)) { in =>
      Iterator.continually(in.readNBytes(BlockBytes)).takeWhile(_.nonEmpty).zipWithIndex.foreach {
        case (block, i) =>
          damageIn(block).foreach { at =>
            throw new StoreUnusableException(
              s"$manifest is damaged: the record at byte ${i.toLong * BlockBytes + at} is not what was written. " +
                "The local copy is given up; it is loaded again from the checkpoint."
            )
          }
      }
    }
  }

  private def current(directory: File): Option[File] =
    Some(new File(directory, "CURRENT")).filter(_.isFile).map { file =>
      new File(directory, new String(Files.readAllBytes(file.toPath), ISO_8859_1).trim)
    }.filter(_.isFile)

  /** Returns where the first wrong record begins. A record without its end was being written, and a range of zeros
    * was set aside: RocksDB stops there, too.
    */
  private def damageIn(block: Array[Byte]): Option[Int] = {
    val bytes = ByteBuffer.wrap(block).order(ByteOrder.LITTLE_ENDIAN)
    @tailrec def from(at: Int): Option[Int] =
      if (at + HeaderBytes > block.length) None
      else {
        val length = bytes.getShort(at + 4) & 0xffff
        val kind = block(at + 6) & 0xff
        val sum = bytes.getInt(at)
        val end = at + HeaderBytes + length
        val isCut = end > block.length && block.length < BlockBytes
        if (isCut || (sum == 0 && length == 0 && kind == 0)) None
        else if (!Types.contains(kind) || end > block.length || sum != crc(block, at, end)) Some(at)
        else from(end)
      }
    from(0)
  }

  /** Returns the checksum of type and payload, masked as RocksDB stores it. */
  private def crc(block: Array[Byte], at: Int, end: Int): Int = {
    val sum = new CRC32C
    sum.update(block, at + 6, end - at - 6)
    Integer.rotateRight(sum.getValue.toInt, 15) + 0xa282ead8
  }
}
