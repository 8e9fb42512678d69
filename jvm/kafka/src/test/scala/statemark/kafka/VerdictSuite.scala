package statemark.kafka

import org.scalatest.funsuite.AnyFunSuite
import statemark.kafka.conf.{SinkException, SinkIdentity}
import statemark.kafka.decision.{
  BatchFingerprint,
  BatchOrigin,
  BatchStart,
  DecidedBatch,
  Decision,
  LastDecision,
  Placement,
  PlanKind,
  QueryBatch,
  SourceFingerprint,
  Verdict
}
import statemark.kafka.sim.Simulation.{fingerprint, placement}

/** The table of batches and decisions, a test for each line. */
class VerdictSuite extends AnyFunSuite {
  private val identity = SinkIdentity("q", "out")

  private def start(batch: Long, print: Option[QueryBatch]) =
    BatchStart(batch, "q", print, isRerun = true)

  /** A batch write. */
  private def write(version: Long, of: Option[QueryBatch]) =
    start(version, of).copy(isWrite = true)

  private def decision(batch: Long, print: Option[QueryBatch], queryId: String = "q") =
    Decision(
      batch,
      0,
      queryId,
      1,
      None,
      BatchOrigin.of(print),
      print.toVector.flatMap(_.fingerprint.sources),
      Vector.empty,
      isCommitted = false,
      Vector.empty,
      Some(placement)
    )

  /** As an earlier release has decided it, which noted no kind of plan, and nothing of batch writes. */
  private def first(of: Decision): Decision = of.copy(
    origin = of.origin match {
      case planned: BatchOrigin.Planned => planned.copy(kind = None)
      case _ => BatchOrigin.Unsaid
    },
    placement = None
  )

  private def reopened(
      missing: Option[Set[Int]],
      placed: Option[Placement] = Some(placement)
  ): LastDecision.Reopened = {
    val origin = BatchOrigin.of(Some(fingerprint(6)))
    LastDecision.Reopened(6, 1, missing, 4, origin, last().decided.tail, placed, Some("q"))
  }

  /** A batch of a query that reads Kafka, whose rows depend on the time where its plan is of that kind. */
  private def batchOf(batch: Long, kind: PlanKind, atMs: Long = 1): QueryBatch = QueryBatch(
    batch,
    kind,
    of => {
      val end = s"""{"in":{"0":$batch}}""" + (if (of == PlanKind.OfTime) s" at $atMs" else "")
      BatchFingerprint(Vector(SourceFingerprint.of("in", end, of == PlanKind.OfInput)))
    }
  )

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
      print: Option[QueryBatch] = None
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
    val message = fails(of(6, print = Some(fingerprint(7).copy(batch = 6))))
    assert(message.contains("KafkaV2[Subscribe[in]]") && message.contains("sinkName"))
    fails(of(4, print = Some(fingerprint(7).copy(batch = 4))))
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

  test(
    "of a write of no query nothing but its txnVersion is known: one that was decided is skipped"
  ) {
    val decided = LastDecision.Decided(decision(6, None))
    assert(Verdict.of(identity, write(6, None), decided) == Verdict.Discard(isOld = false))
    val known = LastDecision.Decided(decision(6, None).copy(history =
      Vector(DecidedBatch(2, BatchOrigin.Unplanned))
    ))
    assert(Verdict.of(identity, write(2, None), known) == Verdict.Discard(isOld = true))
    assert(fails(Verdict.of(identity, write(5, None), known)).contains("comes too late"))
    assert(Verdict.of(identity, write(7, None), decided) == Verdict.Write(0, None))
  }

  test("a write of a query's batch is that batch, whatever its txnVersion") {
    // Two versions of each batch: the second of batch 6 was decided last.
    val earlier = Vector(112L -> 6L, 111L -> 5L, 110L -> 5L).map { case (version, batch) =>
      decision(version, Some(fingerprint(batch, namesContent = false))).remembered
    }
    val newest = decision(113, Some(fingerprint(6, namesContent = false)))
    val decided = LastDecision.Decided(newest.copy(history = earlier))
    def of(version: Long, batch: Long) =
      Verdict.of(identity, write(version, Some(fingerprint(batch, namesContent = false))), decided)
    assert(of(113, 6) == Verdict.Discard(isOld = false))
    assert(of(112, 6) == Verdict.Discard(isOld = false), "of the same batch")
    assert(fails(of(113, 7)).contains("Batch 113 is not the one that was decided"))
    assert(fails(of(111, 5)).contains("counters"))
    assert(of(114, 7) == Verdict.Write(0, None))
  }

