package statemark.kafka

import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Paths}
import org.apache.kafka.common.TopicPartition
import org.scalatest.funsuite.AnyFunSuite
import scala.collection.immutable.ArraySeq
import statemark.kafka.conf.{SinkException, SinkIdentity}
import statemark.kafka.decision.{
  BatchFingerprint,
  DecidedBatch,
  DecidedRows,
  DecidedTransaction,
  Decision,
  LastDecision,
  SourceFingerprint
}
import statemark.kafka.log.{
  CommitRecord,
  CommitState,
  DecisionPart,
  IdentityRecord,
  RecordCodec,
  ReopenedRecord,
  Token
}
import statemark.kafka.rows.{OffsetRuns, TransactionName}

/** Pins the bytes of the commit topic to a golden file, which FORMAT.md describes. Rewrite it with `REWRITE=1`, together
  * with FORMAT.md and a new format version.
  */
class RecordCodecSuite extends AnyFunSuite {
  private val identity = SinkIdentity("0a1b-query", "orders")
  private val history = Vector(
    DecidedBatch(40, Some(ArraySeq.fill(16)(7.toByte)), namesContent = true),
    DecidedBatch(39, None, namesContent = false)
  )
  private val decision = Decision(
    batch = 41,
    round = 1,
    queryId = "0a1b-query",
    partitions = 200,
    missing = Some(Set(3, 0)),
    fingerprint = Some(BatchFingerprint(Vector(
      SourceFingerprint.of("KafkaV2[Subscribe[in]]", """{"in":{"0":42}}""", namesContent = true),
      SourceFingerprint.of("FileStreamSource", """{"logOffset":3}""", namesContent = false)
    ))),
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
      LastDecision.Reopened(41, 2, None, 200, None, history)
    ),
    "reopened, in part" -> ReopenedRecord(
      identity,
      LastDecision.Reopened(41, 2, Some(Set(3, 1)), 200, history.head.digest, Vector.empty)
    ),
    "token, committed" -> Token(identity, 0, name, 41, 1, None),
    "token, copied in part" -> Token(identity, 1, name.copy(number = 8), 41, 1, Some(1000))
  )

  private val golden = {
    val file = "src/test/resources/golden/commit-topic-v1.txt"
    Paths.get(file) match {
      case inProject if Files.exists(inProject.getParent) => inProject
      case _ => Paths.get(s"jvm/kafka/$file")
    }
  }

  private def hex(bytes: Array[Byte]) = bytes.map(b => f"$b%02x").mkString

  test("bytes are those of the golden file") {
    val now = records.map { case (name, record) =>
      s"$name\n  ${hex(RecordCodec.key(record))}\n  ${hex(RecordCodec.value(record))}\n"
    }.mkString
    if (sys.env.contains("REWRITE")) Files.write(golden, now.getBytes(UTF_8)): Unit
    assert(new String(Files.readAllBytes(golden), UTF_8) == now)
  }

  test("every record reads back") {
    records.foreach { case (_, record) =>
      val key = RecordCodec.key(record)
      assert(RecordCodec.decode(key, RecordCodec.value(record)) == record)
      assert(RecordCodec.identityOf(key).contains(identity))
    }
    assert(parts.size == 1)
    assert(RecordCodec.decodeDecision(parts.head.bytes.toArray) == decision)
  }

  test("a decision of another release, and what is no record, is refused by name") {
    val key = RecordCodec.key(records.head._2)
    val value = RecordCodec.value(records.head._2)
    val newer = value.updated(0, 2.toByte)
    val e = intercept[SinkException.UnreadableRecord](RecordCodec.decode(key, newer))
    assert(e.getMessage.contains("format is 2"))
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
    (state, record) => state.updated(RecordCodec.key(record), Some(RecordCodec.value(record)), 0)
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
    val reopened = LastDecision.Reopened(41, 2, None, 200, None, history)
    val taken = parts :+ ReopenedRecord(identity, reopened)
    assert(stateOf(taken).last == reopened)
    val next = decision.copy(round = 2)
    assert(stateOf(taken ++ RecordCodec.parts(identity, next)).last == LastDecision.Decided(next))
  }
}
