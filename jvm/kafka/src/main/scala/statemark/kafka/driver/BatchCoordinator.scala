package statemark.kafka.driver

import org.apache.kafka.clients.admin.Admin
import scala.collection.mutable
import scala.util.control.NonFatal
import statemark.common.Clock
import statemark.kafka.clients.{AdminFencing, GroupOffsets, KafkaFailures}
import statemark.kafka.conf.{SinkException, SinkPhase, SinkTransactionalId}
import statemark.kafka.decision.{
  BatchFigures,
  BatchOrigin,
  BatchStart,
  DecidedTransaction,
  Decision,
  LastDecision,
  RecoveryReport,
  Verdict
}
import statemark.kafka.executor.{
  CommitAnswer,
  CommitOrder,
  CommitOrders,
  ExecutorSinks,
  TransactionLine,
  WriterSpec
}
import statemark.kafka.log.{
  CommitRecord,
  CommitTopic,
  IdentityRecord,
  Progress,
  RecordCodec,
  TopicCommitLog
}
import statemark.kafka.rows.{AttemptMessage, TransactionName}

/** The driver's side of one sink in one run: recovers, decides batches, has them committed, and copies what cannot be.
  *
  * ''Thread:'' one at a time, the one that runs the query's batches; [[close]] from any once no call is inside.
  */
