package statemark.kafka

import org.scalatest.funsuite.AnyFunSuite
import statemark.kafka.conf.{SinkException, SinkIdentity}
import statemark.kafka.decision.{
  BatchFingerprint,
  BatchStart,
  DecidedBatch,
  Decision,
  LastDecision,
  Verdict
}
import statemark.kafka.sim.Simulation.fingerprint

/** The table of batches and decisions, a test for each line. */
class VerdictSuite extends AnyFunSuite {
  private val identity = SinkIdentity("q", "out")

  private def start(batch: Long, print: Option[BatchFingerprint]) =
    BatchStart(batch, "q", print, isRerun = true)

  private def decision(batch: Long, print: Option[BatchFingerprint], queryId: String = "q") =
    Decision(batch, 0, queryId, 1, None, print, Vector.empty, isCommitted = false, Vector.empty)

  /** Batches 3, 4 and 6 were decided: 5 had no rows. */
  private def last(namesContent: Boolean = true): LastDecision = {
    val earlier = Vector(4L, 3L).map(b =>
      decision(b, Some(fingerprint(b, namesContent))).remembered
    )
    LastDecision.Decided(decision(6, Some(fingerprint(6, namesContent))).copy(history = earlier))
  }

  private def of(
      batch: Long,
      namesContent: Boolean = true,
      print: Option[BatchFingerprint] = None
  ) =
    Verdict.of(
      identity,
      start(batch, print.orElse(Some(fingerprint(batch, namesContent)))),
      last(namesContent)
    )

  private def fails(verdict: => Verdict): String =
    intercept[SinkException.WrongHistory](verdict).getMessage

  test("nothing is decided: it is written") {
    assert(Verdict.of(identity, start(0, None), LastDecision.Nothing) == Verdict.Write(0, None))
    assert(Verdict.of(identity, start(9, None), LastDecision.Nothing) == Verdict.Write(0, None))
  }

  test("a later batch is written, also where those in between had no rows") {
    assert(of(7) == Verdict.Write(0, None))
    assert(of(9) == Verdict.Write(0, None))
  }

  test("the last batch, with the same end offsets, is discarded") {
    assert(of(6) == Verdict.Discard(isOld = false))
  }

  test("K13: the last batch is discarded also where offsets are counters") {
    assert(of(6, namesContent = false) == Verdict.Discard(isOld = false))
  }

  test("an earlier batch, as it is remembered, is discarded") {
    assert(of(4) == Verdict.Discard(isOld = true))
  }

  test("K13: an earlier batch fails where offsets are counters") {
    assert(fails(of(4, namesContent = false)).contains("counters"))
  }

  test("other end offsets fail, and say which source") {
    val message = fails(of(6, print = Some(fingerprint(7))))
    assert(message.contains("KafkaV2[Subscribe[in]]") && message.contains("sinkName"))
    fails(of(4, print = Some(fingerprint(7))))
  }

  test("an earlier batch that nobody remembers fails") {
    fails(of(5))
    fails(of(1))
  }

  test("a decision of a batch write says nothing of a stream, and the other way round") {
    fails(Verdict.of(
      identity,
      start(6, Some(fingerprint(6))),
      LastDecision.Decided(decision(6, None))
    ))
  }

  test("a txnVersion that was decided is skipped") {
    val decided = LastDecision.Decided(decision(6, None))
    assert(Verdict.of(identity, start(6, None), decided) == Verdict.Discard(isOld = false))
    val known = LastDecision.Decided(decision(6, None).copy(history =
      Vector(DecidedBatch(2, None, namesContent = false))
    ))
    assert(Verdict.of(identity, start(2, None), known) == Verdict.Discard(isOld = true))
    assert(fails(Verdict.of(identity, start(5, None), known)).contains("comes too late"))
    assert(Verdict.of(identity, start(7, None), decided) == Verdict.Write(0, None))
  }

  test("K3: a txnVersion that another query decided fails, and a later one is written") {
    val decided = LastDecision.Decided(decision(6, None, queryId = "other"))
    def of(batch: Long) =
      Verdict.of(identity, start(batch, None).copy(queryId = "this-one"), decided)
    assert(fails(of(6)).contains("other"))
    assert(of(7) == Verdict.Write(0, None))
  }

  test("K3: where a query was not known, the job's name decided, and its queries go on") {
    val byName = LastDecision.Decided(decision(6, None, queryId = identity.appId))
    assert(Verdict.of(identity, start(6, None), byName) == Verdict.Discard(isOld = false))
    val byQuery = LastDecision.Decided(decision(6, None, queryId = "of-the-query"))
    val unknown = start(6, None).copy(queryId = identity.appId)
    assert(Verdict.of(identity, unknown, byQuery) == Verdict.Discard(isOld = false))
  }

  test("a batch that was opened again is written in the next round; the one before is known") {
    val reopened = LastDecision.Reopened(6, 1, None, 4, None, last().decided.tail)
    def ofReopened(batch: Long) =
      Verdict.of(identity, start(batch, Some(fingerprint(batch))), reopened)
    assert(ofReopened(6) == Verdict.Write(1, Some(reopened)))
    assert(ofReopened(7) == Verdict.Write(0, None), "a query has run it again")
    assert(ofReopened(4) == Verdict.Discard(isOld = false))
  }

  test("a version of a job that was opened again is written before any later one") {
    val reopened = LastDecision.Reopened(6, 1, None, 4, None, last().decided.tail)
    def of(batch: Long) = Verdict.of(identity, start(batch, None), reopened)
    assert(fails(of(7)).contains("Version 6 of txnAppId"))
    assert(of(6) == Verdict.Write(1, Some(reopened)))
  }

  test("where partitions of a batch are with the readers, no other batch takes its place") {
    def ofReopened(missing: Option[Set[Int]], print: BatchFingerprint) = {
      val digest = Some(fingerprint(6).digest)
      val reopened = LastDecision.Reopened(6, 1, missing, 4, digest, Vector.empty)
      Verdict.of(identity, start(6, Some(print)), reopened)
    }
    assert(ofReopened(Some(Set(1)), fingerprint(6)).isInstanceOf[Verdict.Write])
    assert(ofReopened(None, fingerprint(7)).isInstanceOf[Verdict.Write])
    assert(fails(ofReopened(Some(Set(1)), fingerprint(7))).contains("Batch 6 is not the one"))
  }

  test("where partitions of a batch are with the readers, it comes before any other batch") {
    val reopened = LastDecision.Reopened(6, 1, Some(Set(1)), 4, None, last().decided.tail)
    for (batch <- Seq(4L, 7L)) {
      val start = this.start(batch, Some(fingerprint(batch)))
      assert(fails(Verdict.of(identity, start, reopened)).contains("rows of batch 6 were lost"))
    }
  }

  test("a later batch fails where the checkpoint knows the last decided one as another") {
    def of(known: Option[BatchFingerprint]) =
      Verdict.of(identity, start(7, Some(fingerprint(7))).copy(earlier = _ => known), last())
    assert(of(None) == Verdict.Write(0, None))
    assert(of(Some(fingerprint(6))) == Verdict.Write(0, None))
    assert(fails(of(Some(fingerprint(5)))).contains("Batch 6 is not the one"))
  }

  test("decisions remember a hundred batches") {
    val many = (0 until 150).foldLeft(LastDecision.Nothing: LastDecision) { (last, batch) =>
      LastDecision.Decided(
        decision(batch.toLong, Some(fingerprint(batch.toLong))).copy(history = last.decided)
      )
    }
    assert(many.decided.map(_.batch) == (50 until 150).reverse.map(_.toLong))
  }
}
