package statemark.kafka

import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Path, Paths}
import org.apache.kafka.common.TopicPartition
import org.scalatest.funsuite.AnyFunSuite
import scala.collection.immutable.ArraySeq
import statemark.kafka.conf.{SinkException, SinkIdentity}
import statemark.kafka.decision.{
  BatchFingerprint,
  BatchOrigin,
  DecidedBatch,
  DecidedRows,
  DecidedTransaction,
  Decision,
  LastDecision,
  Placement,
  PlanKind,
  SourceEnds,
  SourceFingerprint
}
import statemark.kafka.log.{
  CommitRecord,
  CommitState,
  DecisionCodec,
  DecisionPart,
  HeldLag,
  IdentityRecord,
  RecordCodec,
  ReopenedRecord,
  RuleCodec,
  RuleRecord,
  Token
}
import statemark.kafka.rows.{OffsetRuns, TransactionName}

/** Pins the bytes of the commit topic to golden files, which FORMAT.md describes. Rewrite the newest with `REWRITE=1`,
  * together with FORMAT.md and a new format version; those before it stay, as their records are still there.
  */
class RecordCodecSuite extends AnyFunSuite {
  private val identity = SinkIdentity("0a1b-query", "orders")
  private def planned(batch: Long, kind: Option[PlanKind], digit: Int, namesContent: Boolean) =
    BatchOrigin.Planned(batch, kind, ArraySeq.fill(16)(digit.toByte), namesContent)

  private val history = Vector(
    DecidedBatch(40, planned(40, Some(PlanKind.OfInput), 7, namesContent = true)),
    DecidedBatch(39, planned(36, Some(PlanKind.OfTime), 8, namesContent = false)),
    DecidedBatch(38, planned(35, None, 9, namesContent = false)),
    DecidedBatch(37, BatchOrigin.Unplanned),
    DecidedBatch(36, BatchOrigin.Unsaid)
  )

  private val sources = Vector(
    SourceFingerprint.of("KafkaV2[Subscribe[in]]", """{"in":{"0":42}}""", namesContent = true),
    SourceFingerprint.of("FileStreamSource", """{"logOffset":3}""", namesContent = false)
  )

  private val origin = BatchOrigin.Planned(
    batch = 21,
    Some(PlanKind.OfInput),
    BatchFingerprint(sources).digest,
    namesContent = false
  )

  private val placement = Placement(isChosen = false, Vector(200, 12), Vector(3))

  private val decision = Decision(
    batch = 41,
    round = 1,
    queryId = "0a1b-query",
    partitions = 200,
    missing = Some(Set(3, 0)),
    origin = origin,
    sources = sources,
    history = history,
    isCommitted = false,
    transactions = Vector(
      DecidedTransaction(
        TransactionName("statemark.0a1b-query.orders.e1", 7),
        Vector(0, 3),
        Vector(
          DecidedRows(
            new TopicPartition("orders", 0),
            OffsetRuns.ascending(Iterator(5L, 6L, 9L, 1000L)),
            -12345678901L
          ),
          DecidedRows(
            new TopicPartition("orders", 1),
            OffsetRuns.ascending(Iterator(5000000000L)),
            1L
          )
        )
      ),
      DecidedTransaction(
        TransactionName("statemark.0a1b-query.orders.e1", 8),
        Vector(3),
        Vector(DecidedRows(
          new TopicPartition("orders", 0),
          OffsetRuns.ascending(Iterator(1200L)),
          2L
        ))
      )
    ),
    placement = Some(placement),
    ends = Vector(
      SourceEnds(
        "KafkaV2[Subscribe[in]]",
        "readers",
        Vector("in" -> Vector(0 -> 42L, 7 -> 5000000000L))
      )
    )
  )
  private val name = TransactionName("statemark.0a1b-query.orders.e1", 7)
  private val parts = RecordCodec.parts(identity, decision)

