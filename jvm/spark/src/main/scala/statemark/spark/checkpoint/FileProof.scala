package statemark.spark.checkpoint

import java.io._
import scala.collection.immutable.ArraySeq
import statemark.common.Fingerprint

/** A file in the checkpoint location that brought a version of a store, in checkpoint format v1: its bytes as they were
  * written or read here, and the time that the file system told.
  */
final case class SeenFile(isSnapshot: Boolean, bytes: FileBytes, modifiedMs: Long) {

  /** Tells whether the file system may keep whole seconds only: a file written later in the same second looks as old.
    */
  def hasWholeSecond: Boolean = modifiedMs % 1000 == 0
}

/** The proof that the history which led to a version still stands ([[FileProofs]]).
  *
  * @param file the file of the version
  * @param origin how it came to be known
  */
final case class FileProof(file: SeenFile, origin: FileProof.Origin) {
  def fingerprint: Fingerprint = FileProof.encode(this)
}

/** {{{
  *   fingerprint, kind 1   seen | int8 origin: 0 found, 1 written, 2 written and known before [| seen, before]
  *   seen                  int8 is snapshot | int64 length | int32 CRC32C | int64 modifiedMs
  * }}}
  * Integers are big endian. FORMAT.md is the reader's and writer's contract, a golden file pins the bytes; changed only
  * together with the kind.
  */
object FileProof {
  sealed trait Origin

  /** The file lay there before the store read it. */
  case object Found extends Origin

  /** This store wrote it.
    * @param before the file of the version before, as this store knew it, where it did
    */
  final case class Written(before: Option[SeenFile]) extends Origin

  val Kind: Byte = 1

  /** None for a fingerprint of another kind, or one that cannot be read. */
  def of(fingerprint: Fingerprint): Option[FileProof] =
    if (fingerprint.kind != Kind) None
    else
      try {
        val in = new DataInputStream(new ByteArrayInputStream(fingerprint.bytes.toArray))
        val file = read(in)
        val origin = in.readByte().toInt match {
          case 0 => Some(Found)
          case 1 => Some(Written(None))
          case 2 => Some(Written(Some(read(in))))
          case _ => None
        }
        origin.filter(_ => in.available() == 0).map(FileProof(file, _))
      } catch { case _: EOFException => None }

  private def encode(proof: FileProof): Fingerprint = {
    val bytes = new ByteArrayOutputStream()
    val out = new DataOutputStream(bytes)
    write(out, proof.file)
    proof.origin match {
      case Found => out.writeByte(0)
      case Written(None) => out.writeByte(1)
      case Written(Some(before)) =>
        out.writeByte(2)
        write(out, before)
    }
    Fingerprint(Kind, ArraySeq.unsafeWrapArray(bytes.toByteArray))
  }

  private def write(out: DataOutputStream, file: SeenFile): Unit = {
    out.writeBoolean(file.isSnapshot)
    out.writeLong(file.bytes.length)
    out.writeInt(file.bytes.crc)
    out.writeLong(file.modifiedMs)
  }

  private def read(in: DataInputStream): SeenFile =
    SeenFile(in.readBoolean(), FileBytes(in.readLong(), in.readInt()), in.readLong())
}
