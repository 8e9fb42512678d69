package statemark.kafka.log

import java.io.IOException
import java.nio.charset.StandardCharsets.UTF_8
import org.apache.kafka.common.utils.Utils
import statemark.kafka.conf.{SinkException, SinkIdentity}
import statemark.kafka.log.RecordBytes._

/** The rule by which a topic is repaired: a record of the commit topic that is no sink's. Keys begin with another version
  * than those of sinks, so that releases before this record pass it over.
  *
  * @param header the header with the version; None where timestamps are the versions
  * @param by the user who has set the rule, for people
  * @param sinceMs the time since which the rule holds, in milliseconds since the epoch
  * @param repairedMs when a repair by the rule last came to its end; None where none has yet
  * @param held the compaction lag that a repair has raised; no release writes any yet, and one that is there is kept
  */
final case class RuleRecord(
    topic: String,
    header: Option[String],
    by: String,
    sinceMs: Long,
    repairedMs: Option[Long] = None,
    held: Option[HeldLag] = None
)

/** A compaction lag that is raised while a topic is repaired.
  * @param beforeMs the lag that is to be put back
  * @param isOwn whether the topic has that one itself, not from the brokers' defaults
  * @param hold tells the repair that has raised it from others
  */
final case class HeldLag(beforeMs: Long, isOwn: Boolean, hold: String)

/** Bytes of rules, as FORMAT.md describes them and a golden file pins them. */
object RuleCodec {
  private val KeyVersion: Byte = 2
  private val Version: Byte = 1
  private val Kind: Byte = 5
  private val TimestampStrategy = 1
  private val HeaderStrategy = 2

  /** Returns the partition of the commit topic that holds the rule of a topic, for ever. */
  def partitionOf(topic: String): Int =
    Utils.toPositive(Utils.murmur2(topic.getBytes(UTF_8))) % SinkIdentity.CommitPartitions

  /** Returns the key under which the rule of a topic replaces an earlier one. */
  def key(topic: String): Array[Byte] = bytesOf { out =>
    out.writeByte(KeyVersion.toInt)
    out.writeByte(Kind.toInt)
    out.writeUTF(topic)
  }

  /** Returns the topic whose rule a record's key names; None where the key is no rule's. */
  def topicOf(key: Array[Byte]): Option[String] =
    Option(key).filter(_.startsWith(Array(KeyVersion, Kind))).flatMap { bytes =>
      try Some(reading("key", bytes) { in => in.skipNBytes(2); in.readUTF() })
      catch { case _: SinkException.UnreadableRecord => None }
    }

  def value(record: RuleRecord): Array[Byte] = bytesOf { out =>
    out.writeByte(Version.toInt)
    out.writeByte(Kind.toInt)
    out.writeByte(if (record.header.isEmpty) TimestampStrategy else HeaderStrategy)
    record.header.foreach(text(out, _))
    text(out, record.by)
    out.writeLong(record.sinceMs)
    option(out, record.repairedMs)(out.writeLong)
    option(out, record.held) { held =>
      out.writeLong(held.beforeMs)
      out.writeBoolean(held.isOwn)
      text(out, held.hold)
    }
  }

  /** Reads the rule of a topic.
    * @throws SinkException.UnreadableRecord where another release wrote it
    */
  def decode(topic: String, value: Array[Byte]): RuleRecord =
    reading(s"the rule of topic $topic", value) { in =>
      val version = in.readByte()
      if (version != Version) throw SinkException.unreadable(
        s"the rule of topic $topic",
        s"its format is $version, and this release reads $Version"
      )
      if (in.readByte() != Kind) throw new IOException("it is no rule")
      val header = in.readByte().toInt match {
        case TimestampStrategy => None
        case HeaderStrategy => Some(readText(in))
        case other => throw new IOException(s"strategy $other is unknown")
      }
      RuleRecord(
        topic,
        header,
        by = readText(in),
        sinceMs = in.readLong(),
        repairedMs = readOption(in)(in.readLong()),
        held = readOption(in)(HeldLag(in.readLong(), in.readBoolean(), readText(in)))
      )
    }
}