  private val records: Seq[(String, CommitRecord)] = Seq(
    "identity" -> IdentityRecord(
      identity,
      "0a1b-query",
      "statemark.0a1b-query.orders.driver",
      "statemark",
      3,
      "clicks",
      Vector("orders")
    ),
    "decision" -> parts.head,
    "decision, a later part" -> DecisionPart(identity, 41, 1, 2, 3, ArraySeq[Byte](1, 2, 3)),
    "reopened, whole" -> ReopenedRecord(
      identity,
      LastDecision.Reopened(
        41,
        2,
        None,
        200,
        BatchOrigin.Unplanned,
        history,
        None,
        Some("0a1b-query")
      )
    ),
    "reopened, in part" -> ReopenedRecord(
      identity,
      LastDecision.Reopened(
        41,
        2,
        Some(Set(3, 1)),
        200,
        origin,
        Vector.empty,
        Some(placement),
        Some("0a1b-query")
      )
    ),
    "token, committed" -> Token(identity, 0, name, 41, 1, None),
    "token, copied in part" -> Token(identity, 1, name.copy(number = 8), 41, 1, Some(1000))
  )

  /** What the first format says of them. */
  private val ofFirst = {
    def without(of: BatchOrigin) = of match {
      case planned: BatchOrigin.Planned =>
        planned.copy(kind = Option.when(planned.namesContent)(PlanKind.OfInput))
      case other => other
    }
    val known = Vector(history.head, DecidedBatch(39, BatchOrigin.Unsaid))
    val decided = decision.copy(
      origin = without(origin.copy(batch = 41)),
      history = known,
      placement = None,
      ends = Vector.empty
    )
    val whole =
      LastDecision.Reopened(41, 2, None, 200, BatchOrigin.Unsaid, known, None, None)
    val digest = planned(41, None, 7, namesContent = false)
    val inPart =
      LastDecision.Reopened(41, 2, Some(Set(3, 1)), 200, digest, Vector.empty, None, None)
    (decided, whole, inPart)
  }

  private def golden(version: Int): Path = golden(s"commit-topic-v$version")

  private def golden(name: String): Path = {
    val file = s"src/test/resources/golden/$name.txt"
    Paths.get(file) match {
      case inProject if Files.exists(inProject.getParent) => inProject
      case _ => Paths.get(s"jvm/kafka/$file")
    }
  }

  private def hex(bytes: Array[Byte]) = bytes.map(b => f"$b%02x").mkString

  /** The records of a golden file, by their names. */
  private def read(version: Int): Map[String, CommitRecord] =
    Files.readString(golden(version)).split("\n").grouped(3).map { lines =>
      val bytes = lines.drop(1).map(line =>
        line.trim.grouped(2).map(Integer.parseInt(_, 16).toByte).toArray
      )
      lines.head -> RecordCodec.decode(bytes.head, bytes.last)
    }.toMap

  test("bytes are those of the golden file") {
    val now = records.map { case (name, record) =>
      s"$name\n  ${hex(RecordCodec.key(record))}\n  ${hex(RecordCodec.value(record))}\n"
    }.mkString
    if (sys.env.contains("REWRITE")) Files.write(golden(2), now.getBytes(UTF_8)): Unit
    assert(new String(Files.readAllBytes(golden(2)), UTF_8) == now)
  }

  test("records of the first format are read") {
    val (decided, whole, inPart) = ofFirst
    val first = read(1)
    val DecisionPart(_, 41, 1, 0, 1, bytes, format) = first("decision"): @unchecked
    assert(DecisionCodec.decode(bytes.toArray, format) == decided)
    assert(first("reopened, whole") == ReopenedRecord(identity, whole))
    assert(first("reopened, in part") == ReopenedRecord(identity, inPart))
    // Nothing has changed of the others.
    for (name <- Seq("identity", "token, committed", "token, copied in part"))
      assert(records.toMap.apply(name) == first(name))
    assert(stateOf(Seq(first("decision"))).last == LastDecision.Decided(decided))
  }

  test("an earlier release stops at a decision of today, and reads identities and tokens") {
    for ((name, record) <- records) {
      val isDecision = name.startsWith("decision") || name.startsWith("reopened")
      assert(RecordCodec.value(record).head == (if (isDecision) 2 else 1), name)
      assert(RecordCodec.key(record).head == 1, name)
    }
  }

