package statemark.kafka

import scala.collection.mutable

/** Brings a decision to its end: what is not committed is fenced, looked up again, and copied. ''Thread:'' the driver's.
  *
  * @param mayBeCompacted of a topic: the rows of an open transaction are then kept before it is fenced, as the cleaner
  *   takes aborted rows away (K10)
  */
private[kafka] final class Completion(
    identity: SinkIdentity,
    settings: SinkSettings,
    log: CommitLog,
    fencing: Fencing,
    rows: LogRows,
    copy: RowCopy,
    line: TransactionLine,
    observer: SinkObserver,
    mayBeCompacted: String => Boolean
) {
  private type Kept = Map[TransactionName, Either[String, RowSpool]]

  /** Completes a decision.
    * @param committed transactions of which that is known for sure
    * @param beforeFence run once the rows that the cleaner might take are kept
    * @throws SinkException.LostRows where rows are lost that only somebody else can replace
    */
  def complete(decision: Decision, committed: Set[TransactionName])(
      beforeFence: => Unit
  ): CompletionReport = {
    val open = decision.slots.filterNot { case (t, _) => committed(t.name) }
    val kept = mutable.Map.empty[TransactionName, Either[String, RowSpool]]
    try {
      open.map(_._1).filter(isCompacted).foreach(t => kept(t.name) = rows.read(t))
      beforeFence
      // Whatever was answered (K5). The driver's own id is its own: what is left of it was aborted by its producer.
      fencing.fence(open.map(_._1.name.transactionalId).toSet - line.transactionalId)
      observer.reached(SinkPhase.Fenced)
      val state = log.read(identity)
      val unfinished = state.unfinished(decision).filterNot { case (t, _) => committed(t.name) }
      unfinished.foreach { case (t, _) => if (!kept.contains(t.name)) kept(t.name) = rows.read(t) }
      val report = finish(decision, state, committed, unfinished, kept.toMap)
      report.copy(found = open.size - unfinished.size)
    } finally kept.valuesIterator.foreach(_.foreach(_.close()))
  }

  private def finish(
      decision: Decision,
      state: CommitState,
      committed: Set[TransactionName],
      unfinished: Vector[(DecidedTransaction, Int)],
      kept: Kept
  ): CompletionReport = {
    val lost = unfinished.collect {
      case (t, slot) if kept(t.name).isLeft => (t, state.progress(decision, t, slot))
    }
    if (lost.isEmpty) copied(decision, state, unfinished, kept)
    else {
      val reason = lost.map { case (t, _) => s"${t.name}: ${kept(t.name).left.getOrElse("")}" }
        .mkString("; ")
      val isHidden = committed.isEmpty && decision.slots.forall { case (t, slot) =>
        state.progress(decision, t, slot) == Progress.None
      }
      val lostPartitions = lost.flatMap(_._1.partitions).toSet
      val others = decision.transactions.filterNot(t => lost.exists(_._1 == t))
      val isApart = lost.forall(_._2 == Progress.None) &&
        !others.flatMap(_.partitions).exists(lostPartitions)
      if (isHidden) reopen(decision, None)
      else if (settings.onLostRows == OnLostRows.Rerun && isApart) {
        val report = copied(
          decision,
          state,
          unfinished.filterNot { case (t, _) => lost.exists(_._1 == t) },
          kept
        )
        report.copy(reopened = reopen(decision, Some(lostPartitions)).reopened)
      } else throw lostRows(decision, reason, lostPartitions, isApart)
    }
  }

  private def copied(
      decision: Decision,
      state: CommitState,
      unfinished: Vector[(DecidedTransaction, Int)],
      kept: Kept
  ): CompletionReport = {
    val sources = unfinished.flatMap { case (t, slot) =>
      val done = state.progress(decision, t, slot) match {
        case Progress.Copied(rows) => rows
        case _ => 0L
      }
      kept(t.name).toOption.map(CopySource(t, slot, done, _))
    }
    CompletionReport(0, sources.size, copy.copy(decision, sources), None)
  }

  private def reopen(decision: Decision, missing: Option[Set[Int]]): CompletionReport = {
    val reopened = LastDecision.Reopened(
      decision.batch,
      decision.round + 1,
      missing,
      decision.partitions,
      decision.history
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
      isApart: Boolean
  ) = new SinkException.LostRows(
    s"Rows of batch ${decision.batch} are lost, and others of it are with the readers",
    reason,
    (if (isApart)
       "Option 'onLostRows' = rerun writes the missing partitions again: their rows may " +
         "differ from those that were decided. "
     else "The partitions of the lost rows have others with the readers, so none can run again. ") +
      "Or remove what is known of the sink with `statemark topic forget`, and the batch is written " +
      "whole once more. Rows are lost by retention, by a topic that was made anew, and by the " +
      "cleaner of a compacted topic: raise its min.compaction.lag.ms above the longest outage",
    Map(
      "sink" -> identity.toString,
      "batch" -> decision.batch.toString,
      "partitions" -> partitions.toSeq.sorted.mkString(" ")
    )
  )
}
