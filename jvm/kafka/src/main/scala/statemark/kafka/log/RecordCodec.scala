package statemark.kafka.log

import java.io._
import scala.collection.immutable.ArraySeq
import statemark.kafka.conf.{SinkException, SinkIdentity}
import statemark.kafka.decision.Decision
import statemark.kafka.log.RecordBytes._
import statemark.kafka.rows.TransactionName

/** Bytes of the commit topic's records, as FORMAT.md describes them and golden files pin them: keys and values begin
  * with their format's version. Keys, identities and tokens are of the first; of decisions there is a newer one, at which
  * an older release stops its sink.
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
    out.writeByte((record match {
      case part: DecisionPart => part.format
      case _: ReopenedRecord => DecisionCodec.Newest
      case _: IdentityRecord | _: Token => Version
    }).toInt)
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
        DecisionCodec.reopened(out, r)
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
      val format = in.readByte()
      version("value", format, DecisionCodec.Newest)
      val valueKind = in.readByte().toInt
      if (valueKind != DecisionKind && valueKind != ReopenedKind) version("value", format, Version)
      (kind, valueKind) match {
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
          val wrapped = ArraySeq.unsafeWrapArray(bytes)
          DecisionPart(identity, batch, round, part, parts, wrapped, format)
        case (DecisionKind, ReopenedKind) =>
          keyIn.readInt(): Unit
          ReopenedRecord(identity, DecisionCodec.readReopened(in, format))
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
    val pieces = DecisionCodec.encode(decision).grouped(PartBytes).toVector
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

  private def readKey(in: DataInputStream): (Int, SinkIdentity) = {
    version("key", in.readByte(), Version)
    (in.readByte().toInt, SinkIdentity(in.readUTF(), in.readUTF()))
  }

  private def version(of: String, found: Byte, newest: Byte): Unit =
    if (found < Version || found > newest) throw SinkException.unreadable(
      of,
      s"its format is $found, and this release reads $Version${if (newest > Version) s" to $newest"
        else ""}"
    )
}