final class BatchCoordinator private[kafka] (
    context: SinkContext,
    orders: CommitOrders,
    marker: CheckpointMarker,
    local: Option[ExecutorSinks],
    seams: DriverSeams
) extends AutoCloseable {
  import BatchCoordinator.{undecided, Begun}
  import context.{identity, settings}
  import seams.{clock, observer}

  private val clients = seams.clientsOf(settings)
  private val admin: Admin = clients.admin()
  private val failures = new DriverFailures(context, clients, clock)
  private val commitPartition = CommitTopic.partitionOf(settings, identity)
  private val line = local.fold(ownLine)(_.driverLine(settings, identity))
  private val topicLog = new TopicCommitLog(clients, admin, settings, clock, seams.logEnd)
  private val log = seams.log(topicLog)
  private val ownId = new DriverId(context, clients, admin, clock)
  private val fencing = seams.fencing(new AdminFencing(admin, settings))
  private val topics = new OutputTopics(clients, admin, settings)
  private val group = new InputGroup(context, admin)
  private val completion = {
    val rows =
      new TopicLogRows(clients, admin, clock, settings.commitTopic, settings.transactionTimeoutMs)
    val copy = new RowCopy(
      line,
      identity,
      commitPartition,
      clock,
      observer,
      seams.copyBytes,
      RowCopy.mostMs(settings)
    )
    new Completion(
      identity,
      settings,
      log,
      seams.rows(rows),
      copy,
      line,
      observer,
      topics.mayBeCompacted
    )
  }
  private val recovery =
    new Recovery(context, admin, line, log, fencing, completion, marker, observer, failures)

  private var report: Option[RecoveryReport] = None
  // Until a first batch has begun: one that was refused is looked at as wholly when it is tried again.
  private var isNew = true
  private var run = 0L
  private var since = 0L
  // What the commit topic says: nobody but this driver can change it.
  private var last: LastDecision = LastDecision.Nothing
  private var generations = Map.empty[String, Int]
  // Set from `begin` until the batch is through; what is left of it, a failure has left (K4).
  private var inProgress: Option[Begun] = None
  private val finished = mutable.Map.empty[Long, BatchFigures]

  /** What the last recovery found and did; None before the first batch. */
  def lastRecovery: Option[RecoveryReport] = report

  /** The run of the sink; 0 before the first batch. */
  def lastRun: Long = run

  /** Says what is to be done with a batch, before its job. Recovers first where nothing is known: at the first batch of the
    * run, and after a batch that did not end well.
    * @throws SinkException where the batch must not be written
    */
  def begin(start: BatchStart): BatchPlan = {
    if (finished.contains(start.batch)) throw Verdict.repeated(identity, start.batch)
    if (isNew) requireFit(start)
    val openTransactions =
      if (report.isEmpty) recover().fenced.size
      else if (inProgress.isDefined || ownId.isForgotten) {
        failures.deciding("The sink cannot be taken over again") {
          recovery.requireLast(topicLog.readCommitted(identity))
        }
        recover().fenced.size
      } else 0
    if (isNew && run == 1 && start.isRerun) report = report.map(_.noting(
      s"Batch ${start.batch} was planned before this sink's first run. If another sink wrote for the " +
        "query then, the batch's rows may be in the topic twice; if none did, nothing is wrong"
    ))
    // What a run has decided itself, its checkpoint knows.
    val judged = if (isNew) start else start.copy(earlier = _ => None)
    val verdict = seams.verdict(identity, judged, last)
    if (isNew) group.requireOwn(start.ends)
    isNew = false
    inProgress = Some(Begun(start, verdict, openTransactions))
    verdict match {
      case Verdict.Write(_, reopened) =>
        BatchPlan.Write(spec(start.batch, discards = false, reopened.flatMap(_.missing)))
      case Verdict.Discard(isOld) =>
        BatchPlan.Discard(spec(start.batch, discards = true, None), isOld)
    }
  }

  /** Compares the batch with what was decided before anybody is fenced: a copy of a checkpoint must not end the query that
    * it is a copy of. What is being decided at this moment shows behind the fence.
    */
  private def requireFit(start: BatchStart): Unit =
    failures.recovering {
      if (CommitTopic.isThere(admin, settings)) {
        topicLog.readCommitted(identity).last match {
          case decided: LastDecision.Decided => seams.verdict(identity, start, decided): Unit
          // What was taken back may be decided again behind what readers see.
          case _ => ()
        }
      }
    }

  /** Decides a batch and brings it to its readers. When it returns, all of it is committed. Rows of one attempt are in their
    * order in each partition.
    * @param messages one for each partition, of the attempt that counts
    * @throws SinkException where that failed: the batch is decided whole or not at all, and [[begin]] finds out
    */
  def commit(batch: Long, messages: Seq[AttemptMessage]): BatchFigures =
    finished.getOrElse(
      batch, {
        val begun = inProgress.filter(_.start.batch == batch).getOrElse(
          throw new SinkException.IllegalCall(
            s"Batch $batch cannot be committed",
            "it was not begun, or it has failed"
          )
        )
        val figures = begun.verdict match {
          case Verdict.Discard(_) => BatchFigures(batch, 0, 0, 0, 0, 0, isDiscarded = true, 0)
          case Verdict.Write(round, reopened) => write(begun, round, reopened, messages)
        }
        val all = figures.copy(
          openTransactions = begun.openTransactions,
          refusedRows = if (figures.isDiscarded) 0 else messages.map(_.refused).sum
        )
        inProgress = None
        // Attempts that do not count may have left a transaction open, which holds readers back.
        abort(batch)
        finished(batch) = all
        finished.keysIterator.filter(_ < batch - BatchCoordinator.Remembered).toVector
          .foreach(finished.remove)
        all
      }
    )

  /** Ends a batch that failed: open transactions are aborted, so that readers do not wait for them. It says nothing to the
    * commit topic, as Spark calls it also where [[commit]] has decided (trap: the decision stands).
    */
  def abort(): Unit = abort(Long.MaxValue)

  private def abort(batch: Long): Unit = {
    orders.abort(identity, batch)
    local.foreach(_.abort(identity, batch))
  }

  /** Ends what executors have left open that are gone: nobody else would before its timeout, and readers wait for it. To be
    * called once no batch is in progress, as a decision may need the rows.
    * @throws SinkException.Superseded where another driver has the sink: its executors may have the same ids
    */
  def fenceExecutors(executorIds: Set[String]): Unit = if (!needsOpenRows) {
    // Not the whole of it: what is waited for could be a transaction that ends here.
    val state = topicLog.readCommitted(identity)
    recovery.requireOwn(state, run)
    val theirs = for {
      executorId <- executorIds
      number <- 0 until settings.producersPerExecutor
    } yield SinkTransactionalId.executor(settings.prefix, identity, executorId, number).text
    // Brokers would remember an id that was never used, for days.
    val open = fencing.open(identity, Set(settings.prefix))
    fencing.fence(open.fold(_ => theirs, theirs.intersect))
    recovery.removeStaleTokens(state)
    // Spark gives no name twice.
    generations --= theirs
  }

  /** Whether the cleaner could take rows that a decision needs once their transactions are ended. A batch that failed may
    * be decided: the recovery that follows reads its rows first, and ends them then.
    */
  private def needsOpenRows: Boolean =
    inProgress.exists(_.mayBeDecided) && topics.anyMayBeCompacted

  /** Takes the sink over and completes what was decided, without a batch: `statemark topic finish`. */
  def recover(): RecoveryReport = takenOver(recovery.run(topics.checkNamed()))

  /** Takes the sink over and leaves the last decision as it is: `statemark topic forget --force`. Rows of it that are not
    * with the readers never will be, so nothing but [[forgetDecisions]] or [[forget]] may follow.
    */
  def seize(): RecoveryReport = takenOver(recovery.run(Vector.empty, completes = false))

  private def takenOver(recovered: => RecoveryReport): RecoveryReport = {
    val done =
      failures.recovering {
        val done = recovered
        val state = log.read(identity)
        recovery.requireOwn(state, done.run)
        last = state.last
        topicLog.foreign.fold(done)(of =>
          done.noting(
            s"Something else writes to the commit topic: ${of.count} records of it are passed over, as of ${of.first}"
          )
        )
      }
    run = done.run
    since = topicLog.position(identity)
    ownId.use()
    generations = Map.empty
    report = Some(done)
    inProgress = None
    done
  }

  /** Removes everything that the commit topic knows of the identity: for a batch write that nobody can repeat, once it is
    * done (K11).
    */
  def forget(): Unit = remove(_ => true)

  /** Removes what was decided, and keeps the identity: `statemark topic forget`. The next batch is written, whatever its
    * number; it may have been before. To be called after [[recover]], or [[seize]].
    */
  def forgetDecisions(): Unit = remove {
    case _: IdentityRecord => false
    case _ => true
  }

  private def remove(isGone: CommitRecord => Boolean): Unit = {
    val keys = log.read(identity).records.collect { case (key, r) if isGone(r) => key }.toVector
    failures.deciding("What is known of the sink could not be removed") {
      line.transaction { producer =>
        keys.foreach(key =>
          producer.send(CommitTopic.tombstone(commitPartition, key.toArray)): Unit
        )
      }
    }
    // What comes next begins anew.
    report = None
    isNew = true
    finished.clear()
  }

  /** Aborts what is open, and gives clients up. */
  override def close(): Unit = {
    abort()
    local.fold(line.close())(_.close(identity, run))
    admin.close()
  }

  private def write(
      begun: Begun,
      round: Int,
      reopened: Option[LastDecision.Reopened],
      messages: Seq[AttemptMessage]
  ): BatchFigures = {
    val start = begun.start
    reopened.filter(_.missing.isDefined).foreach(Verdict.requirePartitions(
      identity,
      _,
      messages.size
    ))
    val transactions = DecidedTransaction.of(messages)
    val ends = start.ends
    observer.reached(SinkPhase.BeforeDecision)
    // Of a batch that was decided before, the decision is replaced also where it has no rows any more.
    if (transactions.isEmpty && reopened.isEmpty && !group.isMoved(ends, last))
      BatchFigures(start.batch, 0, 0, 0, 0, 0, isDiscarded = false, 0)
    else {
      transactions.flatMap(_.rows).map(_.topicPartition.topic).distinct.foreach(topics.check)
      val decision = Decision(
        start.batch,
        round,
        start.queryId,
        messages.size,
        reopened.flatMap(_.missing),
        BatchOrigin.of(start.planned),
        start.planned.toVector.flatMap(_.fingerprint.sources),
        last.decided,
        isCommitted = false,
        transactions,
        start.placement(),
        ends
      )
      val offsets = group.offsetsOf(ends)
      group.requireOwn(ends)
      inProgress = Some(begun.copy(mayBeDecided = true))
      val (copied, decisionMs, commitMs) = alone(transactions) match {
        case Some(only) if committedAtOnce(decision, only, messages, offsets) =>
          last = LastDecision.Decided(decision.copy(isCommitted = true))
          (0L, 0L, 0L)
        case _ => inTwoSteps(decision, messages, offsets)
      }
      ownId.use()
      observer.reached(SinkPhase.BeforeCommitLog)
      BatchFigures(
        start.batch,
        decision.count,
        transactions.size,
        decisionMs,
        commitMs,
        copied,
        isDiscarded = false,
        0
      )
    }
  }

  /** The only transaction, where it is one of the driver's own id: what that signs may decide. */
  private def alone(transactions: Vector[DecidedTransaction]): Option[DecidedTransaction] =
    local.flatMap(_ =>
      transactions match {
        case Vector(only) if only.name.transactionalId == line.transactionalId => Some(only)
        case _ => None
      }
    )

  /** Rows and decision in one transaction, whose record is the token as well. False where that was aborted. */
  private def committedAtOnce(
      decision: Decision,
      only: DecidedTransaction,
      messages: Seq[AttemptMessage],
      offsets: GroupOffsets
  ): Boolean = {
    val records = RecordCodec.parts(identity, decision.copy(isCommitted = true))
      .map(CommitTopic.record(commitPartition, _))
    val phases = (SinkPhase.DecisionSent, SinkPhase.DecisionDurable)
    val attempts = messages.filter(_.rows.contains(only.name)).map(_.attempt).toSet
    line.commit(only.name.number, attempts, records, phases, offsets) match {
      case CommitAnswer.Committed => true
      case CommitAnswer.Aborted => false
      case CommitAnswer.Unknown =>
        throw new SinkException.Unavailable(
          undecided(decision.batch),
          "the brokers gave no answer to the commit of its transaction",
          "Start the query again: it finds out, and nothing is written twice",
          Map("sink" -> identity.toString, "transactionalId" -> line.transactionalId)
        )
    }
  }

  /** The decision, then the orders, then copies of what was not committed.
    * @return copied rows, and milliseconds of the decision and of the rest
    */
  private def inTwoSteps(
      decision: Decision,
      messages: Seq[AttemptMessage],
      offsets: GroupOffsets
  ) = {
    val ((), decisionMs) = Clock.timedMs(clock) {
      failures.deciding(undecided(decision.batch)) {
        val records = RecordCodec.parts(identity, decision)
        def decide(): Unit = seams.decisions(settings).write(line, records, offsets, observer)
        try decide()
        catch {
          // The job took longer than the brokers remember an id.
          case NonFatal(e) if KafkaFailures.isForgotten(e) =>
            recovery.renew(run)
            decide()
        }
      }
    }
    last = LastDecision.Decided(decision)
    observer.reached(SinkPhase.DecisionDurable)
    val (copied, commitMs) = Clock.timedMs(clock)(order(decision, messages))
    (copied, decisionMs, commitMs)
  }

  private def order(decision: Decision, messages: Seq[AttemptMessage]): Long = {
    val asked = decision.slots
      .map { case (t, slot) => (t, slot, messages.filter(_.rows.contains(t.name))) }
      .filter { case (t, _, writers) =>
        // Rows of an attempt in an earlier transaction will be copied: these go behind them, in its order.
        t.name.transactionalId != line.transactionalId && writers.forall(_.rows.size == 1)
      }
      .map { case (t, slot, writers) =>
        CommitOrder(
          identity,
          writers.head.executorId,
          commitPartition,
          t.name,
          decision.batch,
          decision.round,
          slot,
          writers.map(_.attempt).toSet
        )
      }
    val answers = if (asked.isEmpty) Map.empty[TransactionName, CommitAnswer]
    else orders.commit(asked)
    observer.reached(SinkPhase.OrdersAnswered)
    val committed = answers.collect { case (name, CommitAnswer.Committed) => name }.toSet
    if (decision.transactions.forall(t => committed(t.name))) 0L
    else complete(decision, committed)
  }

  private def complete(decision: Decision, committed: Set[TransactionName]): Long = {
    // Executors whose ids are fenced have them back for the next batch.
    decision.transactions.map(_.name).filterNot(committed).map(_.transactionalId).distinct
      .foreach(id => generations += id -> (generations.getOrElse(id, 0) + 1))
    val report = failures.deciding(s"Batch ${decision.batch} is decided, but is not complete") {
      completion.complete(
        decision,
        (t, _) => if (committed(t.name)) Progress.Complete else Progress.None
      )(fencing.fence)
    }
    report.reopened.foreach { _ =>
      throw new SinkException.Unavailable(
        s"Rows of batch ${decision.batch} were lost before readers had them",
        "they are not in the log any more: the topic was made anew, or its cleaner took them",
        "Start the query again: the batch is written anew",
        Map("sink" -> identity.toString, "batch" -> decision.batch.toString)
      )
    }
    report.copiedRows
  }

  private def spec(batch: Long, discards: Boolean, partitions: Option[Set[Int]]) =
    WriterSpec(
      identity,
      settings,
      run,
      generations,
      batch,
      local.isDefined,
      discards,
      partitions,
      since
    )

  private def ownLine: TransactionLine = new TransactionLine(
    context.driverId,
    settings,
    clients,
    TransactionLine.Limits.ofDriver(settings),
    TransactionLine.Seams(clock, seams.timer, observer)
  )
}

object BatchCoordinator {

  /** A batch between [[BatchCoordinator.begin]] and its end. */
  private final case class Begun(
      start: BatchStart,
      verdict: Verdict,
      openTransactions: Int,
      mayBeDecided: Boolean = false
  )

  /** So many batches back, a second write of the same number is noticed. */
  private val Remembered = 100

  private def undecided(batch: Long): String = s"Batch $batch could not be decided"

  /** Begins a run. Nothing is asked of the brokers before its first batch.
    * @param local the sinks of this process, where the one executor is the driver (`local[…]`)
    */
  def open(
      context: SinkContext,
      orders: CommitOrders,
      marker: CheckpointMarker,
      local: Option[ExecutorSinks]
  ): BatchCoordinator = new BatchCoordinator(context, orders, marker, local, DriverSeams())
}
