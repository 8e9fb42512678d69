package statemark.kafka.log

import java.io._
import java.nio.charset.StandardCharsets.UTF_8
import org.apache.kafka.common.TopicPartition
import scala.collection.immutable.ArraySeq
import scala.util.control.NonFatal
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
import statemark.kafka.rows.{OffsetRuns, TransactionName}

/** Bytes of the commit topic's records, as FORMAT.md describes them and a golden file pins them: keys and values begin
  * with the format's version.
  */
object RecordCodec {

  val Version: Byte = 1

  /** A decision of more bytes is written in several records: brokers take a megabyte by default. */
  val PartBytes: Int = 500 * 1000

  private val IdentityKind = 1
  private val DecisionKind = 2
  private val TokenKind = 3
  private val ReopenedKind = 4

  /** The key under which a record replaces an earlier one. */
  def key(record: CommitRecord): Array[Byte] = bytesOf { out =>
    def begin(kind: Int): Unit = {
      out.writeByte(Version.toInt)
      out.writeByte(kind)
      out.writeUTF(record.identity.appId)
      out.writeUTF(record.identity.sink)
    }
    record match {
      case _: IdentityRecord => begin(IdentityKind)
      case part: DecisionPart =>
        begin(DecisionKind)
        out.writeInt(part.part)
      case _: ReopenedRecord =>
        begin(DecisionKind)
        out.writeInt(0)
      case token: Token =>
        begin(TokenKind)
        out.writeUTF(token.transaction.transactionalId)
        out.writeInt(token.slot)
    }
  }

  def value(record: CommitRecord): Array[Byte] = bytesOf { out =>
    out.writeByte(Version.toInt)
    record match {
      case r: IdentityRecord =>
        out.writeByte(IdentityKind)
        Seq(r.queryId, r.driverId, r.prefix).foreach(out.writeUTF)
        out.writeLong(r.run)
        out.writeUTF(r.queryName)
        list(out, r.topics)(out.writeUTF)
      case r: DecisionPart =>
        out.writeByte(DecisionKind)
        out.writeLong(r.batch)
        Seq(r.round, r.parts, r.bytes.length).foreach(out.writeInt)
        out.write(r.bytes.toArray)
      case ReopenedRecord(_, r) =>
        out.writeByte(ReopenedKind)
        out.writeLong(r.batch)
        Seq(r.round, r.partitions).foreach(out.writeInt)
        partitions(out, r.missing)
        option(out, r.digest)(digest(out, _))
        list(out, r.decided)(decidedBatch(out, _))
      case r: Token =>
        out.writeByte(TokenKind)
        out.writeLong(r.transaction.number)
        out.writeLong(r.batch)
        out.writeInt(r.round)
        option(out, r.copied)(out.writeLong)
    }
  }

  /** Whose key it is; None where it is no key of ours. */
  def identityOf(key: Array[Byte]): Option[SinkIdentity] =
    // Of a record without a key it is null.
    Option(key).flatMap { bytes =>
      try Some(reading("key", bytes)(readKey(_)._2))
      catch { case _: SinkException.UnreadableRecord => None }
    }

  /** The record of a key and a value.
    * @throws SinkException.UnreadableRecord where another release wrote it, or it is no record of ours
    */
  def decode(key: Array[Byte], value: Array[Byte]): CommitRecord = reading("key", key) { keyIn =>
    val (kind, identity) = readKey(keyIn)
    reading("value", value) { in =>
      version("value", in.readByte())
      (kind, in.readByte().toInt) match {
        case (IdentityKind, IdentityKind) =>
          IdentityRecord(
            identity,
            queryId = in.readUTF(),
            driverId = in.readUTF(),
            prefix = in.readUTF(),
            run = in.readLong(),
            queryName = in.readUTF(),
            topics = readList(in)(in.readUTF())
          )
        case (DecisionKind, DecisionKind) =>
          val part = keyIn.readInt()
          val batch = in.readLong()
          val round = in.readInt()
          val parts = in.readInt()
          val bytes = in.readNBytes(in.readInt())
          DecisionPart(identity, batch, round, part, parts, ArraySeq.unsafeWrapArray(bytes))
        case (DecisionKind, ReopenedKind) =>
          keyIn.readInt(): Unit
          val batch = in.readLong()
          val round = in.readInt()
          val partitions = in.readInt()
          val missing = readPartitions(in)
          val digest = readOption(in)(readDigest(in))
          val decided = readList(in)(readDecidedBatch(in))
          ReopenedRecord(
            identity,
            LastDecision.Reopened(batch, round, missing, partitions, digest, decided)
          )
        case (TokenKind, TokenKind) =>
          val id = keyIn.readUTF()
          val slot = keyIn.readInt()
          val name = TransactionName(id, in.readLong())
          Token(identity, slot, name, in.readLong(), in.readInt(), readOption(in)(in.readLong()))
        case (ofKey, ofValue) => throw new IOException(s"kind $ofValue under a key of kind $ofKey")
      }
    }
  }

  /** The records of a decision, to be written in one transaction. */
  def parts(identity: SinkIdentity, decision: Decision): Vector[DecisionPart] = {
    val pieces = encode(decision).grouped(PartBytes).toVector
    pieces.zipWithIndex.map { case (bytes, at) =>
      DecisionPart(
        identity,
        decision.batch,
        decision.round,
        at,
        pieces.size,
        ArraySeq.unsafeWrapArray(bytes)
      )
    }
  }

