package statemark.kafka.compaction

import org.apache.kafka.clients.consumer.ConsumerRecord
import org.apache.kafka.clients.producer.{ProducerRecord, RecordMetadata}
import org.apache.kafka.common.TopicPartition
import scala.annotation.tailrec
import scala.util.Using
import scala.util.control.NonFatal
import statemark.common.Clock
import statemark.kafka.{RowConsumer, RowProducer}
import statemark.kafka.clients.KafkaFailures
import statemark.kafka.conf.SinkException

/** What a repair takes from outside. Tests put faults in its place.
  * @param chunkKeys how many winners are copied between two looks at what came meanwhile
  * @param copying told before winners are copied
  * @param sees whether a record is noticed
  */
private[kafka] final case class RepairSeams(
    chunkKeys: Int = 1000,
    copying: () => Unit = () => (),
    sees: ConsumerRecord[Array[Byte], Array[Byte]] => Boolean = _ => true
)

/** The cleaner of a topic's log, which has to stay away from what a repair has not read. */
private[compaction] trait Cleaner {

  /** Told before winners are copied. */
  def copying(): Unit

  /** Asked after every read behind copies.
    * @throws SinkException where it may have come
    */
  def requireAway(): Unit
}

/** One reading of a topic, and the copies that follow from it.
  *
  * A producer may write a better record between the read that found a winner and the copy of that. The copy is the last
  * record then, and the cleaner would remove the better one. So every copy is followed by a read to behind it; what is
  * found there to beat it, is copied in turn, before anything else. Until it is read, the better record has to be in the
  * log: the cleaner must stay away from it.
  *
  * ''Thread:'' one at a time.
  */
