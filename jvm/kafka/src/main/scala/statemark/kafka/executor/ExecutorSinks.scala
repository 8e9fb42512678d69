package statemark.kafka.executor

import java.util.concurrent.{ConcurrentHashMap, TimeUnit}
import java.util.concurrent.atomic.AtomicLong
import scala.jdk.CollectionConverters._
import statemark.common.Clock
import statemark.kafka.clients.{KafkaClients, Timer}
import statemark.kafka.conf.{
  SinkException,
  SinkIdentity,
  SinkObserver,
  SinkPhase,
  SinkSettings,
  SinkTransactionalId
}
import statemark.kafka.log.CommitTopic
import statemark.kafka.rows.AttemptId

/** What a batch's writers need; it travels with the tasks.
  * @param run of the sink
  * @param generations how often the run's driver has fenced transactional ids; none for those that it has not
  * @param isLocal whether the one executor is the driver's process: tasks write with the driver's transactional id
  * @param discards whether rows are dropped, as the batch is decided already
  * @param partitions those that have to be written; None for all of them
  * @param since up to where the run's driver has read the commit topic: a later run is noted behind
  */
final case class WriterSpec(
    identity: SinkIdentity,
    settings: SinkSettings,
    run: Long,
    generations: Map[String, Int],
    batch: Long,
    isLocal: Boolean,
    discards: Boolean,
    partitions: Option[Set[Int]],
    since: Long = 0
) {
  private[kafka] def leaseOf(id: SinkTransactionalId): Lease =
    Lease(run, generations.getOrElse(id.text, 0), since)

  /** @param number of the producer, of those that an executor has */
  private[kafka] def idOf(executorId: String, number: Int): SinkTransactionalId =
    if (isLocal) SinkTransactionalId.driver(settings.prefix, identity)
    else SinkTransactionalId.executor(settings.prefix, identity, executorId, number)
}

/** The sinks of this process: a producer and an open transaction for each identity, kept over batches. ''Thread:'' any.
  *
  * @param attemptsMatch as in [[TransactionLine.Seams]]
  */
