package statemark.engine

import java.io._
import java.nio.charset.StandardCharsets.UTF_8
import scala.collection.immutable.ArraySeq
import statemark.common._

/** The bytes of the offsets column family, in which a base store says what it holds.
  *
  * {{{
  *   key "format"    int32 format version
  *   key "identity"  utf queryId | int64 operator | int32 partition | utf store | int32 partitions
  *   key "mark"      utf id of the change of the checkpoint that came last, empty where none
  *   key "state"     versionId | int64 keys | int64 internalKeys | versionId lastSnapshot
  *                   | int32 n | n x versionId lineage
  *   key "families"  int16 maxId | int32 n | n x (utf name | int16 id | int8 internal)
  *   key "position"  int32 n | n x (utf source | int8 kind [| text offset or digest])
  *   key "proof"     int64 version | int8 kind | int32 length | fingerprint
  *   key "uploads"   int32 n | n x (utf localName | utf remoteName | int64 bytes | int64 version)
  *   key "intent"    int64 version [| UTF file, int32 n, n x (int32 length, key, int32 length, value)]
  *   versionId       int64 version | int8 hasId [| utf checkpointId]
  *   utf             uint16 length | modified UTF-8   (java.io.DataOutput.writeUTF)
  *   text            int32 length | UTF-8
  * }}}
  * Integers are big endian. FORMAT.md is the reader's and writer's contract; a golden file pins
  * these bytes. Changed only together with [[FormatVersion]].
  */
object OffsetsColumnFamily {
  val Name: String = "statemark_offsets"

  val FormatKey: Array[Byte] = "format".getBytes(UTF_8)
  val IdentityKey: Array[Byte] = "identity".getBytes(UTF_8)
  val MarkKey: Array[Byte] = "mark".getBytes(UTF_8)
  val StateKey: Array[Byte] = "state".getBytes(UTF_8)
  val FamiliesKey: Array[Byte] = "families".getBytes(UTF_8)
  val PositionKey: Array[Byte] = "position".getBytes(UTF_8)
  val ProofKey: Array[Byte] = "proof".getBytes(UTF_8)
  val UploadsKey: Array[Byte] = "uploads".getBytes(UTF_8)
  val IntentKey: Array[Byte] = "intent".getBytes(UTF_8)

  def encodeFormat(format: FormatVersion): Array[Byte] = encode(_.writeInt(format.number))

  def decodeFormat(bytes: Array[Byte]): FormatVersion =
    decode("format", bytes)(in => FormatVersion.of(in.readInt()))

  def encodeIdentity(identity: StoreIdentity): Array[Byte] = encode { out =>
    out.writeUTF(identity.queryId)
    out.writeLong(identity.operatorId)
    out.writeInt(identity.partitionId)
    out.writeUTF(identity.storeName)
    out.writeInt(identity.partitions)
  }

  def decodeIdentity(bytes: Array[Byte]): StoreIdentity = decode("identity", bytes) { in =>
    StoreIdentity(in.readUTF(), in.readLong(), in.readInt(), in.readUTF(), in.readInt())
  }

  /** Encodes the mark of the checkpoint under which a base store was made; an empty text where there was none. */
  def encodeMark(mark: Option[String]): Array[Byte] = encode(_.writeUTF(mark.getOrElse("")))

  def decodeMark(bytes: Array[Byte]): Option[String] =
    decode("mark", bytes)(in => Some(in.readUTF()).filter(_.nonEmpty))

  /** Returns the records that come with a version. Column families and position have records of their own, written only
    * where they changed; so has a fingerprint, where there is one. A record of an older version proves nothing.
    * @param before the version before; None in a new store
    */
  def records(state: StoreState, before: Option[StoreState]): Seq[(Array[Byte], Array[Byte])] = {
    val changed = Seq(
      Option.when(!before.exists(_.families == state.families))(
        FamiliesKey -> encodeFamilies(state.families)
      ),
      Option.when(!before.exists(_.position == state.position))(
        PositionKey -> encodePosition(state.position)
      ),
      state.fingerprint.map(seen => ProofKey -> encodeProof(HistoryProof(state.version, seen)))
    )
    (StateKey -> encodeState(state)) +: changed.flatten
  }

