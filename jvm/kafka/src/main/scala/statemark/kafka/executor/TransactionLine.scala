package statemark.kafka.executor

import java.time.Duration
import java.util.concurrent.atomic.AtomicLong
import java.util.concurrent.locks.ReentrantReadWriteLock
import org.apache.kafka.clients.producer.{ProducerRecord, RecordMetadata}
import org.apache.kafka.common.errors.TimeoutException
import scala.collection.mutable
import scala.math.Ordering.Implicits._
import scala.util.control.NonFatal
import statemark.common.Clock
import statemark.kafka.RowProducer
import statemark.kafka.clients.{
  GroupOffsets,
  KafkaClients,
  KafkaFailures,
  RefusedRecord,
  Timer,
  TransactionEndings
}
import statemark.kafka.conf.{
  SinkException,
  SinkObserver,
  SinkPhase,
  SinkSettings,
  SinkTransactionalId
}
import statemark.kafka.log.RunReader
import statemark.kafka.rows.{AttemptId, AttemptRows, FirstFailure, RowHash, TransactionName}

/** The transactions of one transactional id in this process, one after another: a producer, at most one open transaction,
  * and what became of those before. `numbers` are the process's, so that none is given twice.
  *
  * All tasks of an executor write into the open transaction, side by side: they hold the lock as readers while they send.
  * Whoever ends a transaction holds it as the writer, so "does the transaction hold rows of exactly these attempts" and
  * "nobody writes to it any more" are one step. Callbacks of the producer never take the lock.
  *
  * A transaction that cannot be committed as it is, is aborted at once, and those who still write go on in the next: the
  * rows that count will be copied (failed and surplus attempts, a timeout that comes near).
  *
  * ''Thread:'' any.
  */
