package statemark.kafka.log

import java.io._
import org.apache.kafka.common.TopicPartition
import scala.collection.immutable.ArraySeq
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
import statemark.kafka.log.RecordBytes._
import statemark.kafka.rows.{OffsetRuns, TransactionName}

/** Bytes of what was decided. Both formats are read, and the newest is written. */
private[kafka] object DecisionCodec {

  /** The format before the first release with origins, kinds and placements. */
  val First: Byte = 1

  val Newest: Byte = 2

  private val UnsaidTag = 0
  private val UnplannedTag = 1
  private val PlannedTag = 2
  private val OfInputTag = 3
  private val OfTimeTag = 4

  def encode(decision: Decision): Array[Byte] = bytesOf { out =>
    out.writeLong(decision.batch)
    out.writeInt(decision.round)
    out.writeUTF(decision.queryId)
    out.writeInt(decision.partitions)
    partitions(out, decision.missing)
    origin(out, decision.origin)
    list(out, decision.sources)(source(out, _))
    list(out, decision.history)(decidedBatch(out, _))
    option(out, decision.placement)(placement(out, _))
    list(out, SourceEnds.recorded(decision.ends))(ends(out, _))
    out.writeBoolean(decision.isCommitted)
    list(out, decision.transactions)(transaction(out, _))
  }

  /** Reads a decision.
    * @throws SinkException.UnreadableRecord where it is none
    */
  def decode(bytes: Array[Byte], format: Byte): Decision = reading("decision", bytes) { in =>
    val batch = in.readLong()
    val round = in.readInt()
    val queryId = in.readUTF()
    val count = in.readInt()
    val missing = readPartitions(in)
    val (origin, sources, history, placement, ends) =
      if (format == First) readFirst(in, batch) else readNewest(in)
    Decision(
      batch,
      round,
      queryId,
      count,
      missing,
      origin,
      sources,
      history,
      isCommitted = in.readBoolean(),
      readList(in)(readTransaction(in)),
      placement,
      ends
    )
  }

  /** What tells a batch from others, and where its rows are placed. */
  private type Batch = (
      BatchOrigin,
      Vector[SourceFingerprint],
      Vector[DecidedBatch],
      Option[Placement],
      Vector[SourceEnds]
  )

  private def readNewest(in: DataInputStream): Batch = (
    readOrigin(in),
    readList(in)(readSource(in)),
    readList(in)(readDecidedBatch(in)),
    readOption(in)(readPlacement(in)),
    readList(in)(readEnds(in))
  )

  private def readFirst(in: DataInputStream, batch: Long): Batch = {
    val fingerprint = readOption(in)(BatchFingerprint(readList(in)(readSource(in))))
    val history = readList(in)(readFirstDecidedBatch(in))
    val origin =
      firstOrigin(batch, fingerprint.map(_.digest), fingerprint.exists(_.namesContent))
    (origin, fingerprint.toVector.flatMap(_.sources), history, None, Vector.empty)
  }

  /** Writes a decision that was taken back. */
  def reopened(out: DataOutputStream, of: LastDecision.Reopened): Unit = {
    out.writeLong(of.batch)
    Seq(of.round, of.partitions).foreach(out.writeInt)
    partitions(out, of.missing)
    origin(out, of.origin)
    list(out, of.decided)(decidedBatch(out, _))
    option(out, of.placement)(placement(out, _))
    option(out, of.queryId)(out.writeUTF)
  }

  def readReopened(in: DataInputStream, format: Byte): LastDecision.Reopened = {
    val batch = in.readLong()
    val round = in.readInt()
    val count = in.readInt()
    val missing = readPartitions(in)
    if (format == First) {
      val digest = readOption(in)(readDigest(in))
      val decided = readList(in)(readFirstDecidedBatch(in))
      val origin = firstOrigin(batch, digest, namesContent = false)
      LastDecision.Reopened(batch, round, missing, count, origin, decided, None, None)
    } else {
      val origin = readOrigin(in)
      val decided = readList(in)(readDecidedBatch(in))
      val placement = readOption(in)(readPlacement(in))
      val queryId = readOption(in)(in.readUTF())
      LastDecision.Reopened(batch, round, missing, count, origin, decided, placement, queryId)
    }
  }

  private def origin(out: DataOutputStream, of: BatchOrigin): Unit = of match {
    case BatchOrigin.Unsaid => out.writeByte(UnsaidTag)
    case BatchOrigin.Unplanned => out.writeByte(UnplannedTag)
    case BatchOrigin.Planned(batch, kind, of, namesContent) =>
      out.writeByte(kind match {
        case None => PlannedTag
        case Some(PlanKind.OfInput) => OfInputTag
        case Some(PlanKind.OfTime) => OfTimeTag
      })
      out.writeLong(batch)
      digest(out, of)
      out.writeBoolean(namesContent)
  }

  private def readOrigin(in: DataInputStream): BatchOrigin = {
    def planned(kind: Option[PlanKind]) =
      BatchOrigin.Planned(in.readLong(), kind, readDigest(in), in.readBoolean())
    in.readByte().toInt match {
      case UnsaidTag => BatchOrigin.Unsaid
      case UnplannedTag => BatchOrigin.Unplanned
      case PlannedTag => planned(None)
      case OfInputTag => planned(Some(PlanKind.OfInput))
      case OfTimeTag => planned(Some(PlanKind.OfTime))
      case other => throw new IOException(s"an origin of kind $other")
    }
  }

  /** The origin of a batch in the first format, which had fingerprints of streaming queries alone: there the number of a
    * batch is that of the offset log.
    */
  private def firstOrigin(
      batch: Long,
      digest: Option[ArraySeq[Byte]],
      namesContent: Boolean
  ): BatchOrigin = digest.fold[BatchOrigin](BatchOrigin.Unsaid)(of =>
    // A fingerprint that has the time names no content.
    BatchOrigin.Planned(batch, Option.when(namesContent)(PlanKind.OfInput), of, namesContent)
  )

  private def decidedBatch(out: DataOutputStream, batch: DecidedBatch): Unit = {
    out.writeLong(batch.batch)
    origin(out, batch.origin)
  }

  private def readDecidedBatch(in: DataInputStream): DecidedBatch =
    DecidedBatch(in.readLong(), readOrigin(in))

  private def readFirstDecidedBatch(in: DataInputStream): DecidedBatch = {
    val batch = in.readLong()
    val digest = readOption(in)(readDigest(in))
    DecidedBatch(batch, firstOrigin(batch, digest, in.readBoolean()))
  }

  private def source(out: DataOutputStream, of: SourceFingerprint): Unit = {
    text(out, of.source)
    digest(out, of.digest)
    out.writeBoolean(of.namesContent)
  }

  private def readSource(in: DataInputStream): SourceFingerprint =
    SourceFingerprint(readText(in), readDigest(in), in.readBoolean())

  private def placement(out: DataOutputStream, of: Placement): Unit = {
    out.writeBoolean(of.isChosen)
    list(out, of.shuffles)(out.writeInt)
    list(out, of.inputs)(out.writeInt)
  }

  private def readPlacement(in: DataInputStream): Placement =
    Placement(in.readBoolean(), readList(in)(in.readInt()), readList(in)(in.readInt()))

  /** Partitions in the order of their numbers, of which the gaps are written. */
  private def ends(out: DataOutputStream, of: SourceEnds): Unit = {
    text(out, of.source)
    out.writeUTF(of.group)
    list(out, of.topics) { case (topic, partitions) =>
      out.writeUTF(topic)
      out.writeInt(partitions.size)
      partitions.foldLeft(0) { case (before, (partition, end)) =>
        varlong(out, partition.toLong - before)
        varlong(out, end)
        partition
      }: Unit
    }
  }

  private def readEnds(in: DataInputStream): SourceEnds = {
    val source = readText(in)
    val group = in.readUTF()
    val topics = readList(in) {
      val topic = in.readUTF()
      val partitions = Vector.newBuilder[(Int, Long)]
      (0 until in.readInt()).foldLeft(0) { (before, _) =>
        val partition = before + readVarlong(in).toInt
        partitions += partition -> readVarlong(in)
        partition
      }: Unit
      topic -> partitions.result()
    }
    SourceEnds(source, group, topics)
  }

  private def transaction(out: DataOutputStream, of: DecidedTransaction): Unit = {
    out.writeUTF(of.name.transactionalId)
    out.writeLong(of.name.number)
    list(out, of.partitions)(out.writeInt)
    list(out, of.rows) { rows =>
      out.writeUTF(rows.topicPartition.topic)
      out.writeInt(rows.topicPartition.partition)
      out.writeLong(rows.hash)
      runs(out, rows.runs)
    }
  }

  private def readTransaction(in: DataInputStream): DecidedTransaction = DecidedTransaction(
    TransactionName(in.readUTF(), in.readLong()),
    readList(in)(in.readInt()),
    readList(in) {
      val topicPartition = new TopicPartition(in.readUTF(), in.readInt())
      val hash = in.readLong()
      DecidedRows(topicPartition, readRuns(in), hash)
    }
  )

  /** The gap before each run and its length: small numbers, and most are a byte. */
  private def runs(out: DataOutputStream, runs: OffsetRuns): Unit = {
    out.writeInt(runs.starts.length)
    runs.starts.indices.foldLeft(0L) { (at, i) =>
      varlong(out, runs.starts(i) - at)
      varlong(out, runs.ends(i) - runs.starts(i))
      runs.ends(i)
    }: Unit
  }

  private def readRuns(in: DataInputStream): OffsetRuns = {
    val starts = ArraySeq.newBuilder[Long]
    val ends = ArraySeq.newBuilder[Long]
    (0 until in.readInt()).foldLeft(0L) { (at, _) =>
      val start = at + readVarlong(in)
      val end = start + readVarlong(in)
      starts += start
      ends += end
      end
    }: Unit
    OffsetRuns(starts.result(), ends.result())
  }
}