  /** Returns all of a state but its column families, position and fingerprint, which have records of their own. */
  def encodeState(state: StoreState): Array[Byte] = encode { out =>
    writeVersionId(out, state.at)
    out.writeLong(state.counts.keys)
    out.writeLong(state.counts.internalKeys)
    writeVersionId(out, state.lastSnapshot)
    out.writeInt(state.lineage.length)
    state.lineage.foreach(writeVersionId(out, _))
  }

  /** @param proof the content of the proof's record, which may be of an earlier version */
  def decodeState(
      bytes: Array[Byte],
      families: ColumnFamilies,
      position: Option[Position],
      proof: Option[HistoryProof]
  ): StoreState =
    decode("state", bytes) { in =>
      val at = readVersionId(in)
      val counts = RowCounts(in.readLong(), in.readLong())
      val snapshot = readVersionId(in)
      val lineage = Vector.fill(in.readInt())(readVersionId(in))
      val fingerprint = proof.filter(_.version == at.version).map(_.fingerprint)
      StoreState(at, counts, families, snapshot, lineage, position, fingerprint)
    }

  def encodeFamilies(families: ColumnFamilies): Array[Byte] = encode { out =>
    out.writeShort(families.maxId.toInt)
    out.writeInt(families.byName.size)
    families.byName.toSeq.sortBy(_._2.id).foreach { case (name, family) =>
      out.writeUTF(name)
      out.writeShort(family.id.toInt)
      out.writeBoolean(family.isInternal)
    }
  }

  def decodeFamilies(bytes: Array[Byte]): ColumnFamilies = decode("families", bytes) { in =>
    val maxId = in.readShort()
    val byName =
      Seq.fill(in.readInt())(in.readUTF() -> ColumnFamily(in.readShort(), in.readBoolean()))
    ColumnFamilies(byName.toMap, maxId)
  }

  /** Encodes a position; an unknown one is an empty record. */
  def encodePosition(position: Option[Position]): Array[Byte] =
    position.fold(Array.emptyByteArray)(known =>
      encode { out =>
        out.writeInt(known.sources.length)
        known.sources.foreach { of =>
          out.writeUTF(of.source)
          of.end match {
            case SourceEnd.Nothing => out.writeByte(EndKind.Nothing)
            case SourceEnd.Offset(json) =>
              out.writeByte(EndKind.Offset)
              writeText(out, json)
            case SourceEnd.Digest(hex) =>
              out.writeByte(EndKind.Digest)
              writeText(out, hex)
          }
        }
      }
    )

  def decodePosition(bytes: Array[Byte]): Option[Position] =
    Option.when(bytes.nonEmpty)(decode("position", bytes) { in =>
      Position(Vector.fill(in.readInt())(SourceOffset(
        in.readUTF(),
        in.readByte().toInt match {
          case EndKind.Nothing => SourceEnd.Nothing
          case EndKind.Offset => SourceEnd.Offset(readText(in))
          case EndKind.Digest => SourceEnd.Digest(readText(in))
          case other => throw new IOException(s"$other is no kind of an offset")
        }
      )))
    })

  private object EndKind {
    val Nothing = 0
    val Offset = 1
    val Digest = 2
  }

  def encodeProof(proof: HistoryProof): Array[Byte] = encode { out =>
    out.writeLong(proof.version)
    out.writeByte(proof.fingerprint.kind.toInt)
    writeBytes(out, proof.fingerprint.bytes.toArray)
  }

  def decodeProof(bytes: Array[Byte]): HistoryProof = decode("proof", bytes) { in =>
    val version = in.readLong()
    HistoryProof(version, Fingerprint(in.readByte(), ArraySeq.unsafeWrapArray(readBytes(in))))
  }

  def encodeUploads(uploads: Seq[UploadedSst]): Array[Byte] = encode { out =>
    out.writeInt(uploads.length)
    uploads.sortBy(_.localName).foreach { sst =>
      out.writeUTF(sst.localName)
      out.writeUTF(sst.remoteName)
      out.writeLong(sst.bytes)
      out.writeLong(sst.version)
    }
  }

  def decodeUploads(bytes: Array[Byte]): Vector[UploadedSst] = decode("uploads", bytes) { in =>
    Vector.fill(in.readInt())(UploadedSst(in.readUTF(), in.readUTF(), in.readLong(), in.readLong()))
  }

