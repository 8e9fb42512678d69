package statemark.kafka

import java.time.Duration
import java.util.Collections
import org.apache.kafka.clients.admin.Admin
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException
import org.apache.kafka.common.TopicPartition
import scala.jdk.CollectionConverters._
import statemark.common.Clock

/** Reads decided rows back from the output topics, whatever became of their transactions. ''Thread:'' the driver's. */
trait LogRows {

  /** All rows of a transaction, in the order of the decision, checked by number and hash.
    * @return the rows, which the caller closes; or why they are lost
    * @throws SinkException.Unavailable where the brokers do not answer
    */
  private[kafka] def read(transaction: DecidedTransaction): Either[String, RowSpool]
}

private[kafka] final class TopicLogRows(
    clients: KafkaClients,
    admin: Admin,
    clock: Clock,
    patienceMs: Long
) extends LogRows {

  override def read(transaction: DecidedTransaction): Either[String, RowSpool] = {
    val spool = new RowSpool(RowSpool.MemoryBytes)
    val lost =
      try {
        val consumer = clients.consumer(committedOnly = false)
        try transaction.rows.iterator.flatMap(lack(consumer, _, spool)).nextOption()
        finally consumer.close()
      } catch {
        case e: Throwable =>
          spool.close()
          throw e
      }
    lost match {
      case Some(reason) =>
        spool.close()
        Left(reason)
      case None => Right(spool)
    }
  }

  /** Adds the rows of one partition; what is missing of them, if anything. */
  private def lack(consumer: RowConsumer, rows: DecidedRows, spool: RowSpool): Option[String] = {
    val place = rows.topicPartition
    if (!TopicChecks.describe(admin, place.topic).exists(_.partitions.size > place.partition))
      Some(s"$place is not there any more")
    else {
      consumer.assign(Collections.singleton(place))
      val ends = consumer.endOffsets(Collections.singleton(place))
      if (ends.get(place) <= rows.runs.last)
        Some(s"$place ends at ${ends.get(place)}, before offset ${rows.runs.last}")
      else
        try lackOfRead(consumer, place, rows, spool)
        catch {
          case e: OffsetOutOfRangeException =>
            Some(s"$place does not have offset ${rows.runs.first} any more: ${e.getMessage}")
        }
    }
  }

  private def lackOfRead(
      consumer: RowConsumer,
      place: TopicPartition,
      rows: DecidedRows,
      spool: RowSpool
  ): Option[String] = {
    var found = 0L
    var hash = 0L
    var lastProgress = clock.nanos()
    var position = rows.runs.first
    consumer.seek(place, position)
    while (position <= rows.runs.last) {
      consumer.poll(TopicLogRows.Poll).records(place).asScala
        .filter(record => rows.runs.contains(record.offset)).foreach { record =>
          found += 1
          hash += RowHash.of(record.key, record.value, record.headers)
          spool.add(record)
        }
      // Markers at the end of transactions have offsets, and no poll returns them.
      val now = consumer.position(place)
      if (now > position) lastProgress = clock.nanos()
      else if (clock.nanos() - lastProgress > patienceMs * 1000000L) throw late(place, now)
      position = rows.runs.next(now).filter(_ > now + TopicLogRows.Skipped) match {
        case Some(next) =>
          consumer.seek(place, next)
          next
        case None => now
      }
    }
    if (found != rows.runs.count) Some(s"$place has $found of ${rows.runs.count} rows")
    else Option.when(hash != rows.hash)(
      s"$place has other rows at these offsets: their hash is $hash, and that of the decision " +
        s"${rows.hash}"
    )
  }

  private def late(place: TopicPartition, position: Long) = new SinkException.Unavailable(
    "Rows of a decision cannot be read back",
    s"the brokers sent nothing for $patienceMs ms",
    "Start the query again once the partition has a leader",
    Map("partition" -> place.toString, "position" -> position.toString)
  )
}

private object TopicLogRows {
  val Poll: Duration = Duration.ofMillis(100)

  /** A gap of so many offsets is not read, but jumped over. */
  val Skipped: Long = 10000
}
