package statemark.kafka.rows

import java.nio.ByteBuffer
import java.util.zip.{CRC32, CRC32C, Checksum}
import org.apache.kafka.common.header.Headers
import scala.jdk.CollectionConverters._

/** What tells a row from another at the same place, after a topic was made anew, say. Hashes of rows are added, so that
  * the hash of many does not depend on their order. FORMAT.md has the bytes: a decision that an older release has
  * written is checked with it.
  *
  * A row's time is left out, as a topic with `LogAppendTime` gives it another one (K14).
  */
private[kafka] object RowHash {

  def of(key: Array[Byte], value: Array[Byte], headers: Headers): Long = {
    val low = new CRC32C
    val high = new CRC32
    def both(update: Checksum => Unit): Unit = {
      update(low)
      update(high)
    }
    def add(bytes: Option[Array[Byte]]): Unit = {
      val length = ByteBuffer.allocate(4).putInt(bytes.fold(-1)(_.length)).array()
      both(_.update(length, 0, 4))
      bytes.foreach(b => both(_.update(b, 0, b.length)))
    }
    add(Option(key))
    add(Option(value))
    headers.asScala.foreach { header =>
      add(Some(header.key.getBytes(java.nio.charset.StandardCharsets.UTF_8)))
      add(Option(header.value))
    }
    mixed(high.getValue << 32 | low.getValue)
  }

  /** Checksums are linear; without this, the sum of many rows would not notice some exchanges between them. */
  private def mixed(bits: Long): Long = {
    val a = (bits ^ (bits >>> 33)) * 0xff51afd7ed558ccdL
    val b = (a ^ (a >>> 33)) * 0xc4ceb9fe1a85ec53L
    b ^ (b >>> 33)
  }
}
