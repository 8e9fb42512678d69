package statemark.kafka.driver

import java.time.Duration
import org.apache.kafka.clients.admin.{Admin, TopicDescription}
import org.apache.kafka.clients.consumer.{ConsumerRecord, OffsetOutOfRangeException}
import org.apache.kafka.clients.producer.ProducerRecord
import org.apache.kafka.common.TopicPartition
import scala.collection.mutable
import scala.jdk.CollectionConverters._
import statemark.common.Clock
import statemark.kafka.RowConsumer
import statemark.kafka.clients.{KafkaClients, TopicLookup}
import statemark.kafka.conf.SinkException
import statemark.kafka.decision.{DecidedRows, DecidedTransaction}
import statemark.kafka.rows.{OffsetRuns, RowHash, RowSpool, TransactionName}

/** Reads decided rows back from the output topics, whatever became of their transactions. ''Thread:'' the driver's. */
trait LogRows {

  /** Reads the rows that readers do not have, checked by their number, and by their hash where the log has those that
    * were copied as well.
    * @return the rows, which the caller closes, and why those of some transactions are lost
    * @throws SinkException.Unavailable where the brokers do not answer
    */
  private[kafka] def read(transactions: Seq[UncopiedRows]): FoundRows
}

/** The rows of a transaction that were not copied.
  * @param copied how many of its rows, in the order of the decision, readers have by an earlier copy: the log need not have
  *   these any more
  */
private[kafka] final case class UncopiedRows(transaction: DecidedTransaction, copied: Long) {

  /** The rows by topic partition, each with how many of its first ones were copied; none that were copied whole. */
  def places: Vector[(DecidedRows, Long)] = {
    val before = transaction.rows.scanLeft(0L)(_ + _.runs.count)
    transaction.rows.zip(before).collect {
      case (rows, at) if at + rows.runs.count > copied => (rows, math.max(0L, copied - at))
    }
  }
}

/** Rows that were read back. Whoever asked for them closes them. ''Thread:'' the driver's. */
private[kafka] trait FoundRows {

  /** Why the rows of a transaction are not there any more. */
  def lost: Map[TransactionName, String]

  /** Returns the rows of a transaction that were not copied, in the order of its decision: by topic, partition and offset. */
  def of(transaction: DecidedTransaction): Iterator[ProducerRecord[Array[Byte], Array[Byte]]]

  def close(): Unit
}

private[kafka] final class SpooledRows(
    spool: RowSpool,
    override val lost: Map[TransactionName, String]
) extends FoundRows {

  override def of(
      transaction: DecidedTransaction
  ): Iterator[ProducerRecord[Array[Byte], Array[Byte]]] =
    spool.records(
      transaction.rows.map(r => RowSpool.Group(transaction.name, r.topicPartition))
    )

  override def close(): Unit = spool.close()
}

private[kafka] final class TopicLogRows(
    clients: KafkaClients,
    admin: Admin,
    clock: Clock,
    commitTopic: String,
    patienceMs: Long
) extends LogRows {

  private val topicsAt = new TopicLookup(admin, commitTopic, TopicLookup.ForDecisions)

  override def read(transactions: Seq[UncopiedRows]): FoundRows = {
    val spool = new RowSpool(RowSpool.MemoryBytes)
    try {
      val consumer = clients.consumer(committedOnly = false)
      try new SpooledRows(
          spool,
          new LogReading(consumer, topicsAt, clock, patienceMs, spool).of(transactions)
        )
      finally consumer.close()
    } catch {
      case e: Throwable =>
        spool.close()
        throw e
    }
  }
}

