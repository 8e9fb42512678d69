package statemark.kafka.compaction

import java.nio.ByteBuffer
import org.apache.kafka.clients.consumer.ConsumerRecord
import statemark.kafka.log.RuleRecord

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

  /** The rule that a record of the commit topic notes. */
  private[kafka] def of(noted: RuleRecord): VersionRule =
    noted.header.fold[VersionRule](Timestamp)(Header(_))

  /** The header that a rule reads; None for timestamps. */
  private[compaction] def headerOf(rule: VersionRule): Option[String] = rule match {
    case Timestamp => None
    case Header(key) => Some(key)
  }

  /** Whether a record wins against one of the same key that lies before it. */
  private[compaction] def beats(later: Option[Long], earlier: Option[Long]): Boolean =
    (later, earlier) match {
      case (Some(a), Some(b)) => a >= b
      case (a, b) => a.isDefined || b.isEmpty
    }
}

/** The place of records without a version, where the rule is a header. */
sealed trait MissingVersion

object MissingVersion {

  /** They lose against all that have one, as KIP-280 has it. */
  case object Oldest extends MissingVersion

  /** Nothing is repaired while there is one. */
  case object Refuse extends MissingVersion
}
