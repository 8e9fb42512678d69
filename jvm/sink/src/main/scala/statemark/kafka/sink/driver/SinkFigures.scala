package statemark.kafka.sink.driver

import scala.collection.immutable.ListMap
import statemark.kafka.decision.{BatchFigures, RecoveryReport}

/** `sink.metrics` in the query's progress. ''Thread:'' any. */
private[sink] final class SinkFigures {
  private var last = Option.empty[BatchFigures]
  private var copiedRows = 0L
  private var discardedBatches = 0L
  private var openTransactions = 0L

  def add(batch: BatchFigures): Unit = synchronized {
    last = Some(batch)
    copiedRows += batch.copiedRows
    if (batch.isDiscarded) discardedBatches += 1
  }

  def add(recovery: RecoveryReport): Unit = synchronized {
    openTransactions += recovery.fenced.size
    copiedRows += recovery.completion.fold(0L)(_.copiedRows)
  }

  /** The first are of the last batch, the others of the run so far. */
  def toMap: Map[String, String] = synchronized {
    ListMap(
      "batch" -> last.fold(-1L)(_.batch),
      "rows" -> last.fold(0L)(_.rows),
      "refusedRows" -> last.fold(0L)(_.refusedRows),
      "transactions" -> last.fold(0L)(_.transactions.toLong),
      "decisionMs" -> last.fold(0L)(_.decisionMs),
      "commitMs" -> last.fold(0L)(_.commitMs),
      "copiedRows" -> copiedRows,
      "discardedBatches" -> discardedBatches,
      "openTransactionsFound" -> openTransactions
    ).map { case (name, value) => name -> value.toString }
  }
}
