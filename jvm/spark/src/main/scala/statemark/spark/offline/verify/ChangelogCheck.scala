package statemark.spark.offline.verify

import java.io._
import org.apache.spark.io.{CompressionCodec, LZ4CompressionCodec}
import org.json4s.{JArray, JInt, JString}
import org.json4s.jackson.JsonMethods.parse
import scala.util.control.NonFatal
import statemark.engine.VersionId
import statemark.spark.checkpoint.ChangelogSignature

/** What a changelog holds.
  *
  * @param lineage the versions that its header names, ascending; None in checkpoint format v1
  */
final case class ChangelogFacts(lineage: Option[Vector[VersionId]], records: Long)

/** Decodes change files to their last byte: lengths are checked against what is there, and nothing may
  * follow the mark of the end. (Spark's readers trust lengths, so that a damaged one asks for memory
  * that is not there, and they stop at the mark.)
  *
  * ''Source:'' Spark 4.2 `StateStoreChangelogReaderV1` to `V4`, `HDFSBackedStateStoreProvider`
  *
  * @param hasRowChecksums rows are checked against theirs
  * @param delimiterBytes between the values of a list
  */
final class ChangelogCheck(
    codec: CompressionCodec,
    hasRowChecksums: Boolean,
    delimiterBytes: Int
) {
  import ChangelogCheck._

  /** @param file a copy, which may be cut; the signature of Statemark's at its end is taken off
    * @param mayBeSigned whether it is of checkpoint format v1, and may have one
    * @return why the file is no whole changelog, or what it holds
    */
  def changelog(file: File, mayBeSigned: Boolean): Either[String, ChangelogFacts] = {
    if (mayBeSigned) takeSignatureOff(file)
    decoded(file)(facts)
  }

  private def takeSignatureOff(file: File): Unit = {
    val copy = new RandomAccessFile(file, "rw")
    try {
      val length = copy.length - ChangelogSignature.Length
      if (length >= 0) {
        val end = new Array[Byte](ChangelogSignature.Length)
        copy.seek(length)
        copy.readFully(end)
        if (ChangelogSignature.of(end).isDefined) copy.setLength(length)
      }
    } finally copy.close()
  }

  private def facts(in: DataInputStream): ChangelogFacts = {
    val version = versionOf(in)
    if (version > 1) in.readUTF(): Unit
    val lineage = if (version >= 3) Some(lineageOf(in.readUTF())) else None
    val hasTypes = version == 2 || version == 4
    var records = 0L
    while (if (hasTypes) typedRecord(in) else plainRecord(in, isDelta = true, plainValues = false))
      records += 1
    ChangelogFacts(lineage, records)
  }

  /** What a load reads of a file that is no whole changelog: all up to the mark of the end, if it gets there. */
  def upToMark(file: File): Option[ChangelogFacts] =
    decodedOnce(file, toEnd = false)(facts).toOption

  /** A file of the HDFS-backed provider.
    * @param file a copy, which may be cut
    * @param isDelta it may hold deletions
    * @return number of records
    */
  def map(file: File, isDelta: Boolean): Either[String, Long] = decoded(file) { in =>
    var records = 0L
    while (plainRecord(in, isDelta, plainValues = true)) records += 1
    records
  }

  private def decoded[A](file: File)(read: DataInputStream => A): Either[String, A] =
    decodedOnce(file)(read).flatMap(facts => excess(file, read).toLeft(facts))

  /** Streams read ahead and swallow a few bytes that follow their data. */
  private def excess[A](file: File, read: DataInputStream => A): Option[String] =
    if (codec.isInstanceOf[LZ4CompressionCodec]) blockProblem(file)
    else {
      val copy = new RandomAccessFile(file, "rw")
      try copy.setLength(copy.length - 1)
      finally copy.close()
      Option.when(decodedOnce(file)(read).isRight)("bytes follow its compressed data")
    }

  private def decodedOnce[A](
      file: File,
      toEnd: Boolean = true
  )(read: DataInputStream => A): Either[String, A] = {
    val raw = new BufferedInputStream(new FileInputStream(file))
    try {
      val stream = codec.compressedInputStream(raw)
      val in = new DataInputStream(new BufferedInputStream(stream))
      val facts = read(in)
      if (toEnd && in.read() != -1) Left("data follow the mark of its end")
      else Right(facts)
    } catch {
      case e: BadRecord => Left(e.getMessage)
      case _: EOFException => Left("it ends before the mark of its end")
      case NonFatal(e) => Left(s"it cannot be decoded: ${StoreFiles.reason(e)}")
    } finally raw.close()
  }

  private def plainRecord(in: DataInputStream, isDelta: Boolean, plainValues: Boolean): Boolean = {
    val length = in.readInt()
    if (length == -1) false
    else {
      val key = bytes(in, length)
      val valueLength = in.readInt()
      if (valueLength == -1 && isDelta)
        expect(!hasRowChecksums || RowChecksumCheck.isDeletedKey(key))
      else {
        val value = bytes(in, valueLength)
        expect(!hasRowChecksums ||
          (if (plainValues) RowChecksumCheck.isPlainValue(key, value)
           else RowChecksumCheck.areValues(key, value, delimiterBytes)))
      }
      true
    }
  }

  private def typedRecord(in: DataInputStream): Boolean = in.readByte() match {
    case End => false
    // A list of values is put and merged at once.
    case Put | Merge =>
      val key = bytes(in, in.readInt())
      val values = bytes(in, in.readInt())
      expect(!hasRowChecksums || RowChecksumCheck.areValues(key, values, delimiterBytes))
      true
    case DeleteRange =>
      val begin = bytes(in, in.readInt())
      val end = bytes(in, in.readInt())
      expect(!hasRowChecksums || RowChecksumCheck.isValue(begin, end))
      true
    case Delete =>
      val key = bytes(in, in.readInt())
      if (in.readInt() != -1) throw new BadRecord("a deletion has a value")
      expect(!hasRowChecksums || RowChecksumCheck.isDeletedKey(key))
      true
    case other => throw new BadRecord(s"it holds a record of unknown kind $other")
  }

  /** The blocks of an LZ4 stream fill the file, and are of one level, which no checksum covers. */
  private def blockProblem(file: File): Option[String] = {
    val in = new RandomAccessFile(file, "r")
    try {
      var at = 0L
      var levels = Set.empty[Int]
      while (at + Lz4HeaderBytes <= file.length) {
        in.seek(at + Lz4Token)
        levels += in.readByte() & 0x0f
        at += Lz4HeaderBytes + Integer.reverseBytes(in.readInt())
      }
      if (at != file.length) Some("bytes follow its compressed data")
      else Option.when(levels.size > 1)("its compressed blocks are of several levels")
    } finally in.close()
  }
}

