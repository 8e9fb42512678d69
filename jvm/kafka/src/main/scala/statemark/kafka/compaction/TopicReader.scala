package statemark.kafka.compaction

import java.time.Duration
import org.apache.kafka.clients.consumer.{
  ConsumerRecord,
  LogTruncationException,
  OffsetOutOfRangeException
}
import org.apache.kafka.common.TopicPartition
import scala.collection.mutable
import scala.jdk.CollectionConverters._
import statemark.common.Clock
import statemark.kafka.RowConsumer
import statemark.kafka.conf.SinkException

/** Reads a topic from its beginning to its end, and on from there. ''Thread:'' one at a time. */
private[compaction] final class TopicReader(
    consumer: RowConsumer,
    places: Vector[TopicPartition],
    clock: Clock,
    patienceMs: Long
) {
  consumer.assign(places.asJava)
  consumer.seekToBeginning(places.asJava)

  /** Where the next record of each partition is read. */
  def positions: Map[TopicPartition, Long] = places.map(p => p -> consumer.position(p)).toMap

  /** Reads up to the end that each partition has now, and at least up to `least`.
    * @param each takes the records, those of a partition in their order
    * @param pass called after each answer of the brokers, with the number of records that are still ahead; whether to stop
    *   here, which counts only where nothing has to be reached
    * @return whether it came to the ends; false where it was stopped
    * @throws SinkException.Unavailable where `least` is not reached, as a transaction holds readers back
    * @throws SinkException.FailedWrite where the log ends before what was read of it
    */
  def readOn(least: Map[TopicPartition, Long])(
      each: ConsumerRecord[Array[Byte], Array[Byte]] => Unit
  )(pass: Long => Boolean): Boolean = {
    val ends = consumer.endOffsets(places.asJava).asScala
    val wanted = places.map(p => p -> math.max(ends(p).longValue, least.getOrElse(p, 0L))).toMap
    def ahead = places.map(p => p -> math.max(0L, wanted(p) - consumer.position(p)))
    var movedAt = clock.nanos()
    var left = ahead
    var isStopped = false
    while (!isStopped && left.exists(_._2 > 0)) {
      try consumer.poll(TopicReader.Poll).forEach(each(_))
      catch { case e: OffsetOutOfRangeException => TopicReader.beginLater(consumer, e) }
      val now = ahead
      if (now != left) movedAt = clock.nanos()
      left = now
      left.find(_._2 > 0).foreach { case (place, _) =>
        if (clock.nanos() - movedAt > patienceMs * 1000000L) throw held(place)
      }
      isStopped = pass(left.map(_._2).sum) && least.isEmpty
    }
    left.forall(_._2 == 0)
  }

  private def held(place: TopicPartition) = new SinkException.Unavailable(
    s"Partition $place cannot be read to its end",
    s"nothing has come for ${patienceMs / 1000} s: a transaction is open there, or its broker does not answer",
    "See which with `statemark topic status` or kafka-transactions.sh find-hanging, and run this again",
    Map("partition" -> place.toString, "offset" -> consumer.position(place).toString)
  )
}

private[compaction] object TopicReader {
  private[compaction] val Poll = Duration.ofMillis(200)

  /** Goes on at the beginning of a log that begins later than it did: the brokers delete old segments of a topic that is not
    * only compacted.
    * @throws SinkException.FailedWrite where the log ends earlier than it did
    */
  private[compaction] def beginLater(
      consumer: RowConsumer,
      failure: OffsetOutOfRangeException
  ): Unit = {
    val begins = consumer.beginningOffsets(failure.partitions).asScala
    failure.offsetOutOfRangePartitions.asScala.foreach { case (place, offset) =>
      if (
        failure.isInstanceOf[LogTruncationException] || begins(place).longValue <= offset.longValue
      )
        throw new SinkException.FailedWrite(
          s"Partition $place ends earlier than it did",
          s"offset $offset is not there: the topic was made anew, or its leader lacked records",
          "Run this again, which reads the topic from its beginning",
          Map("partition" -> place.toString, "offset" -> offset.toString),
          Some(failure)
        )
    }
    consumer.seekToBeginning(failure.partitions)
  }
}

/** Reads single records. ''Thread:'' one at a time.
  * @param patienceMs how long the brokers may give nothing
  */
private[compaction] final class RecordFetcher(
    consumer: RowConsumer,
    topic: String,
    clock: Clock,
    patienceMs: Long
) {
  import RecordFetcher.NearOffsets

  /** The records at these offsets of a partition, in their order: those that are still there.
    * @param isStopped whether to give up
    * @return None where it has given up
    * @throws SinkException.Unavailable where the brokers give nothing
    */
  def fetch(partition: Int, offsets: Vector[Long])(
      isStopped: => Boolean
  ): Option[Vector[ConsumerRecord[Array[Byte], Array[Byte]]]] = {
    val place = new TopicPartition(topic, partition)
    if (consumer.assignment != java.util.Set.of(place)) {
      consumer.assign(java.util.List.of(place))
      offsets.headOption.foreach(consumer.seek(place, _))
    }
    val found = Vector.newBuilder[ConsumerRecord[Array[Byte], Array[Byte]]]
    val wanted = mutable.Queue.from(offsets)
    var movedAt = clock.nanos()
    var isGivenUp = false
    while (wanted.nonEmpty && !isGivenUp) {
      val ahead = wanted.head - consumer.position(place)
      if (ahead < 0 || ahead > NearOffsets) consumer.seek(place, wanted.head)
      val before = consumer.position(place)
      polled().foreach { record =>
        while (wanted.headOption.exists(_ < record.offset)) wanted.dequeue(): Unit
        if (wanted.headOption.contains(record.offset)) {
          found += record
          wanted.dequeue(): Unit
        }
      }
      while (wanted.headOption.exists(_ < consumer.position(place))) wanted.dequeue(): Unit
      if (consumer.position(place) != before) movedAt = clock.nanos()
      if (clock.nanos() - movedAt > patienceMs * 1000000L) throw silent(place, before)
      isGivenUp = isStopped
    }
    Option.when(!isGivenUp || wanted.isEmpty)(found.result())
  }

  /** Next records, none where the log begins later by now. */
  private def polled(): Vector[ConsumerRecord[Array[Byte], Array[Byte]]] =
    try consumer.poll(TopicReader.Poll).asScala.toVector
    catch {
      case e: OffsetOutOfRangeException =>
        TopicReader.beginLater(consumer, e)
        Vector.empty
    }

  private def silent(place: TopicPartition, offset: Long) = new SinkException.Unavailable(
    s"Partition $place cannot be read",
    s"nothing has come for ${patienceMs / 1000} s: does it have a leader?",
    "Run this again when all brokers are up",
    Map("partition" -> place.toString, "offset" -> offset.toString)
  )
}

private[compaction] object RecordFetcher {

  /** Up to so far ahead, records are read over: a fetch brings about as many. */
  private val NearOffsets = 1000L
}
