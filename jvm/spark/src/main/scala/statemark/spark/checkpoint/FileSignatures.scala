package statemark.spark.checkpoint

import java.io._
import java.nio.ByteBuffer
import java.nio.charset.StandardCharsets.{ISO_8859_1, US_ASCII}
import java.nio.file.Files
import java.util.UUID
import java.util.zip.{CRC32C, ZipInputStream}
import scala.util.control.NonFatal

/** The version on which a changelog builds, as its store knew it. */
sealed abstract class Before(private[checkpoint] val code: Byte)

object Before {

  /** Nothing. */
  case object Empty extends Before(0)

  /** A version whose file has a signature. */
  case object Own extends Before(1)

  /** A version whose file has none, or one of which that is not known. */
  case object Foreign extends Before(2)

  private[checkpoint] def of(code: Byte): Option[Before] =
    Seq(Empty, Own, Foreign).find(_.code == code)
}

/** The signature behind the compressed bytes of a changelog that Statemark has written, in checkpoint format v1. Readers
  * stop at the record of the end, and never see it.
  * {{{
  *   "SMcl" | int8 format: 1 | int64 id | int8 before: 0 empty, 1 own, 2 foreign | int32 CRC32C of all that
  * }}}
  * Integers are big endian. FORMAT.md is the reader's and writer's contract, a golden file pins the bytes.
  *
  * @param id a number by which a snapshot names the changelog of its version: half of it stands for the run of the query,
  *   the other half is random
  */
final case class ChangelogSignature(id: Long, before: Before) {
  def bytes: Array[Byte] = {
    val buffer = ByteBuffer.allocate(ChangelogSignature.Length)
    buffer.put(ChangelogSignature.Magic).put(ChangelogSignature.Format).putLong(id).put(before.code)
    buffer.putInt(ChangelogSignature.sum(buffer.array)).array
  }
}

object ChangelogSignature {

  /** Fewer bytes than the header of a block of LZ4 has: a reader that goes on behind the last block sees the end. */
  val Length: Int = 18
  private val Magic = "SMcl".getBytes(US_ASCII)
  private val Format: Byte = 1

  /** Returns the signature of a changelog that a run of the query is about to write. */
  def next(run: UUID, before: Before): ChangelogSignature = {
    val random = UUID.randomUUID().hashCode & 0xffffffffL
    ChangelogSignature((run.hashCode.toLong << 32) | random, before)
  }

  /** Tells whether one run of the query has written both changelogs of a version. They are of one history then: attempts at
    * one batch, of which several executors may write changelogs and snapshots one over the other.
    */
  def areOfOneRun(id: Long, other: Long): Boolean = id >>> 32 == other >>> 32

  /** Returns the signature at the end of a changelog's bytes; None where there is none, or none that is whole.
    * @param bytes the last bytes of the file, as many as there are of [[Length]] at least
    */
  def of(bytes: Array[Byte]): Option[ChangelogSignature] =
    if (bytes.length < Length) None
    else {
      val signature = bytes.takeRight(Length)
      val in = ByteBuffer.wrap(signature)
      val magic = new Array[Byte](Magic.length)
      in.get(magic)
      val (format, id, before, crc) = (in.get(), in.getLong(), in.get(), in.getInt())
      Before.of(before)
        .filter(_ => magic.sameElements(Magic) && format == Format && crc == sum(signature))
        .map(ChangelogSignature(id, _))
    }

  /** Tells whether a changelog ends with a signature, or with what damage has left of one: a changed byte, or fewer. */
  def isIn(bytes: Array[Byte]): Boolean =
    Trace.findFirstIn(new String(bytes.takeRight(Length), ISO_8859_1)).isDefined

  /** Three bytes of its beginning, whichever of these is changed. */
  private val Trace = "(?s)SMc|SM.l|cl\u0001".r

  private def sum(signature: Array[Byte]): Int = {
    val crc = new CRC32C
    crc.update(signature, 0, Length - Integer.BYTES)
    crc.getValue.toInt
  }
}

/** A changelog as the snapshot of its version names it. */
sealed trait NamedChangelog {
  def isSigned: Boolean
}

object NamedChangelog {

  /** One with a signature. */
  final case class Signed(id: Long) extends NamedChangelog {
    override def isSigned: Boolean = true
  }

  /** One without: of another provider, or of Statemark 0.1. */
  final case class Unsigned(bytes: FileBytes) extends NamedChangelog {
    override def isSigned: Boolean = false
  }

  def apply(signature: Option[ChangelogSignature], bytes: FileBytes): NamedChangelog =
    signature.fold[NamedChangelog](Unsigned(bytes))(s => Signed(s.id))
}