  def encodeIntent(intent: Intent): Array[Byte] = encode { out =>
    out.writeLong(intent.version)
    intent.redo.foreach { redo =>
      out.writeUTF(redo.file)
      out.writeInt(redo.records.length)
      redo.records.foreach { case (key, value) =>
        writeBytes(out, key)
        writeBytes(out, value)
      }
    }
  }

  def decodeIntent(bytes: Array[Byte]): Intent = decode("intent", bytes) { in =>
    Intent(
      in.readLong(),
      Option.when(in.available() > 0)(
        Redo(in.readUTF(), Seq.fill(in.readInt())((readBytes(in), readBytes(in))))
      )
    )
  }

  private def writeText(out: DataOutputStream, text: String): Unit =
    writeBytes(out, text.getBytes(UTF_8))

  private def readText(in: DataInputStream): String = new String(readBytes(in), UTF_8)

  private def writeBytes(out: DataOutputStream, bytes: Array[Byte]): Unit = {
    out.writeInt(bytes.length)
    out.write(bytes)
  }

  private def readBytes(in: DataInputStream): Array[Byte] = {
    val length = in.readInt()
    if (length > in.available()) throw new EOFException(s"$length bytes are named")
    val bytes = new Array[Byte](length)
    in.readFully(bytes)
    bytes
  }

  private def writeVersionId(out: DataOutputStream, id: VersionId): Unit = {
    out.writeLong(id.version)
    out.writeBoolean(id.checkpointId.isDefined)
    id.checkpointId.foreach(out.writeUTF)
  }

  private def readVersionId(in: DataInputStream): VersionId =
    VersionId(in.readLong(), Option.when(in.readBoolean())(in.readUTF()))

  private def encode(write: DataOutputStream => Unit): Array[Byte] = {
    val bytes = new ByteArrayOutputStream()
    write(new DataOutputStream(bytes))
    bytes.toByteArray
  }

  private def decode[A](record: String, bytes: Array[Byte])(read: DataInputStream => A): A = {
    val in = new DataInputStream(new ByteArrayInputStream(bytes))
    val result =
      try read(in)
      catch {
        case e: java.io.IOException => throw damaged(record, bytes, Some(e))
        case e: NegativeArraySizeException => throw damaged(record, bytes, Some(e))
      }
    if (in.available() > 0) throw damaged(record, bytes, None)
    result
  }

  private def damaged(record: String, bytes: Array[Byte], cause: Option[Throwable]) =
    new StoreUnusableException(
      s"The record '$record' of the offsets column family cannot be read: its ${bytes.length} bytes " +
        s"are not in format ${FormatVersion.current.number}. The local copy is damaged; it is " +
        "loaded again from the checkpoint.",
      cause
    )
}

/** A version is being written in several segments.
  *
  * @param redo how to write it to the end, where its writes lie on disk
  */
final case class Intent(version: Long, redo: Option[Redo])

/** @param file with the version's writes ([[FileBatch]]), in the directory for staged writes
  * @param records for the offsets column family, that come with the last segment
  */
final case class Redo(file: String, records: Seq[(Array[Byte], Array[Byte])])

/** The formats in which a base store writes its offsets column family. One case per step, for ever. */
sealed abstract class FormatVersion(val number: Int)

object FormatVersion {

  /** The first: records format, identity, state, families. No directory of it outlived its process.
    */
  case object V1 extends FormatVersion(1)

  /** Records position, proof, uploads and intent. */
  case object V2 extends FormatVersion(2)

  /** Record proof holds the fingerprint of a file, and comes with the rows. */
  case object V3 extends FormatVersion(3)

  /** Record mark. */
  case object V4 extends FormatVersion(4)

  /** Record position names the sources, and has digests of offsets that are too long for it. */
  case object V5 extends FormatVersion(5)

  val all: Seq[FormatVersion] = Seq(V1, V2, V3, V4, V5)
  val current: FormatVersion = V5

  /** The formats whose stores this release goes on with, in the format of today: one of V3 was made under no mark. */
  val continued: Seq[FormatVersion] = Seq(V3, V4, V5)

  /** @throws LocalRejectedException for a version that this release does not know */
  def of(number: Int): FormatVersion = all.find(_.number == number).getOrElse {
    throw new LocalRejectedException(
      RejectReason.OtherFormat,
      s"The local store is in format $number, but this release knows ${all.map(_.number).mkString(", ")} " +
        "only: it was written by a newer release. It is loaded again from the checkpoint."
    )
  }
}
