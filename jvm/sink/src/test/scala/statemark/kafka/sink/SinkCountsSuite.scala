package statemark.kafka.sink

import org.scalatest.funsuite.AnyFunSuite
import scala.collection.mutable
import statemark.kafka.conf.{SinkIdentity, SinkObserver, SinkPhase}
import statemark.kafka.decision.{BatchFigures, CompletionReport, Outcome, RecoveryReport}
import statemark.kafka.sink.driver.SinkCounts

class SinkCountsSuite extends AnyFunSuite {
  import SinkPhase._

  private def shown(counts: SinkCounts): Map[String, Any] =
    counts.gauges.map { case (name, value) => name -> value() }.toMap

  test("a batch is decided, and then completed; in one step where both are one transaction") {
    val counts = new SinkCounts
    val told = mutable.Buffer.empty[SinkPhase]
    val observer = counts.observing(new SinkObserver {
      override def reached(phase: SinkPhase): Unit = told += phase
    })
    def decidedAndCompleted = (shown(counts)("batchesDecided"), shown(counts)("batchesCompleted"))
    Seq(BeforeDecision, BeforeCommitLog).foreach(observer.reached) // one transaction
    assert(decidedAndCompleted == ((1, 1)))
    Seq(BeforeDecision, DecisionSent, DecisionDurable, OrdersAnswered).foreach(observer.reached)
    assert(decidedAndCompleted == ((2, 1)))
    observer.reached(BeforeCommitLog)
    assert(decidedAndCompleted == ((2, 2)))
    // Without rows there is nothing to decide.
    observer.reached(BeforeDecision)
    assert(decidedAndCompleted == ((2, 2)))
    assert(told.length == 8)
  }

  test("rows and copies of batches and recoveries are added up over runs") {
    val counts = new SinkCounts
    counts.add(BatchFigures(4, 100, 2, 0, 0, 30, isDiscarded = false, 0, refusedRows = 7))
    counts.add(BatchFigures(5, 0, 0, 0, 0, 0, isDiscarded = true, 0))
    def recovered(outcome: Outcome, completion: Option[CompletionReport]) =
      counts.add(RecoveryReport(
        SinkIdentity("q", "s"),
        2,
        Some(5),
        outcome,
        Set.empty,
        completion,
        Vector.empty
      ))
    recovered(Outcome.Complete, None) // it was complete before
    recovered(Outcome.Complete, Some(CompletionReport(1, 1, 50, None)))
    recovered(Outcome.Lost, Some(CompletionReport(0, 0, 0, None)))
    assert(shown(counts) == Map(
      "batchesDecided" -> 0,
      "batchesCompleted" -> 1,
      "discardedBatches" -> 1,
      "rows" -> 100,
      "refusedRows" -> 7,
      "copiedRows" -> 80
    ))
    assert(!counts.isUsed)
    counts.opened()
    assert(counts.isUsed)
    counts.closed()
    assert(!counts.isUsed)
  }
}
