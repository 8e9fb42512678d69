package statemark.kafka.compaction

import java.nio.ByteBuffer
import org.apache.kafka.clients.consumer.ConsumerRecord

/** What the version of a record is (KIP-280 §Compaction Strategies). Of two records of a key the one with the higher
  * version wins, one with a version before one without, and of two with one version the one with the higher offset.
  */
sealed trait VersionRule {

  /** The version of a record; None where it has none, or none that can be read. */
  def of(record: ConsumerRecord[Array[Byte], Array[Byte]]): Option[Long]

  /** As a command names it. */
  def name: String
}

object VersionRule {

  /** A record's timestamp. */
  case object Timestamp extends VersionRule {
    override def name: String = "timestamp"
    override def of(record: ConsumerRecord[Array[Byte], Array[Byte]]): Option[Long] =
      Some(record.timestamp)
  }

  /** The value of a record's last header of this key: a signed number of 8 bytes, big end first. */
  final case class Header(key: String) extends VersionRule {
    override def name: String = s"header $key"
    override def of(record: ConsumerRecord[Array[Byte], Array[Byte]]): Option[Long] =
      bytes(record).collect { case value if value.length == 8 => ByteBuffer.wrap(value).getLong }

    /** The header's value, whatever it is. */
    def bytes(record: ConsumerRecord[Array[Byte], Array[Byte]]): Option[Array[Byte]] =
      Option(record.headers.lastHeader(key)).flatMap(header => Option(header.value))
  }

  /** Whether a record wins against one of the same key that lies before it. */
  private[compaction] def beats(later: Option[Long], earlier: Option[Long]): Boolean =
    (later, earlier) match {
      case (Some(a), Some(b)) => a >= b
      case (a, b) => a.isDefined || b.isEmpty
    }
}