  test("two batches of a query that end alike are two, whatever their versions are") {
    // As batch 6 had no new input, and fired timers; its versions were counted from 1 before.
    val decided = LastDecision.Decided(decision(6, Some(fingerprint(5))))
    val silent = Some(fingerprint(5).copy(batch = 6))
    for (of <- Seq(write(6, silent), start(6, silent))) {
      val message = fails(Verdict.of(identity, of, decided))
      assert(message.contains("it was batch 5 of the query, and is batch 6 now"))
    }
  }

  test("a write of a query is not what a write outside of queries has decided, and says so") {
    val decided = LastDecision.Decided(decision(6, None, queryId = identity.appId))
    val message = fails(Verdict.of(identity, write(6, Some(fingerprint(6))), decided))
    assert(message.contains("a write outside of queries has decided it"))
  }

  test("a write that an earlier release has decided last is skipped by its query; others fail") {
    val decided = LastDecision.Decided(first(decision(6, None)).copy(history =
      Vector(DecidedBatch(5, BatchOrigin.Unsaid))
    ))
    def of(start: BatchStart) = Verdict.of(identity, start, decided)
    assert(of(write(6, Some(fingerprint(6)))) == Verdict.Discard(isOld = false))
    assert(fails(of(write(5, Some(fingerprint(5))))).contains("an earlier release"))
    val renamed = write(6, Some(fingerprint(6))).copy(queryId = "another")
    val ofJob = LastDecision.Decided(first(decision(6, None, queryId = identity.appId)))
    assert(fails(Verdict.of(identity, renamed, ofJob)).contains("an earlier release"))
    assert(fails(of(start(6, Some(fingerprint(6))))).contains("an earlier release"), "a stream")
  }

  for {
    before <- PlanKind.all
    now <- PlanKind.all
    isFirst <- Seq(true, false)
  } test(s"decided as $before, ${if (isFirst) "by an earlier release, " else ""}and now $now") {
    val newest = decision(6, Some(batchOf(6, before)))
    val decided = LastDecision.Decided(if (isFirst) first(newest) else newest)
    def of(batch: QueryBatch) = Verdict.of(
      identity,
      start(batch.batch, Some(batch)).copy(earlier = b => Some(batchOf(b, now))),
      decided
    )
    assert(of(batchOf(6, now)) == Verdict.Discard(isOld = false), "the batch runs again")
    assert(of(batchOf(7, now)) == Verdict.Write(0, None), "the next one")
    if (before == PlanKind.OfTime)
      assert(fails(of(batchOf(6, now, atMs = 2))).contains("is not the one"), "planned anew")
    val copied = start(7, Some(batchOf(7, now))).copy(earlier = _ => Some(batchOf(5, now)))
    assert(fails(Verdict.of(identity, copied, decided)).contains("Batch 6 is not the one"))
  }

  test("K3: a txnVersion that another query decided fails, and a later one is written") {
    val decided = LastDecision.Decided(decision(6, None, queryId = "other"))
    def of(batch: Long) =
      Verdict.of(identity, start(batch, None).copy(queryId = "this-one"), decided)
    assert(fails(of(6)).contains("other"))
    assert(of(7) == Verdict.Write(0, None))
    // Whose offset log says nothing of the other's batches.
    val planned = LastDecision.Decided(decision(6, Some(fingerprint(6)), queryId = "other"))
    val later = start(7, Some(fingerprint(0)))
      .copy(queryId = "this-one", earlier = b => Some(fingerprint(b + 1)))
    assert(Verdict.of(identity, later, planned) == Verdict.Write(0, None))
  }

  test("K3: where a query was not known, the job's name decided, and its queries go on") {
    val byName = LastDecision.Decided(decision(6, None, queryId = identity.appId))
    assert(Verdict.of(identity, start(6, None), byName) == Verdict.Discard(isOld = false))
    val byQuery = LastDecision.Decided(decision(6, None, queryId = "of-the-query"))
    val unknown = start(6, None).copy(queryId = identity.appId)
    assert(Verdict.of(identity, unknown, byQuery) == Verdict.Discard(isOld = false))
  }