  private val rules = Seq(
    "by timestamp" -> RuleRecord("orders", None, "alice", 1790000000000L),
    "by header" -> RuleRecord(
      "orders",
      Some("vérsion"),
      "alice",
      1790000000000L,
      Some(1790000060000L)
    ),
    "by header, with a lag that is held" -> RuleRecord(
      "prices-of-a-region",
      Some("version"),
      "",
      1790000000000L,
      None,
      Some(HeldLag(86400000L, isOwn = true, "e2b1"))
    )
  )

  test("bytes of rules are those of their golden file, and read back") {
    val file = golden("commit-topic-rules-v1")
    val now = rules.map { case (name, rule) =>
      s"$name\n  ${hex(RuleCodec.key(rule.topic))}\n  ${hex(RuleCodec.value(rule))}\n"
    }.mkString
    if (sys.env.contains("REWRITE")) Files.write(file, now.getBytes(UTF_8)): Unit
    assert(new String(Files.readAllBytes(file), UTF_8) == now)
    for ((_, rule) <- rules) {
      assert(RuleCodec.topicOf(RuleCodec.key(rule.topic)).contains(rule.topic))
      assert(RuleCodec.decode(rule.topic, RuleCodec.value(rule)) == rule)
    }
  }

  test("a rule is nobody's record to releases before it, and one of a later release is refused") {
    val key = RuleCodec.key("orders")
    // Their one way to find whose a record is.
    assert(RecordCodec.identityOf(key).isEmpty)
    assert(RuleCodec.topicOf(RecordCodec.key(records.head._2)).isEmpty)
    assert(RuleCodec.topicOf(key.take(3)).isEmpty)
    assert(RuleCodec.topicOf(Option.empty[Array[Byte]].orNull).isEmpty)
    val value = RuleCodec.value(rules.head._2)
    for (
      (bytes, why) <- Seq(value.updated(0, 2.toByte) -> "format is 2", value.take(9) -> "9 bytes")
    )
      assert(intercept[SinkException.UnreadableRecord](RuleCodec.decode("orders", bytes)).getMessage
        .contains(why))
  }

  test("every record reads back") {
    records.foreach { case (_, record) =>
      val key = RecordCodec.key(record)
      assert(RecordCodec.decode(key, RecordCodec.value(record)) == record)
      assert(RecordCodec.identityOf(key).contains(identity))
    }
    assert(parts.size == 1)
    assert(DecisionCodec.decode(parts.head.bytes.toArray, DecisionCodec.Newest) == decision)
  }

  test("a decision of another release, and what is no record, is refused by name") {
    val key = RecordCodec.key(records.head._2)
    val value = RecordCodec.value(records.head._2)
    val newer = value.updated(0, 2.toByte)
    val e = intercept[SinkException.UnreadableRecord](RecordCodec.decode(key, newer))
    assert(e.getMessage.contains("format is 2, and this release reads 1"))
    val ofDecision = RecordCodec.value(parts.head).updated(0, 3.toByte)
    val third =
      intercept[SinkException.UnreadableRecord](RecordCodec.decode(
        RecordCodec.key(parts.head),
        ofDecision
      ))
    assert(third.getMessage.contains("format is 3, and this release reads 1 to 2"))
    assert(RecordCodec.identityOf(key.updated(0, 2.toByte)).isEmpty)
    assert(RecordCodec.identityOf(Option.empty[Array[Byte]].orNull).isEmpty)
    intercept[SinkException.UnreadableRecord](RecordCodec.decode(key, value.take(5)))
    intercept[SinkException.UnreadableRecord](RecordCodec.decode(key.take(3), value))
    val token = RecordCodec.value(records.last._2)
    intercept[SinkException.UnreadableRecord](RecordCodec.decode(key, token))
  }