  private[kafka] def encode(decision: Decision): Array[Byte] = bytesOf { out =>
    out.writeLong(decision.batch)
    out.writeInt(decision.round)
    out.writeUTF(decision.queryId)
    out.writeInt(decision.partitions)
    partitions(out, decision.missing)
    option(out, decision.fingerprint) { fingerprint =>
      list(out, fingerprint.sources) { source =>
        text(out, source.source)
        digest(out, source.digest)
        out.writeBoolean(source.namesContent)
      }
    }
    list(out, decision.history)(decidedBatch(out, _))
    out.writeBoolean(decision.isCommitted)
    list(out, decision.transactions) { transaction =>
      out.writeUTF(transaction.name.transactionalId)
      out.writeLong(transaction.name.number)
      list(out, transaction.partitions)(out.writeInt)
      list(out, transaction.rows) { rows =>
        out.writeUTF(rows.topicPartition.topic)
        out.writeInt(rows.topicPartition.partition)
        out.writeLong(rows.hash)
        runs(out, rows.runs)
      }
    }
  }

  private[kafka] def decodeDecision(bytes: Array[Byte]): Decision = reading("decision", bytes) {
    in =>
      Decision(
        batch = in.readLong(),
        round = in.readInt(),
        queryId = in.readUTF(),
        partitions = in.readInt(),
        missing = readPartitions(in),
        fingerprint = readOption(in)(BatchFingerprint(readList(in) {
          SourceFingerprint(readText(in), readDigest(in), in.readBoolean())
        })),
        history = readList(in)(readDecidedBatch(in)),
        isCommitted = in.readBoolean(),
        transactions = readList(in) {
          DecidedTransaction(
            TransactionName(in.readUTF(), in.readLong()),
            readList(in)(in.readInt()),
            readList(in) {
              val topicPartition = new TopicPartition(in.readUTF(), in.readInt())
              val hash = in.readLong()
              DecidedRows(topicPartition, readRuns(in), hash)
            }
          )
        }
      )
  }

  private def partitions(out: DataOutputStream, some: Option[Set[Int]]): Unit =
    option(out, some)(of => list(out, of.toVector.sorted)(out.writeInt))

  private def readPartitions(in: DataInputStream): Option[Set[Int]] =
    readOption(in)(readList(in)(in.readInt()).toSet)

  private def decidedBatch(out: DataOutputStream, batch: DecidedBatch): Unit = {
    out.writeLong(batch.batch)
    option(out, batch.digest)(digest(out, _))
    out.writeBoolean(batch.namesContent)
  }

  private def readDecidedBatch(in: DataInputStream): DecidedBatch =
    DecidedBatch(in.readLong(), readOption(in)(readDigest(in)), in.readBoolean())

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

  /** Seven bits a byte, the lowest first; the highest bit says that more follow. */
  private def varlong(out: DataOutputStream, number: Long): Unit = {
    var left = number
    while ((left & ~0x7fL) != 0) {
      out.writeByte((left & 0x7f | 0x80).toInt)
      left >>>= 7
    }
    out.writeByte(left.toInt)
  }

  private def readVarlong(in: DataInputStream): Long = {
    var number = 0L
    var shift = 0
    var byte = in.readByte()
    while (byte < 0 && shift < 63) {
      number |= (byte & 0x7fL) << shift
      shift += 7
      byte = in.readByte()
    }
    number | byte.toLong << shift
  }

  private def readKey(in: DataInputStream): (Int, SinkIdentity) = {
    version("key", in.readByte())
    (in.readByte().toInt, SinkIdentity(in.readUTF(), in.readUTF()))
  }

  private def version(of: String, found: Byte): Unit =
    if (found != Version) throw SinkException.unreadable(
      of,
      s"its format is $found, and this release reads $Version"
    )

  private def text(out: DataOutputStream, text: String): Unit = {
    val bytes = text.getBytes(UTF_8)
    out.writeInt(bytes.length)
    out.write(bytes)
  }

  private def readText(in: DataInputStream): String =
    new String(in.readNBytes(in.readInt()), UTF_8)

  private def digest(out: DataOutputStream, digest: ArraySeq[Byte]): Unit = {
    out.writeByte(digest.length)
    out.write(digest.toArray)
  }

  private def readDigest(in: DataInputStream): ArraySeq[Byte] =
    ArraySeq.unsafeWrapArray(in.readNBytes(in.readByte().toInt))

  private def option[A](out: DataOutputStream, value: Option[A])(write: A => Unit): Unit = {
    out.writeBoolean(value.isDefined)
    value.foreach(write)
  }

  private def readOption[A](in: DataInputStream)(read: => A): Option[A] =
    Option.when(in.readBoolean())(read)

  private def list[A](out: DataOutputStream, values: Seq[A])(write: A => Unit): Unit = {
    out.writeInt(values.length)
    values.foreach(write)
  }

  private def readList[A](in: DataInputStream)(read: => A): Vector[A] =
    Vector.fill(in.readInt())(read)

  private def bytesOf(write: DataOutputStream => Unit): Array[Byte] = {
    val bytes = new ByteArrayOutputStream
    val out = new DataOutputStream(bytes)
    write(out)
    out.flush()
    bytes.toByteArray
  }

  private def reading[A](of: String, bytes: Array[Byte])(read: DataInputStream => A): A =
    try read(new DataInputStream(new ByteArrayInputStream(bytes)))
    catch {
      case e: SinkException => throw e
      case NonFatal(e) => throw SinkException.unreadable(of, s"${bytes.length} bytes: $e", Some(e))
    }
}
