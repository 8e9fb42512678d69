package statemark.spark.checkpoint

import java.io.{FilterOutputStream, InputStream, OutputStream}
import java.util.concurrent.ConcurrentHashMap
import java.util.zip.CRC32C
import org.apache.hadoop.fs._
import scala.util.control.NonFatal
import statemark.spark.process.FilesAbove
import statemark.spark.process.Relocated.CheckpointFileManager
import statemark.spark.process.Relocated.CheckpointFileManager.CancellableFSDataOutputStream

/** The length and the checksum of a file. */
final case class FileBytes(length: Long, crc: Int)

/** Adds up the bytes that pass a stream.
  *
  * ''Thread:'' one at a time; who comes after the other knows that it is done.
  */
final class ByteCount {
  private val crc = new CRC32C
  private var length = 0L
  private var isWhole = false
  private var failure_ = Option.empty[Throwable]
  private val last = new Array[Byte](ChangelogSignature.Length)

  /** Tells whether a stream that is closed before its end is read to the end, so that all of the file is counted. */
  @volatile var isWanted: Boolean = false

  def add(bytes: Array[Byte], from: Int, n: Int): Unit = {
    crc.update(bytes, from, n)
    length += n
    val fresh = math.min(n, last.length)
    System.arraycopy(last, fresh, last, 0, last.length - fresh)
    System.arraycopy(bytes, from + n - fresh, last, last.length - fresh, fresh)
  }

  def add(byte: Int): Unit = {
    crc.update(byte)
    length += 1
    System.arraycopy(last, 1, last, 0, last.length - 1)
    last(last.length - 1) = byte.toByte
  }

  /** Ends the count: all of the file has passed, or the rest of it will not. */
  def end(isWhole: Boolean): Unit = this.isWhole = isWhole

  /** Returns the first failure of the location to open or to read the file, by this stream or one before it. */
  def failure: Option[Throwable] = failure_

  /** Opens or reads the file, and records where that fails. */
  def noting[A](body: => A): A =
    try body
    catch {
      // Hadoop's local files throw an Error.
      case NonFatal(e) =>
        failure_ = failure_.orElse(Some(e))
        throw e
    }

  /** Returns the count of another stream on the same file. */
  def next: ByteCount = {
    val result = new ByteCount
    result.failure_ = failure_
    result
  }

  /** Returns length and checksum, where the whole file has passed. */
  def whole: Option[FileBytes] = Option.when(isWhole)(FileBytes(length, crc.getValue.toInt))

  /** Returns the signature of a changelog, where the whole file has passed and has one. */
  def signature: Option[ChangelogSignature] =
    Option.when(isWhole)(last).flatMap(ChangelogSignature.of)
}

/** A file manager that counts the bytes of files on their way, as they lie there: Spark's classes compress above it.
  * Files without a follower are left alone.
  *
  * ''Thread:'' any.
  */
final class CountedFiles(under: CheckpointFileManager) extends FilesAbove(under) {
  private val followed = new ConcurrentHashMap[Path, ByteCount]()

  /** Runs `open`, which creates or opens `path`; its bytes go to what is returned with it. Of several streams the
    * last one counts. One caller at a time for each path.
    */
  def follow[A](path: Path)(open: => A): (A, ByteCount) =
    try {
      followed.put(path, new ByteCount): Unit
      val result = open
      (result, followed.get(path))
    } finally followed.remove(path): Unit

  /** Returns a count for one more stream on `path`, where the path has a follower. */
  private def countOf(path: Path): Option[ByteCount] =
    Option(followed.computeIfPresent(path, (_, before) => before.next))

  override def createAtomic(path: Path, overwrite: Boolean): CancellableFSDataOutputStream = {
    val stream = under.createAtomic(path, overwrite)
    countOf(path).fold(stream)(new CountedOutput(stream, _))
  }

  override def open(path: Path): FSDataInputStream =
    countOf(path).fold(under.open(path)) { count =>
      new FSDataInputStream(new CountedInput(count.noting(under.open(path)), count))
    }
}

private final class CountedOutput(stream: CancellableFSDataOutputStream, count: ByteCount)
    extends CancellableFSDataOutputStream(new CountingOutput(stream, count)) {

  /** Cancels the file: closing the stream after this makes none. */
  override def cancel(): Unit = {
    count.end(isWhole = false)
    stream.cancel()
  }
}

private final class CountingOutput(under: OutputStream, count: ByteCount)
    extends FilterOutputStream(under) {
  private var isOpen = true

  override def write(byte: Int): Unit = {
    under.write(byte)
    count.add(byte)
  }

  override def write(bytes: Array[Byte], from: Int, n: Int): Unit = {
    under.write(bytes, from, n)
    count.add(bytes, from, n)
  }

  /** Closes the stream: the file is there when this returns. */
  override def close(): Unit = if (isOpen) {
    isOpen = false
    under.close()
    count.end(isWhole = true)
  }
}

/** Reads in order only: a changelog needs no more. */
private final class CountedInput(under: FSDataInputStream, count: ByteCount)
    extends InputStream
    with Seekable
    with PositionedReadable {
  private var isOpen = true

  override def read(): Int = {
    val byte = count.noting(under.read())
    if (byte >= 0) count.add(byte)
    byte
  }

  override def read(bytes: Array[Byte], from: Int, n: Int): Int = {
    val got = count.noting(under.read(bytes, from, n))
    if (got > 0) count.add(bytes, from, got)
    got
  }

  override def available(): Int = under.available()

  override def close(): Unit = if (isOpen) {
    isOpen = false
    try
      if (count.isWanted) {
        // Readers stop at a record that says so; what a codec has put behind it is part of the file.
        val rest = new Array[Byte](CountedInput.ChunkBytes)
        while (read(rest, 0, rest.length) >= 0) ()
        count.end(isWhole = true)
      }
    finally under.close()
  }

  override def getPos: Long = under.getPos
  override def seek(position: Long): Unit = throw inOrderOnly
  override def seekToNewSource(position: Long): Boolean = throw inOrderOnly
  override def read(position: Long, bytes: Array[Byte], from: Int, n: Int): Int = throw inOrderOnly
  override def readFully(position: Long, bytes: Array[Byte], from: Int, n: Int): Unit =
    throw inOrderOnly
  override def readFully(position: Long, bytes: Array[Byte]): Unit = throw inOrderOnly

  private def inOrderOnly =
    new UnsupportedOperationException("A changelog is read from its beginning to its end.")
}

private object CountedInput {
  private val ChunkBytes = 1 << 16
}