private[kafka] final class TransactionLine(
    id: SinkTransactionalId,
    val settings: SinkSettings,
    clients: KafkaClients,
    limits: TransactionLine.Limits,
    seams: TransactionLine.Seams,
    numbers: AtomicLong = new AtomicLong
) {
  import TransactionLine._

  val transactionalId: String = id.text
  private val lock = new ReentrantReadWriteLock
  // Changed by whoever holds the lock as the writer.
  private var producer: Option[RowProducer] = None
  @volatile private var current: Option[OpenTransaction] = None
  private var lastNumber = 0L
  @volatile private var lastLease = Lease.none
  private var broken: Option[Broken] = None
  private var isClosed = false
  private var idleCheck = Option.empty[Timer.Cancel]
  // How long the last transaction that failed had been open by then.
  @volatile private var failedAfterMs = Option.empty[Long]
  private var usedNanos = 0L
  private val ended = new mutable.LinkedHashMap[Long, CommitAnswer]
  private val endings = new TransactionEndings(clients, settings)

  /** A failure of an attempt as somebody who runs a query can use it. */
  def explained(failure: Throwable, values: Map[String, String]): SinkException =
    endings.explained(transactionalId, failure, values, failedAfterMs, () => laterRun)

  private def laterRun: Option[SinkException.Superseded] =
    try {
      reading(_.requireLast())
      None
    } catch {
      case e: SinkException.Superseded => Some(e)
      case NonFatal(_) => None // it is not known, and the failure has to be told
    }

  /** Sends a row of an attempt; begins a transaction where none is open.
    * @param opens whether a producer may be opened for it: on executors, not in the driver
    */
  def send(
      rows: AttemptRows,
      lease: Lease,
      opens: Boolean,
      record: ProducerRecord[Array[Byte], Array[Byte]]
  ): Unit = {
    val hash = RowHash.of(record.key, record.value, record.headers)
    def refused(metadata: Option[RecordMetadata], cause: Throwable) =
      RefusedRecord.of(record, metadata, rows.attempt.partition, cause)
    sharing(lease, opens) { (transaction, producer) =>
      transaction.add(rows.attempt)
      rows.sending()
      try
        producer.send(
          record,
          (metadata, failure) => {
            Option(failure).foreach(e => fail(transaction, refused(Option(metadata), e)))
            val first = Option(failure).map(_ => transaction.firstFailure)
            rows.acknowledged(transaction.name, metadata, first, hash)
          }
        ): Unit
      catch {
        case NonFatal(e) if KafkaFailures.isInterrupt(e) =>
          rows.unsent(FirstFailure.of(e))
          throw e
        case NonFatal(e) =>
          // The client takes no row any more before it tells of the one that it could not send.
          try awaitRows(producer, Some(transaction))
          catch { case NonFatal(_) => () } // an interrupt stays with the thread
          fail(transaction, refused(None, e))
          rows.unsent(transaction.firstFailure)
          throw transaction.failure.getOrElse(e)
      }
    }
  }

  /** Waits until every row that was sent is acknowledged, or has failed. */
  def flush(): Unit = {
    lock.readLock.lock()
    try producer.foreach(awaitRows(_, current))
    finally lock.readLock.unlock()
  }

  /** Aborts the open transaction if it may hold rows of this attempt: it can never be committed as it is. */
  def abort(attempt: AttemptId): Unit = exclusively {
    current.filter(_.attempts.contains(attempt)).foreach(end)
  }

  /** Aborts the open transaction if it holds no rows of batches after `batch`: those are given up. Brokers that do not
    * answer are not waited for, as the caller may be a query that is stopped: the abort goes on without it.
    */
  def abort(batch: Long): Unit = if (current.isDefined) {
    val aborts: Runnable = () =>
      exclusively(current.filter(_.attempts.forall(_.batch <= batch)).foreach(giveUp))
    val thread = new Thread(aborts, s"abort-$transactionalId")
    thread.setDaemon(true)
    thread.start()
    KafkaFailures.uninterrupted(thread.join(limits.patienceMs))
  }

  /** Commits a transaction with `records` as its last rows, if it is open and holds rows of exactly these attempts;
    * aborts it otherwise.
    * @param phases what to tell once the records are sent, and once they are committed
    * @param offsets committed with them
    */
  def commit(
      number: Long,
      attempts: Set[AttemptId],
      records: Seq[ProducerRecord[Array[Byte], Array[Byte]]],
      phases: (SinkPhase, SinkPhase),
      offsets: GroupOffsets = GroupOffsets.none
  ): CommitAnswer = exclusively {
    ended.getOrElse(
      number,
      current.filter(_.name.number == number) match {
        case Some(open) =>
          if (open.failure.isEmpty && seams.attemptsMatch(open.attempts, attempts))
            commit(open, records, phases, offsets)
          else end(open)
          ended(number)
        case None => CommitAnswer.Unknown
      }
    )
  }

  private def commit(
      open: OpenTransaction,
      records: Seq[ProducerRecord[Array[Byte], Array[Byte]]],
      phases: (SinkPhase, SinkPhase),
      offsets: GroupOffsets
  ): Unit = {
    val own = producer.get
    val isCommitted =
      try {
        records.foreach(record => own.send(record): Unit)
        offsets.addTo(own)
        seams.observer.reached(phases._1)
        KafkaFailures.uninterrupted(own.commitTransaction())
        close(open, CommitAnswer.Committed)
        true
      } catch {
        // An abort that follows tells that the commit was never asked for; no other answer does.
        case NonFatal(e) if !KafkaFailures.isTimeout(e) && !KafkaFailures.isFenced(e) =>
          fail(open, e)
          end(open)
          false
        case NonFatal(e) =>
          fail(open, e)
          break(e)
          close(open, CommitAnswer.Unknown)
          false
      }
    if (isCommitted) seams.observer.reached(phases._2)
  }

  /** Initializes the id, which fences whoever used it before: for the driver, at a recovery.
    * @throws Exception of the client, as it is
    */
  def open(): Unit = exclusively {
    if (isClosed) throw ofBroken()
    current.foreach(giveUp)
    release(graceful = false)
    broken = None
    openProducer()
  }

  /** Runs `body` in a transaction of its own: for what the driver decides and copies. Where it fails, the producer is given
    * up and nobody knows whether it is committed, before the id is initialized again.
    * @throws Exception of the client, as it is
    */
  def transaction[A](body: RowProducer => A): A = exclusively {
    current.foreach(end)
    val own = producer.getOrElse(throw ofBroken())
    lastNumber = numbers.incrementAndGet()
    try {
      own.beginTransaction()
      val result = body(own)
      KafkaFailures.uninterrupted(own.commitTransaction())
      result
    } catch {
      case NonFatal(e) =>
        if (!KafkaFailures.isTimeout(e) && !KafkaFailures.isFenced(e))
          // Readers need not wait for the timeout; the outcome counts as unknown all the same.
          try KafkaFailures.uninterrupted(own.abortTransaction())
          catch { case NonFatal(_) => () }
        break(e)
        throw e
    }
  }

  /** Aborts what is open and gives the producer up, for good: a task of the run that has ended, and still writes, must not
    * take the id from the next one.
    */
  def close(): Unit = exclusively {
    current.foreach(giveUp)
    release(graceful = true)
    broken = None
    isClosed = true
  }

  private def sharing[A](lease: Lease, opens: Boolean)(
      body: (OpenTransaction, RowProducer) => A
  ): A = {
    lock.readLock.lock()
    val ready =
      if (lease == lastLease && current.exists(isUsable)) (current.get, producer.get)
      else {
        lock.readLock.unlock()
        lock.writeLock.lock()
        try {
          val prepared = prepare(lease, opens)
          lock.readLock.lock()
          prepared
        } finally lock.writeLock.unlock()
      }
    try body(ready._1, ready._2)
    finally lock.readLock.unlock()
  }

  private def prepare(lease: Lease, opens: Boolean): (OpenTransaction, RowProducer) = {
    if (lease.run < lastLease.run) throw SinkException.superseded(lease.run, lastLease.run)
    if (lease > lastLease) {
      current.foreach(giveUp)
      // The driver's own producer is its own affair.
      if (opens) {
        release(graceful = true)
        broken = None
      }
      lastLease = lease
    }
    current.filterNot(isUsable).foreach(end)
    if (current.isEmpty) begin(opens)
    (current.get, producer.get)
  }

  private def begin(opens: Boolean): Unit = {
    if (opens && producer.isDefined && isForgotten) release(graceful = false)
    if (producer.isEmpty) {
      if (isClosed || !opens || broken.exists(_.isOver)) throw ofBroken()
      takeId()
    }
    try producer.get.beginTransaction()
    catch {
      case NonFatal(e) =>
        failedAfterMs = None
        break(e)
        throw e
    }
    lastNumber = numbers.incrementAndGet()
    idleCheck.foreach(_.cancel())
    idleCheck = None
    val name = TransactionName(transactionalId, lastNumber)
    val ending = seams.timer.after(limits.mostOpenMs)(endIfOpen(name.number))
    current = Some(new OpenTransaction(name, seams.clock.nanos(), ending))
  }

  /** Tells whether the brokers have dropped the id, as nobody has used it for long. */
  private def isForgotten: Boolean =
    endings.isForgotten(transactionalId, sinceMs(usedNanos)).contains(true)

  /** Initializes the id, whatever has become of the producer before: the brokers ended a transaction, or gave no answer, or a
    * run that is over took the id. This executor's run may be over itself. So it asks before, and again behind, as a run may
    * have begun in between: such an executor sends no row, and the later run takes the id back in the same way.
    */
  private def takeId(): Unit =
    try reading { runs =>
        runs.requireLast()
        openProducer()
        try runs.requireLast()
        catch {
          case NonFatal(e) =>
            release(graceful = false)
            throw e
        }
      }
    catch {
      case e: SinkException.Superseded =>
        broken = Some(Broken(e, isOver = true))
        throw e
    }

  private def reading[A](body: RunReader => A): A = {
    val lease = lastLease
    val runs = new RunReader(clients, settings, seams.clock, id, lease.run, lease.since)
    try body(runs)
    finally runs.close()
  }

  private def openProducer(): Unit = {
    val made = clients.producer(transactionalId)
    try made.initTransactions()
    catch {
      case NonFatal(e) =>
        made.close(Duration.ZERO)
        throw e
    }
    producer = Some(made)
    usedNanos = seams.clock.nanos()
    broken = None
  }

  /** Ends a transaction that is near its timeout: the broker would, and would fence the producer as well (K9). */
  private def endIfOpen(number: Long): Unit = exclusively {
    current.filter(_.name.number == number).foreach(end)
  }

  private def isUsable(open: OpenTransaction): Boolean = open.failure.isEmpty && !isOld(open)

  private def isOld(open: OpenTransaction): Boolean = openMs(open) > limits.mostOpenMs

  /** Returns how long the open transaction has been open. */
  def openForMs: Option[Long] = current.map(openMs)

  private def openMs(open: OpenTransaction): Long = sinceMs(open.begunNanos)

  private def sinceMs(nanos: Long): Long = (seams.clock.nanos() - nanos) / 1000000L

  private def fail(open: OpenTransaction, cause: Throwable): Unit = {
    if (open.failure.isEmpty) failedAfterMs = Some(openMs(open))
    open.firstFailure.add(cause)
  }

  /** Aborts. Rows that are on their way arrive first: their attempts may go on, and then their offsets are needed. */
  private def end(open: OpenTransaction): Unit = abort(open, awaitRows(_, Some(open)))

  /** Aborts, where no attempt goes on. */
  private def giveUp(open: OpenTransaction): Unit = abort(open, _ => ())

  private def abort(open: OpenTransaction, before: RowProducer => Unit): Unit = producer match {
    case None => close(open, CommitAnswer.Unknown)
    case Some(own) =>
      try {
        KafkaFailures.uninterrupted {
          before(own)
          own.abortTransaction()
        }
        close(open, CommitAnswer.Aborted)
      } catch {
        case NonFatal(e) =>
          fail(open, e)
          break(open.failure.getOrElse(e))
          close(open, CommitAnswer.Unknown)
      }
  }

  /** Waits for rows that are on their way, for a while longer than they may be: the client does not let them expire while it
    * asks for a partition to be in the transaction, and of a topic that was deleted it asks for ever.
    */
  private def awaitRows(own: RowProducer, open: Option[OpenTransaction]): Unit = {
    val ms = settings.deliveryTimeoutMs + GraceMs
    val end = seams.timer.after(ms) {
      open.foreach(fail(_, new TimeoutException(s"Rows were not acknowledged within $ms ms")))
      own.close(Duration.ZERO)
    }
    try own.flush()
    finally end.cancel()
  }

  private def close(open: OpenTransaction, answer: CommitAnswer): Unit = {
    current = None
    usedNanos = seams.clock.nanos()
    open.ending.cancel()
    ended.put(open.name.number, answer): Unit
    if (ended.size > KeptAnswers) ended.remove(ended.head._1): Unit
    if (limits.idleMs > 0)
      idleCheck = Some(seams.timer.after(limits.idleMs)(closeIfIdle(open.name.number)))
  }

  /** Closes the producer where no transaction was begun after this one. */
  private def closeIfIdle(number: Long): Unit = exclusively {
    if (lastNumber == number && current.isEmpty) release(graceful = true)
  }

  private def break(cause: Throwable): Unit = {
    broken = Some(Broken(cause, isOver = false))
    release(graceful = false)
  }

  private def release(graceful: Boolean): Unit = {
    val own = producer
    producer = None
    own.foreach { producer =>
      val patience = if (graceful) CloseTimeout else Duration.ZERO
      try KafkaFailures.uninterrupted(producer.close(patience))
      catch { case NonFatal(_) => () } // it is given up in any case
    }
  }

  /** The first cause, and not that a producer is closed, which every task after it would find. */
  private def ofBroken(): SinkException = broken match {
    case Some(Broken(e: SinkException, _)) => e
    case Some(Broken(cause, _)) =>
      KafkaFailures.ofAttempt(cause, "A transaction", Map("transactionalId" -> transactionalId))
    case None =>
      new SinkException.IllegalCall(
        s"No producer of $transactionalId is open",
        "its run has ended, or has not begun"
      )
  }

  private def exclusively[A](body: => A): A = {
    lock.writeLock.lock()
    try body
    finally lock.writeLock.unlock()
  }
}