final class ExecutorSinks(
    clientsOf: SinkSettings => KafkaClients,
    clock: Clock,
    timer: Timer,
    observer: SinkObserver,
    attemptsMatch: (Set[AttemptId], Set[AttemptId]) => Boolean = _ == _
) {
  import ExecutorSinks.{NotBegun, Owned}

  private val lines = new ConcurrentHashMap[SinkTransactionalId, Owned]
  private val refusals = new ConcurrentHashMap[SinkIdentity, RefusedRows]
  private val writers = new AtomicLong
  private val numbers = new AtomicLong
  private val seams = TransactionLine.Seams(clock, timer, observer, attemptsMatch)

  /** A writer of one attempt. Nothing is sent, and no producer opened, before its first row. */
  def writer(
      spec: WriterSpec,
      executorId: String,
      partition: Int,
      attempt: Long
  ): AttemptWriter = {
    val id = AttemptId(spec.batch, partition, attempt)
    if (spec.discards || spec.partitions.exists(!_.contains(partition)))
      new DiscardingWriter(id, executorId)
    else {
      val limits =
        if (spec.isLocal) TransactionLine.Limits.ofDriver(spec.settings)
        else TransactionLine.Limits.ofExecutor(spec.settings)
      // Tasks that run side by side get producers in turn.
      val number = Math.floorMod(writers.getAndIncrement, spec.settings.producersPerExecutor.toLong)
      val ownId = spec.idOf(executorId, number.toInt)
      val line = lineOf(spec.settings, ownId, limits, spec.run)
      new TransactionWriter(
        id,
        executorId,
        line,
        spec.leaseOf(ownId),
        opens = !spec.isLocal,
        observer,
        line.explained,
        refusedRows(spec)
      )
    }
  }

  /** Carries out an order of the driver: it may wait for brokers, so not on a thread that others need. */
  def commit(order: CommitOrder): CommitAnswer =
    SinkTransactionalId.parse(order.transaction.transactionalId)
      .flatMap(id => Option(lines.get(id))) match {
      case Some(owned) =>
        owned.line.commit(
          order.transaction.number,
          order.attempts,
          Seq(CommitTopic.record(order.commitPartition, order.token)),
          (SinkPhase.TokenSent, SinkPhase.TransactionCommitted)
        )
      case None => CommitAnswer.Unknown
    }

  /** Aborts what is open of an identity and holds no rows of batches after `batch`: always allowed, as rows that were
    * decided can be copied.
    */
  def abort(identity: SinkIdentity, batch: Long): Unit = linesOf(identity).foreach(_.abort(batch))

  /** Aborts what is open of an identity and closes its producers: a run has ended. What a later run has is left alone, as
    * the driver's word may come late.
    */
  def close(identity: SinkIdentity, run: Long): Unit = {
    val gone = lines.asScala.filter { case (id, owned) =>
      id.identity == identity && owned.run <= run
    }
    gone.foreach { case (id, owned) =>
      // Where another run has taken it over in between, it stays.
      if (lines.remove(id, owned)) owned.line.close()
    }
    // A writer of the next run has its line before it asks for these.
    refusals.computeIfPresent(
      identity,
      (_, known) =>
        Option(known).filter { _ =>
          val isUsed = linesOf(identity).nonEmpty
          if (!isUsed) known.close()
          isUsed
        }.orNull
    ): Unit
  }

  /** Closes everything, side by side: the process ends in good order, and brokers may be slow. What takes too long ends
    * with the process.
    */
  def closeAll(): Unit = {
    val closing = lines.values.asScala.toVector.map { owned =>
      val thread = new Thread(() => owned.line.close(), s"close-${owned.line.transactionalId}")
      thread.setDaemon(true)
      thread.start()
      thread
    }
    val endNanos = clock.nanos() + TimeUnit.SECONDS.toNanos(ExecutorSinks.LongestEndS)
    closing.foreach(TimeUnit.NANOSECONDS.timedJoin(_, endNanos - clock.nanos()))
  }

  /** Returns how long each transaction that is open has been open, in milliseconds. */
  def openForMs: Seq[Long] = lines.values.asScala.toVector.flatMap(_.line.openForMs)

  /** Transactional ids that have a line. */
  private[kafka] def lineCount: Int = lines.size

  /** The driver's own line, which tasks write to in local mode. */
  private[kafka] def driverLine(settings: SinkSettings, identity: SinkIdentity): TransactionLine =
    lineOf(
      settings,
      SinkTransactionalId.driver(settings.prefix, identity),
      TransactionLine.Limits.ofDriver(settings),
      NotBegun
    )

  /** The line of an id; one with other settings, of an earlier run, is closed first. */
  private def lineOf(
      settings: SinkSettings,
      id: SinkTransactionalId,
      limits: TransactionLine.Limits,
      run: Long
  ): TransactionLine =
    lines.compute(
      id,
      (_, known) =>
        Option(known) match {
          case Some(owned) if owned.line.settings == settings =>
            if (owned.run < run) new Owned(owned.line, run) else owned
          case Some(owned) if run != NotBegun && run < owned.run =>
            throw SinkException.superseded(run, owned.run)
          case other =>
            other.foreach(_.line.close())
            new Owned(
              new TransactionLine(id, settings, clientsOf(settings), limits, seams, numbers),
              run
            )
        }
    ).line

  private def refusedRows(spec: WriterSpec): Option[RefusedRows] =
    spec.settings.refusedRowsTopic.map { target =>
      refusals.compute(
        spec.identity,
        (_, known) =>
          Option(known).filter(_.settings == spec.settings).getOrElse {
            Option(known).foreach(_.close())
            new RefusedRows(clientsOf(spec.settings), spec.settings, target)
          }
      )
    }

  private def linesOf(identity: SinkIdentity): Seq[TransactionLine] =
    lines.asScala.collect { case (id, owned) if id.identity == identity => owned.line }.toSeq
}

private[kafka] object ExecutorSinks {

  /** A line, and the last run that has used it. Two are the same only where they are one object. */
  final class Owned(val line: TransactionLine, val run: Long)

  /** Runs are counted from 1; that of a driver which has not recovered is not known. */
  val NotBegun = 0L

  /** Brokers that do not answer are waited for no longer at the end of a process. */
  val LongestEndS = 60L
}