/** One pass over the log: all partitions side by side, each from the first row that is wanted there to the last. */
private final class LogReading(
    consumer: RowConsumer,
    topicsAt: TopicLookup,
    clock: Clock,
    patienceMs: Long,
    spool: RowSpool
) {
  import LogReading._

  private val lost = mutable.Map.empty[TransactionName, String]

  /** Reads the rows of the transactions into the spool.
    * @return what is lost, and why
    */
  def of(transactions: Seq[UncopiedRows]): Map[TransactionName, String] = {
    val wanted = transactions.flatMap(t =>
      t.places.map { case (rows, copied) => new Wanted(t.transaction.name, rows, copied) }
    )
    def isIn(topics: Map[String, TopicDescription])(w: Wanted) =
      topics.get(w.place.topic).exists(_.partitions.size > w.place.partition)
    val topics = topicsAt.find(wanted.map(_.place.topic).distinct)(t => wanted.forall(isIn(t)))
    wanted.filterNot(isIn(topics)).foreach(w => lose(w, s"${w.place} is not there any more"))
    val begins = loseOutside(isThere(wanted))
    val places = isThere(wanted).groupBy(_.place)
      .map { case (place, of) => place -> new Place(place, of, begins(place), clock.nanos()) }
    consumer.assign(places.keySet.asJava)
    places.values.foreach(place => seek(place, place.position))
    var open = places
    while (open.nonEmpty) {
      poll(open)
      val (done, left) = open.partition { case (_, place) => place.isDone }
      done.values.flatMap(_.wanted).foreach(w => w.lack.foreach(lose(w, _)))
      if (done.nonEmpty) consumer.pause(done.keySet.asJava)
      open = left
    }
    lost.toMap
  }

  private def isThere(wanted: Seq[Wanted]): Seq[Wanted] =
    wanted.filterNot(w => lost.contains(w.transaction))

  private def lose(wanted: Wanted, why: String): Unit =
    lost.getOrElseUpdate(wanted.transaction, why): Unit

  /** Loses rows that lie before the beginning of their partition's log, or behind its end.
    * @return where the log of each partition begins
    */
  private def loseOutside(wanted: Seq[Wanted]): Map[TopicPartition, Long] = {
    val places = wanted.map(_.place).toSet.asJava
    val begins = consumer.beginningOffsets(places).asScala.view.mapValues(_.toLong).toMap
    val ends = consumer.endOffsets(places)
    wanted.foreach { w =>
      val (first, last) = (w.uncopied.first, w.uncopied.last)
      if (ends.get(w.place) <= last)
        lose(w, s"${w.place} ends at ${ends.get(w.place)}, before offset $last")
      else if (begins(w.place) > first)
        lose(w, s"${w.place} begins at ${begins(w.place)}, behind offset $first")
    }
    begins
  }

  private def poll(open: Map[TopicPartition, Place]): Unit = {
    val records =
      try Some(consumer.poll(Poll))
      catch {
        // The log has lost them since the reading began.
        case e: OffsetOutOfRangeException =>
          val changed = e.partitions.asScala.flatMap(open.get).toSeq
          val known = lost.size
          val begins = loseOutside(changed.flatMap(_.wanted))
          // Rows that were copied are not missed.
          val isBehind = changed.exists(place => place.position < begins(place.place))
          if (lost.size == known && !isBehind)
            throw unavailable("a partition's log has changed", e.getMessage)
          changed.foreach(_.drop(lost.contains))
          changed.foreach { place =>
            place.position = math.max(place.position, begins(place.place))
            place.next.foreach(seek(place, _))
          }
          None
      }
    open.values.foreach { place =>
      place.drop(lost.contains)
      records.foreach(r => take(place, r.records(place.place).asScala.toSeq))
      move(place)
    }
  }

  /** A group after another, so that rows which lie between each other in the log do not in the spool. */
  private def take(
      place: Place,
      records: Seq[ConsumerRecord[Array[Byte], Array[Byte]]]
  ): Unit = place.wanted.foreach { w =>
    records.filter(record => w.rows.runs.contains(record.offset)).foreach { record =>
      w.take(RowHash.of(record.key, record.value, record.headers), record.offset)
      if (w.uncopied.contains(record.offset))
        spool.add(RowSpool.Group(w.transaction, w.place), record)
    }
  }

  /** Markers at the end of transactions have offsets, and no poll returns them: what counts is the position. */
  private def move(place: Place): Unit = if (!place.isDone) {
    val now = consumer.position(place.place)
    if (now > place.position) place.lastProgress = clock.nanos()
    else if (clock.nanos() - place.lastProgress > patienceMs * 1000000L)
      throw unavailable(s"the brokers sent nothing for $patienceMs ms", s"${place.place} at $now")
    place.position = now
    place.next.filter(_ > now + Skipped).foreach(seek(place, _))
  }

  private def seek(place: Place, offset: Long): Unit = {
    consumer.seek(place.place, offset)
    place.position = offset
  }

  private def unavailable(why: String, where: String) = new SinkException.Unavailable(
    "Rows of a decision cannot be read back",
    why,
    "Start the query again once the partition has a leader",
    Map("partition" -> where)
  )
}

private object LogReading {
  val Poll: Duration = Duration.ofMillis(100)

  /** A gap of so many offsets is not read, but jumped over. */
  val Skipped: Long = 10000

  /** Rows of one transaction in one partition, and what was found of them.
    * @param copied how many of the first ones are with the readers. They are read for the hash, which is of all rows, and
    *   may be gone
    */
  final class Wanted(val transaction: TransactionName, val rows: DecidedRows, copied: Long) {
    private var found = 0L
    private var foundUncopied = 0L
    private var hash = 0L

    /** The rows that have to be there. */
    val uncopied: OffsetRuns = rows.runs.drop(copied)

    def place: TopicPartition = rows.topicPartition

    def take(ofRow: Long, offset: Long): Unit = {
      found += 1
      if (uncopied.contains(offset)) foundUncopied += 1
      hash += ofRow
    }

    def lack: Option[String] =
      if (foundUncopied != uncopied.count)
        Some(s"$place has $foundUncopied of ${uncopied.count} rows")
      else Option.when(found == rows.runs.count && hash != rows.hash)(
        s"$place has other rows at these offsets: their hash is $hash, and that of the decision " +
          s"${rows.hash}"
      )
  }

  /** A partition, how far it is read, and when that was further than before. */
  final class Place(val place: TopicPartition, all: Seq[Wanted], begin: Long, begun: Long) {
    var wanted: Seq[Wanted] = all
    var position: Long = math.max(begin, all.map(_.rows.runs.first).min)
    var lastProgress: Long = begun

    /** The next offset that is wanted. */
    def next: Option[Long] = wanted.flatMap(_.rows.runs.next(position)).minOption

    def isDone: Boolean = next.isEmpty

    /** Leaves out what is lost already. */
    def drop(isLost: TransactionName => Boolean): Unit =
      wanted = wanted.filterNot(w => isLost(w.transaction))
  }
}