private[kafka] object TransactionLine {

  /** @param mostOpenMs after which a transaction is ended; @param idleMs after which a producer that nobody uses is closed,
    * 0 for never; @param patienceMs for which a caller waits until what is given up is aborted
    */
  final case class Limits(mostOpenMs: Long, idleMs: Long, patienceMs: Long = 5000)

  object Limits {
    val IdleMs: Long = 10L * 60 * 1000

    /** Half of the broker's timeout. */
    def ofExecutor(settings: SinkSettings): Limits =
      Limits(settings.transactionTimeoutMs / 2, IdleMs)

    /** As on executors, but that the driver keeps its producer: only a recovery may open another. */
    def ofDriver(settings: SinkSettings): Limits = Limits(settings.transactionTimeoutMs / 2, 0)
  }

  /** What a line takes from outside. Tests put faults in its place.
    * @param attemptsMatch whether a transaction with rows of the first attempts may be committed for the second ones
    */
  final case class Seams(
      clock: Clock,
      timer: Timer,
      observer: SinkObserver,
      attemptsMatch: (Set[AttemptId], Set[AttemptId]) => Boolean = _ == _
  )

  /** The producer was given up.
    * @param isOver whether the lease's run is over: only another lease takes the id again
    */
  private final case class Broken(cause: Throwable, isOver: Boolean)

  private val GraceMs = 5000L
  private val KeptAnswers = 1024
  private val CloseTimeout = Duration.ofSeconds(30)
}
