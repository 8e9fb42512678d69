package statemark.kafka.sink.driver

import java.util.concurrent.atomic.{AtomicInteger, LongAdder}
import statemark.kafka.conf.{SinkObserver, SinkPhase}
import statemark.kafka.decision.{BatchFigures, Outcome, RecoveryReport}
import statemark.kafka.driver.SinkContext
import statemark.spark.metrics.{GaugeGroup, Gauges}

/** What a sink has written in this process, in all of its runs, as gauges. ''Thread:'' any. */
private[sink] final class SinkCounts extends GaugeGroup {
  private val open = new AtomicInteger
  private val decided = new LongAdder
  private val completed = new LongAdder
  private val discarded = new LongAdder
  private val rows = new LongAdder
  private val refused = new LongAdder
  private val copied = new LongAdder

  def opened(): Unit = open.incrementAndGet(): Unit
  def closed(): Unit = open.decrementAndGet(): Unit

  override def isUsed: Boolean = open.get > 0

  /** Adds a batch that is with the readers, or was before. */
  def add(batch: BatchFigures): Unit = {
    if (batch.isDiscarded) discarded.increment()
    rows.add(batch.rows)
    refused.add(batch.refusedRows)
    copied.add(batch.copiedRows)
  }

  /** Adds what a recovery has completed. */
  def add(recovery: RecoveryReport): Unit = recovery.completion.foreach { completion =>
    copied.add(completion.copiedRows)
    if (recovery.outcome == Outcome.Complete) completed.increment()
  }

  /** Returns an observer of one run's batches, which tells `next`. A decision and its rows may be one transaction, whose
    * end alone is told.
    */
  def observing(next: SinkObserver): SinkObserver = new SinkObserver {
    private var isDecided = false

    override def reached(phase: SinkPhase): Unit = {
      phase match {
        case SinkPhase.BeforeDecision => isDecided = false
        case SinkPhase.DecisionDurable =>
          isDecided = true
          decided.increment()
        case SinkPhase.BeforeCommitLog =>
          if (!isDecided) decided.increment()
          completed.increment()
        case _ => ()
      }
      next.reached(phase)
    }
  }

  override def gauges: Seq[(String, () => Any)] = Seq(
    "batchesDecided" -> decided,
    "batchesCompleted" -> completed,
    "discardedBatches" -> discarded,
    "rows" -> rows,
    "refusedRows" -> refused,
    "copiedRows" -> copied
  ).map { case (name, counter) => name -> (() => counter.sum) }
}

private[sink] object SinkCounts {

  /** Returns the counts of a sink, by the name of its query, or by the `txnAppId` that a write gives. Writes without a number are no sink that comes again, and are
    * counted together.
    */
  def of(context: SinkContext): SinkCounts = {
    val owner =
      if (context.isRandom) "writes"
      else if (context.queryName.isEmpty || context.identity.appId != context.queryId)
        context.identity.appId
      else context.queryName
    Gauges.current.group(s"sinks.$owner.${context.identity.sink}")(new SinkCounts)
  }
}