/** The provider that has uploaded a snapshot, as far as its zip tells. */
sealed trait SnapshotWriter {

  /** Tells whether Statemark has uploaded the snapshot. */
  def isOwn: Boolean = this match {
    case _: SnapshotWriter.Own => true
    case SnapshotWriter.Foreign | SnapshotWriter.Unknown => false
  }
}

object SnapshotWriter {

  /** Statemark.
    * @param changelog the changelog of the same version, as the store knew it; None where it knew none
    */
  final case class Own(changelog: Option[NamedChangelog]) extends SnapshotWriter

  /** Spark's. */
  case object Foreign extends SnapshotWriter

  /** Statemark 0.1, or a zip that is damaged beyond recognition. */
  case object Unknown extends SnapshotWriter
}

/** The signature in a snapshot that Statemark has uploaded, in checkpoint format v1: a small file in the zip. RocksDB and
  * Spark's provider pass it over.
  * {{{
  *   int8 format: 1 | int8 0 no changelog known
  *                  | int8 1, unsigned | int64 length | int32 CRC32C
  *                  | int8 2, signed | int64 id
  * }}}
  * Spark's snapshots have RocksDB's options instead, which those of Statemark never had.
  */
object SnapshotSignature {
  val FileName: String = "statemark"
  private val Format: Byte = 1
  private val OptionsPrefix = "OPTIONS-"

  /** Adds the signature to an image. */
  def write(image: File, changelog: Option[NamedChangelog]): Unit =
    Files.write(new File(image, FileName).toPath, encode(changelog)): Unit

  /** Returns who has uploaded an unpacked snapshot, and takes the signature out of it. */
  def take(image: File): SnapshotWriter = {
    val signature = new File(image, FileName).toPath
    if (Files.exists(signature)) {
      val bytes = Files.readAllBytes(signature)
      Files.delete(signature)
      SnapshotWriter.Own(decode(bytes))
    } else if (Option(image.list()).exists(_.exists(_.startsWith(OptionsPrefix))))
      SnapshotWriter.Foreign
    else SnapshotWriter.Unknown
  }

  /** Returns who has uploaded a zip, which may be damaged: the names in its headers tell. */
  def ofZip(zip: Array[Byte]): SnapshotWriter = {
    val text = new String(zip, ISO_8859_1)
    def names(prefix: String) = Headers.exists { case (signature, nameAt) =>
      Iterator.iterate(text.indexOf(signature))(at => text.indexOf(signature, at + 1))
        .takeWhile(_ >= 0).exists(at => text.startsWith(prefix, at + nameAt))
    }
    if (names(FileName)) SnapshotWriter.Own(content(zip).flatMap(decode))
    else if (names(OptionsPrefix)) SnapshotWriter.Foreign
    else SnapshotWriter.Unknown
  }

  /** Signatures of the headers of a zip, and where the name of the entry stands behind them. */
  private val Headers = Seq("PK\u0003\u0004" -> 30, "PK\u0001\u0002" -> 46)

  private[spark] def encode(changelog: Option[NamedChangelog]): Array[Byte] = {
    val bytes = new ByteArrayOutputStream()
    val out = new DataOutputStream(bytes)
    out.writeByte(Format.toInt)
    changelog match {
      case None => out.writeByte(0)
      case Some(NamedChangelog.Unsigned(file)) =>
        out.writeByte(1)
        out.writeLong(file.length)
        out.writeInt(file.crc)
      case Some(NamedChangelog.Signed(id)) =>
        out.writeByte(2)
        out.writeLong(id)
    }
    bytes.toByteArray
  }

  /** Returns the changelog that a signature names; None for a signature of another format as well. */
  private[spark] def decode(bytes: Array[Byte]): Option[NamedChangelog] =
    try {
      val in = new DataInputStream(new ByteArrayInputStream(bytes))
      if (in.readByte() != Format) None
      else in.readByte().toInt match {
        case 1 => Some(NamedChangelog.Unsigned(FileBytes(in.readLong(), in.readInt())))
        case 2 => Some(NamedChangelog.Signed(in.readLong()))
        case _ => None
      }
    } catch { case _: EOFException => None }

  private def content(zip: Array[Byte]): Option[Array[Byte]] =
    try {
      val in = new ZipInputStream(new ByteArrayInputStream(zip))
      Iterator.continually(in.getNextEntry).takeWhile(_ != null).find(_.getName == FileName)
        .map(_ => in.readAllBytes())
    } catch { case NonFatal(_) => None }
}