private[compaction] final class TopicRepair(
    topic: String,
    rule: VersionRule,
    rules: TopicRules,
    windowMs: Option[Long],
    parts: TopicRepair.Parts,
    progress: CompactionProgress,
    clock: Clock,
    seams: RepairSeams
) {
  import TopicRepair._
  import parts.table

  private val places =
    Vector.tabulate(rules.partitions)(number => new TopicPartition(topic, number))
  private val reader = new TopicReader(parts.reading, places, clock, PatienceMs)
  private val fetcher = new RecordFetcher(parts.fetching, topic)
  private val state = new TopicScan(table, rule)
  private var appended = 0L
  // When the last read began: what has come since may not have been read.
  private var readAt = clock.nanos()

  /** Reads the topic up to its end. */
  def scan(): TopicReport = {
    readOn(Map.empty)
    state.report(reader.positions)
  }

  /** Reads the topic, and copies winners in rounds, each of which puts right what lies before its bounds: until no key is
    * wrong, somebody says stop, or producers have put keys wrong as fast for some rounds.
    * @return Left where a winner was gone before it was copied
    */
  def repair(cleaner: Cleaner): Either[SinkException, RepairReport] = {
    scan(): Unit
    // What came during the long read is read in a short one.
    val found = scan()
    table.oldestWrong.foreach(requireYoung)
    try {
      val bounds =
        if (found.wrong == 0) Some(reader.positions)
        else Using.resource(parts.copier())(round(_, cleaner, reader.positions, None, MostRounds))
      val ends = bounds.map(_.map { case (place, offset) => place.partition -> offset })
      Right(RepairReport(found, appended, table.wrong, ends, None))
    } catch { case e: Gone => Left(e.explained) }
  }

  /** @param bounds of this round, in each partition
    * @param done those of the last round that came to its end
    * @return the bounds of the last round that came to its end
    */
  @tailrec private def round(
      producer: RowProducer,
      cleaner: Cleaner,
      bounds: Map[TopicPartition, Long],
      done: Option[Map[TopicPartition, Long]],
      left: Int
  ): Option[Map[TopicPartition, Long]] = {
    places.foreach(place => copyBefore(producer, cleaner, place.partition, 0L, bounds(place)))
    if (progress.isStopped) done
    else if (table.wrong == 0) Some(reader.positions)
    else if (left == 1) Some(bounds)
    else round(producer, cleaner, reader.positions, Some(bounds), left - 1)
  }

  /** Copies the winners of wrong keys that lie from one offset of a partition on, and before another. */
  @tailrec private def copyBefore(
      producer: RowProducer,
      cleaner: Cleaner,
      partition: Int,
      offset: Long,
      bound: Long
  ): Unit = {
    val chunk = table.wrongFrom(partition, offset, seams.chunkKeys)
      .takeWhile(key => key.partition == partition && key.state.winner.offset < bound)
    if (chunk.nonEmpty && !progress.isStopped) {
      settle(producer, cleaner, chunk)
      progress.repaired(appended, table.wrong)
      copyBefore(producer, cleaner, partition, chunk.last.state.winner.offset + 1, bound)
    }
  }

  /** Copies winners, and whatever is better and came in between, until no copy lies on a better record. */
  @tailrec private def settle(
      producer: RowProducer,
      cleaner: Cleaner,
      keys: Vector[WrongKey]
  ): Unit = {
    val copied = copy(producer, cleaner, keys)
    // Also where a producer has written behind the copy: who reads the topic next takes a copy for a record, which would
    // beat one of its own version that lies before it.
    val buried = keys.flatMap { of =>
      val copyOffset = copied((of.partition, of.state.winner.offset))
      table.get(of.partition, of.key).filter(_.winner.offset < copyOffset)
        .map(now => of.copy(state = now))
    }
    if (buried.nonEmpty) settle(producer, cleaner, buried)
  }

  /** Copies winners to the ends of their partitions, and reads to behind the copies.
    * @return their offsets, by the places of the originals
    */
  private def copy(
      producer: RowProducer,
      cleaner: Cleaner,
      keys: Vector[WrongKey]
  ): Map[(Int, Long), Long] = {
    keys.foreach(requireYoung)
    val records = keys.groupBy(_.partition).toVector.sortBy(_._1).flatMap {
      case (partition, of) =>
        val offsets = of.map(_.state.winner.offset).sorted
        val found = fetcher.fetch(partition, offsets)
        if (found.size < offsets.size)
          throw new Gone(topic, partition, offsets.diff(found.map(_.offset)))
        found
    }
    cleaner.copying()
    seams.copying()
    val written = send(producer, records)
    appended += records.size
    val originals = written.map(at => (at.partition, at.offset)).zip(records.map(_.offset)).toMap
    val behind = written.groupMapReduce(m => new TopicPartition(topic, m.partition))(
      _.offset + 1
    )(math.max)
    readOn(behind, originals)
    cleaner.requireAway()
    originals.map { case ((partition, at), original) => (partition, original) -> at }
  }

  private def send(
      producer: RowProducer,
      records: Vector[ConsumerRecord[Array[Byte], Array[Byte]]]
  ): Vector[RecordMetadata] = {
    val sent = records.map { of =>
      val time = Option.when(of.timestamp >= 0)(Long.box(of.timestamp)).orNull
      val record =
        new ProducerRecord(topic, Int.box(of.partition), time, of.key, of.value, of.headers)
      record -> producer.send(record)
    }
    producer.flush()
    sent.map { case (record, result) =>
      try result.get()
      catch {
        case NonFatal(e) =>
          throw KafkaFailures.ofAttempt(
            KafkaFailures.unwrapped(e),
            "A copy of a winner",
            KafkaFailures.valuesOf(record)
          )
      }
    }
  }

  /** @param originals offsets of the records that were copied, by the places of their copies */
  private def readOn(
      least: Map[TopicPartition, Long],
      originals: Map[(Int, Long), Long] = Map.empty
  ): Unit = {
    val begun = clock.nanos()
    reader.readOn(least) { record =>
      if (seams.sees(record))
        state.add(record, originals.get((record.partition, record.offset)))
    } { ahead =>
      progress.scanned(state.records, ahead)
      progress.isStopped
    }
    val ms = (clock.nanos() - readAt) / 1000000L
    if (least.nonEmpty && windowMs.exists(ms > _)) throw new SinkException.FailedWrite(
      s"A record of topic $topic may have been removed that is better than a copy",
      s"the repair stood still for $ms ms, and the cleaner may have come first",
      s"Run it again with --set-lag, or raise ${CompactionLag.Setting}",
      Map("topic" -> topic),
      None
    )
    readAt = begun
  }

  /** A copy keeps its timestamp, by which the topic may refuse it, or delete it at once. */
  private def requireYoung(key: WrongKey): Unit = rules.oldest.foreach { oldest =>
    val age = clock.epochMs() - key.state.winner.timestampMs
    if (age > oldest.ms) throw new SinkException.RefusedSetting(
      s"Topic $topic cannot be repaired",
      s"a winner is $age ms old, and the topic takes none, or keeps none, above ${oldest.ms} (${oldest.setting})",
      s"Raise ${oldest.setting} for the time of the repair",
      Map(
        "topic" -> topic,
        "partition" -> key.partition.toString,
        "offset" -> key.state.winner.offset.toString
      )
    )
  }
}

private[compaction] object TopicRepair {

  /** What it works with; whoever makes the parts closes them.
    * @param copier makes a producer, which the repair closes
    */
  final case class Parts(
      reading: RowConsumer,
      fetching: RowConsumer,
      table: KeyTable,
      copier: () => RowProducer
  )

  /** Winners that the cleaner has taken. */
  private final class Gone(topic: String, partition: Int, offsets: Vector[Long])
      extends RuntimeException {
    def explained: SinkException = new SinkException.FailedWrite(
      s"Topic $topic is cleaned while it is repaired",
      s"offset ${offsets.head} of partition $partition was removed before it could be copied",
      s"Run the repair again, with --set-lag where ${CompactionLag.Setting} is short",
      Map("topic" -> topic),
      None
    )
  }

  /** So often are keys put right that producers have put wrong meanwhile. */
  private val MostRounds = 5

  /** As long as the longest transaction that brokers allow by default, and some more. */
  private val PatienceMs = 20L * 60 * 1000
}
