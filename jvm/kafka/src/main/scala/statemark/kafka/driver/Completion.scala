package statemark.kafka.driver

import scala.collection.mutable
import statemark.kafka.conf.{
  OnLostRows,
  SinkException,
  SinkIdentity,
  SinkObserver,
  SinkPhase,
  SinkSettings
}
import statemark.kafka.decision.{
  CompletionReport,
  DecidedTransaction,
  Decision,
  LastDecision,
  Placement
}
import statemark.kafka.executor.TransactionLine
import statemark.kafka.log.{CommitLog, CommitState, CommitTopic, Progress, ReopenedRecord}
import statemark.kafka.rows.TransactionName

/** Brings a decision to its end: what is not committed is fenced, looked up again, and copied. ''Thread:'' the driver's.
  *
  * @param mayBeCompacted of a topic: the rows of an open transaction are then kept before it is fenced, as the cleaner
  *   takes aborted rows away (K10)
  */
private[kafka] final class Completion(
    identity: SinkIdentity,
    settings: SinkSettings,
    log: CommitLog,
    rows: LogRows,
    copy: RowCopy,
    line: TransactionLine,
    observer: SinkObserver,
    mayBeCompacted: String => Boolean
) {
  import Completion.Unfinished

  /** Completes a decision.
    * @param known how much of a transaction is with the readers for sure
    * @param fence takes transactional ids from whoever has them, these and perhaps others, once the rows that the cleaner
    *   might take are kept
    * @throws SinkException.LostRows where rows are lost that only somebody else can replace
    */
  def complete(decision: Decision, known: (DecidedTransaction, Int) => Progress)(
      fence: Set[String] => Unit
  ): CompletionReport = {
    val (done, open) = decision.slots.partition { case (t, slot) =>
      known(t, slot) == Progress.Complete
    }
    val committed = done.map(_._1.name).toSet
    val kept = mutable.ArrayBuffer.empty[FoundRows]
    def keep(transactions: Seq[(DecidedTransaction, Progress)]): Unit =
      if (transactions.nonEmpty)
        kept += rows.read(transactions.map { case (t, of) => UncopiedRows(t, of.copied) }): Unit
    try {
      val (early, late) = open.map(_._1).partition(isCompacted)
      // Only this driver copies, so that nothing was copied since.
      keep(open.collect { case (t, slot) if early.contains(t) => (t, known(t, slot)) })
      // Whatever was answered (K5). The driver's own id is its own: what is left of it was aborted by its producer.
      fence(open.map(_._1.name.transactionalId).toSet - line.transactionalId)
      observer.reached(SinkPhase.Fenced)
      val state = log.read(identity)
      val unfinished = state.unfinished(decision).filterNot { case (t, _) => committed(t.name) }
      keep(unfinished.collect {
        case (t, slot) if late.contains(t) => (t, state.progress(decision, t, slot))
      })
      val found = kept.toVector
      val report = finish(
        decision,
        state,
        committed,
        unfinished.map { case (t, slot) =>
          val of = if (early.contains(t)) found.head else found.last
          Unfinished(t, slot, state.progress(decision, t, slot), of)
        }
      )
      report.copy(found = open.size - unfinished.size)
    } finally kept.foreach(_.close())
  }

  /** Whether the cleaner may take rows of it once their transaction is fenced. */
  def mayLoseRows(decision: Decision): Boolean = decision.transactions.exists(isCompacted)

  private def finish(
      decision: Decision,
      state: CommitState,
      committed: Set[TransactionName],
      unfinished: Vector[Unfinished]
  ): CompletionReport = {
    val (lost, whole) = unfinished.partition(_.lack.isDefined)
    if (lost.isEmpty) copied(decision, whole)
    else {
      val reason = lost.map(u => s"${u.transaction.name}: ${u.lack.getOrElse("")}").mkString("; ")
      val isHidden = committed.isEmpty && decision.slots.forall { case (t, slot) =>
        state.progress(decision, t, slot) == Progress.None
      }
      val lostPartitions = lost.flatMap(_.transaction.partitions).toSet
      val others = decision.transactions.filterNot(t => lost.exists(_.transaction == t))
      val isApart = lost.forall(_.progress == Progress.None) &&
        !others.flatMap(_.partitions).exists(lostPartitions)
      val unplaced = Placement.lack(decision.placement).map(_.capitalize)
      // Why the lost partitions cannot run again by themselves.
      val lack =
        Option.when(!isApart && !isHidden)(
          "The partitions of the lost rows have others with the readers"
        ).orElse(unplaced)
      // Nothing of this round is with the readers, so that all of it can run again; of an earlier one there may be.
      if (isHidden && (decision.missing.isEmpty || unplaced.isEmpty))
        reopen(decision, decision.missing)
      else if (settings.onLostRows == OnLostRows.Rerun && lack.isEmpty)
        copied(decision, whole).copy(reopened = reopen(decision, Some(lostPartitions)).reopened)
      else throw lostRows(decision, reason, lostPartitions, lack)
    }
  }

  private def copied(decision: Decision, unfinished: Vector[Unfinished]): CompletionReport = {
    val sources = unfinished.map { u =>
      CopySource(u.transaction, u.slot, u.progress.copied, () => u.rows.of(u.transaction))
    }
    CompletionReport(0, sources.size, copy.copy(decision, sources), None)
  }

  private def reopen(decision: Decision, missing: Option[Set[Int]]): CompletionReport = {
    val reopened = LastDecision.Reopened(
      decision.batch,
      decision.round + 1,
      missing,
      decision.partitions,
      decision.origin,
      decision.history,
      decision.placement,
      Some(decision.queryId)
    )
    line.transaction { producer =>
      val record = ReopenedRecord(identity, reopened)
      producer.send(
        CommitTopic.record(CommitTopic.partitionOf(settings, identity), record)
      ): Unit
    }
    CompletionReport(0, 0, 0, Some(reopened))
  }

  private def isCompacted(transaction: DecidedTransaction): Boolean =
    transaction.rows.exists(r => mayBeCompacted(r.topicPartition.topic))

  private def lostRows(
      decision: Decision,
      reason: String,
      partitions: Set[Int],
      lack: Option[String]
  ) = new SinkException.LostRows(
    s"Rows of batch ${decision.batch} are lost, and others of it are with the readers",
    reason,
    lack.fold(
      "Option 'onLostRows' = rerun writes the missing partitions again, where Spark places their rows as " +
        "it did: they may differ from those that were decided. "
    )(why => s"$why, so that none can run again by itself. ") +
      "Another 'sinkName', or `statemark topic forget --force`, writes the batch whole once more. Rows " +
      "are lost by retention, by a topic that was made anew, and by the cleaner of a compacted topic: " +
      "raise its min.compaction.lag.ms above the longest outage",
    Map(
      "sink" -> identity.toString,
      "batch" -> decision.batch.toString,
      "partitions" -> partitions.toSeq.sorted.mkString(" ")
    )
  )
}

private object Completion {

  /** A transaction that is not wholly with the readers, and where its rows were read back to. */
  final case class Unfinished(
      transaction: DecidedTransaction,
      slot: Int,
      progress: Progress,
      rows: FoundRows
  ) {

    /** Why its rows are lost, if they are. */
    def lack: Option[String] = rows.lost.get(transaction.name)
  }
}