  /** A decision of more than a record takes. */
  private def large(batch: Long) = {
    val rows = (0 until 4).map { partition =>
      DecidedRows(
        new TopicPartition("orders", partition),
        OffsetRuns.ascending(Iterator.range(0L, 200000L).map(_ * 2)),
        partition.toLong
      )
    }
    decision.copy(
      batch = batch,
      transactions = Vector(DecidedTransaction(name, Vector(0), rows.toVector))
    )
  }

  private def stateOf(records: Seq[CommitRecord]) = records.foldLeft(CommitState.empty) {
    (state, record) => state.updated(RecordCodec.key(record), Right(Some(record)), 0)
  }

  test("a large decision is written in parts; older ones with more parts leave theirs behind") {
    val many = RecordCodec.parts(identity, large(41))
    assert(many.size == 4 && many.forall(_.bytes.length <= RecordCodec.PartBytes))
    assert(stateOf(many).last == LastDecision.Decided(large(41)))
    val few = RecordCodec.parts(identity, decision.copy(batch = 42))
    assert(stateOf(many ++ few).last == LastDecision.Decided(decision.copy(batch = 42)))
    val again = RecordCodec.parts(identity, large(43))
    assert(stateOf(many ++ few ++ again).last == LastDecision.Decided(large(43)))
  }

  test("a decision with a part missing is refused, and not taken for none") {
    val many = RecordCodec.parts(identity, large(41))
    intercept[SinkException.UnreadableRecord](stateOf(many.take(3)).last)
  }

  test("tokens count for their decision alone") {
    def token(slot: Int, number: Long, batch: Long, round: Int, copied: Option[Long]) =
      Token(identity, slot, name.copy(number = number), batch, round, copied)
    def unfinished(records: CommitRecord*) =
      stateOf(parts ++ records).unfinished(decision).map(_._2)
    assert(unfinished() == Vector(0, 1))
    assert(unfinished(token(0, 7, 41, 1, None)) == Vector(1))
    assert(unfinished(token(0, 7, 41, 1, None), token(1, 8, 41, 1, Some(1))).isEmpty)
    assert(unfinished(token(0, 7, 41, 1, Some(4))) == Vector(0, 1), "five rows were decided")
    assert(unfinished(token(0, 7, 40, 1, None)) == Vector(0, 1), "of another batch")
    assert(unfinished(token(0, 7, 41, 0, None)) == Vector(0, 1), "of a round that was taken back")
    assert(unfinished(token(0, 6, 41, 1, None)) == Vector(0, 1), "of another transaction")
    val alone = decision.copy(isCommitted = true)
    assert(stateOf(RecordCodec.parts(identity, alone)).unfinished(alone).isEmpty)
  }

  test("a record that takes a decision back replaces it, and the next decision that") {
    val reopened = LastDecision.Reopened(41, 2, None, 200, origin, history, None, None)
    val taken = parts :+ ReopenedRecord(identity, reopened)
    assert(stateOf(taken).last == reopened)
    val next = decision.copy(round = 2)
    assert(stateOf(taken ++ RecordCodec.parts(identity, next)).last == LastDecision.Decided(next))
  }

  test("a decision of a query that reads 10,000 partitions stays below what a record takes") {
    def sizeOf(of: Decision) = DecisionCodec.encode(of).length
    val small = decision.copy(ends = Vector.empty, missing = None)
    val remembers = small.copy(history = Vector.fill(Decision.Remembered)(history.head))
    val topics = Vector("orders-of-a-region" -> Vector.tabulate(10000)(_ -> 50000000000L))
    val ends =
      remembers.copy(ends = Vector(SourceEnds("KafkaV2[Subscribe[in]]", "readers", topics)))
    val tasks = Vector(decision.transactions.head.copy(partitions = Vector.range(0, 10000)))
    val all = ends.copy(transactions = tasks)
    info(
      s"${sizeOf(small)} B; ${sizeOf(remembers)} B with 100 remembered batches, ${sizeOf(ends)} B " +
        s"with 10,000 ends, ${sizeOf(all)} B with 10,000 tasks of one transaction"
    )
    assert(sizeOf(all) < RecordCodec.PartBytes)
  }
}