  test("a batch that was opened again is written in the next round; the one before is known") {
    val open = reopened(None)
    def of(batch: Long) = Verdict.of(identity, start(batch, Some(fingerprint(batch))), open)
    assert(of(6) == Verdict.Write(1, Some(open)))
    assert(of(7) == Verdict.Write(0, None), "a query has run it again")
    assert(of(4) == Verdict.Discard(isOld = false))
  }

  test("a version that was opened again is written before any later one") {
    for (isQuery <- Seq(true, false)) {
      def of(batch: Long) = {
        val planned = Option.when(isQuery)(fingerprint(batch))
        Verdict.of(identity, write(batch, planned), reopened(None))
      }
      assert(fails(of(7)).contains("Version 6 of txnAppId"))
      assert(of(6) == Verdict.Write(1, Some(reopened(None))))
    }
  }

  private def again(
      missing: Option[Set[Int]],
      print: QueryBatch = fingerprint(6),
      now: Option[Placement] = Some(placement),
      placed: Option[Placement] = Some(placement)
  ) = Verdict.of(
    identity,
    start(6, Some(print)).copy(placement = () => now),
    reopened(missing, placed)
  )

  test("where partitions of a batch are with the readers, no other batch takes its place") {
    assert(again(Some(Set(1))).isInstanceOf[Verdict.Write])
    assert(again(None, fingerprint(7), now = None, placed = None).isInstanceOf[Verdict.Write])
    assert(fails(again(Some(Set(1)), fingerprint(7))).contains("Batch 6 is not the one"))
    val ofJob = reopened(Some(Set(1))).copy(origin = BatchOrigin.Unplanned)
    val ofQuery = write(6, Some(fingerprint(6))).copy(placement = () => Some(placement))
    assert(fails(Verdict.of(identity, ofQuery, ofJob)).contains("a write outside of queries"))
    assert(Verdict.of(identity, ofQuery.copy(planned = None), ofJob) == Verdict.Write(
      1,
      Some(ofJob)
    ))
  }

  for (
    (name, decided, now, says) <- Seq(
      (
        "adaptive when it was decided",
        Some(placement.copy(isChosen = true)),
        placement,
        "Spark chose"
      ),
      ("adaptive now", Some(placement), placement.copy(isChosen = true), "Spark chooses"),
      (
        "other shuffle partitions",
        Some(placement),
        placement.copy(shuffles = Vector(7)),
        "shuffles"
      ),
      ("other input partitions", Some(placement), placement.copy(inputs = Vector(3)), "inputs"),
      ("decided by an earlier release", None, placement, "earlier releases did not note it")
    )
  ) test(s"partitions are not written again where rows may lie in others: $name") {
    val message = fails(again(Some(Set(1)), now = Some(now), placed = decided))
    assert(message.contains("Batch 6 cannot be written again in part") && message.contains(says))
  }

  test("where partitions of a batch are with the readers, it comes before any other batch") {
    for (batch <- Seq(4L, 7L)) {
      val start = this.start(batch, Some(fingerprint(batch)))
      val message = fails(Verdict.of(identity, start, reopened(Some(Set(1)))))
      assert(message.contains("rows of batch 6 were lost"))
    }
  }

  test("a later batch fails where the checkpoint knows the last decided one as another") {
    def of(known: Option[QueryBatch]) =
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

  test("decisions remember all versions of the last batch, which runs again after a crash") {
    def after(versions: Range, of: Long => Option[QueryBatch]): LastDecision =
      versions.foldLeft(LastDecision.Nothing: LastDecision) { (last, version) =>
        LastDecision.Decided(
          decision(version.toLong, of(version.toLong)).copy(history = last.decided)
        )
      }
    val ofOne = after(0 until 150, _ => Some(fingerprint(1)))
    assert(Verdict.of(identity, write(0, Some(fingerprint(1))), ofOne) == Verdict.Discard(isOld =
      false
    ))
    assert(after(0 until 1100, _ => Some(fingerprint(1))).decided.size == 1000)
    val next = after(0 until 151, version => Some(fingerprint(version / 150)))
    assert(next.decided.size == 100, "the batch before does not run again")
    assert(after(0 until 150, _ => None).decided.size == 100)
  }
}