object ChangelogCheck {
  private val Put: Byte = 0x01
  private val Delete: Byte = 0x10
  private val Merge: Byte = 0x11
  private val DeleteRange: Byte = 0x20
  private val End: Byte = 0x00
  private val Lz4HeaderBytes = 21
  private val Lz4Token = 8

  private final class BadRecord(message: String) extends RuntimeException(message)

  private def expect(isRight: Boolean): Unit =
    if (!isRight) throw new BadRecord("the checksum of a row is wrong")

  private def bytes(in: DataInputStream, length: Int): Array[Byte] =
    if (length < 0) throw new BadRecord(s"a record has a length of $length")
    else {
      val found = in.readNBytes(length)
      if (found.length < length) throw new EOFException
      found
    }

  /** Version 1 has no header. */
  private def versionOf(in: DataInputStream): Int = {
    in.mark(8)
    val start = in.readNBytes(4)
    in.reset()
    val isNamed = start.length == 4 && start(0) == 0 && start(1) == 2 && start(2) == 'v'
    if (isNamed && start(3) >= '2' && start(3) <= '4') start(3) - '0' else 1
  }

  private def lineageOf(json: String): Vector[VersionId] = parse(json) match {
    case JArray(items) =>
      items.map { item =>
        (item \ "version", item \ "checkpointUniqueId") match {
          case (JInt(version), JString(id)) => VersionId(version.toLong, Some(id))
          case _ => throw new BadRecord("its header is no lineage")
        }
      }.toVector.sortBy(_.version)
    case _ => throw new BadRecord("its header is no lineage")
  }
}
