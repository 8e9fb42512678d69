package statemark.kafka.compaction

import org.apache.kafka.clients.consumer.ConsumerRecord
import org.apache.kafka.common.TopicPartition
import scala.jdk.CollectionConverters._

/** What was read of a topic.
  * @param records all of them; those without a key take part in nothing
  * @param keys each counted in every partition that has it
  * @param wrong keys of which Kafka's cleaner keeps, or has kept, another record than the winner
  * @param firstWrong some of them
  * @param withoutVersion records without the header
  * @param unreadable records whose header has not 8 bytes, which count as without
  * @param negative records with a version below 0
  * @param ends where reading has stopped, by partition
  * @param isWhole whether all of the topic was read; false where somebody said stop
  * @param tombstones what is to be said of deletions; None where they stay for long enough, as far as that is known
  */
final case class TopicReport(
    records: Long,
    withoutKey: Long,
    keys: Long,
    wrong: Long,
    firstWrong: Vector[WrongRecord],
    withoutVersion: Long,
    unreadable: Long,
    negative: Long,
    ends: Map[Int, Long],
    isWhole: Boolean,
    tombstones: Option[TombstoneRisk] = None
)

/** A key whose last record is not the winner.
  * @param winnerVersion and `lastVersion`: None for records without one
  */
final case class WrongRecord(
    partition: Int,
    key: Array[Byte],
    winnerOffset: Long,
    winnerVersion: Option[Long],
    lastOffset: Long,
    lastVersion: Option[Long]
)

/** Knows the winner, and the last record, of every key that it was shown. ''Thread:'' one at a time. */
private[compaction] final class TopicScan(table: KeyTable, rule: VersionRule) {
  private var seen = 0L
  private var withoutKey = 0L
  private var withoutVersion = 0L
  private var unreadable = 0L
  private var negative = 0L
  private var mostBytes = 0
  private var without = Option.empty[(Int, Long)]

  /** How many it was shown. */
  def records: Long = seen

  /** About how large the largest of them is. */
  def largest: Int = mostBytes

  /** The partition and the offset of the first record that has a key and no version. */
  def firstWithout: Option[(Int, Long)] = without

  /** Takes a record; those of a partition come in their order.
    * @param original the offset of the record that it is a copy of, where it is one of this repair: a copy takes the place of
    *   its original, and beats nothing that has the same version and came in between
    */
  def add(record: ConsumerRecord[Array[Byte], Array[Byte]], original: Option[Long]): Unit = {
    seen += 1
    val version = rule.of(record)
    count(record, version)
    Option(record.key) match {
      case None => withoutKey += 1
      case Some(key) =>
        if (version.isEmpty && without.isEmpty) without = Some((record.partition, record.offset))
        val candidate = Candidate(version, record.offset, record.timestamp, bytesOf(record))
        mostBytes = math.max(mostBytes, candidate.bytes)
        val before = table.get(record.partition, key)
        val isWinner = before.forall { b =>
          original.fold(VersionRule.beats(version, b.winner.version))(_ == b.winner.offset)
        }
        val now = KeyState(if (isWinner) candidate else before.fold(candidate)(_.winner), candidate)
        table.put(record.partition, key, before, now)
    }
  }

  private def count(
      record: ConsumerRecord[Array[Byte], Array[Byte]],
      version: Option[Long]
  ): Unit = {
    if (version.exists(_ < 0)) negative += 1
    rule match {
      case header: VersionRule.Header if version.isEmpty =>
        if (header.bytes(record).isDefined) unreadable += 1 else withoutVersion += 1
      case _ => ()
    }
  }

  private def bytesOf(record: ConsumerRecord[Array[Byte], Array[Byte]]): Int = {
    def length(bytes: Array[Byte]) = Option(bytes).fold(0)(_.length)
    record.headers.iterator.asScala.foldLeft(
      TopicScan.RecordBytes + length(record.key) + length(record.value)
    )((sum, header) => sum + TopicScan.RecordBytes + header.key.length + length(header.value))
  }

  def report(positions: Map[TopicPartition, Long], isWhole: Boolean): TopicReport = TopicReport(
    seen,
    withoutKey,
    table.keys,
    table.wrong,
    table.wrongFrom(0, 0, TopicScan.Shown).map { of =>
      val KeyState(winner, last) = of.state
      WrongRecord(
        of.partition,
        of.key,
        winner.offset,
        winner.version,
        last.offset,
        last.version
      )
    },
    withoutVersion,
    unreadable,
    negative,
    positions.map { case (place, offset) => place.partition -> offset },
    isWhole
  )
}

private object TopicScan {
  private val Shown = 10

  /** What a record, or a header, has besides its bytes, at most. */
  private val RecordBytes = 25
}
