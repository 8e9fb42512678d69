package statemark.bench

import java.io.InputStream
import java.net.URI
import java.util.concurrent.locks.LockSupport

import org.apache.hadoop.fs._
import org.apache.hadoop.fs.permission.FsPermission
import org.apache.hadoop.util.Progressable

/** The local file system as far away as an object store: 20 ms for each call, 100 MB/s for each stream. Paths
  * are `slow:///…`; set `fs.slow.impl` to this class.
  */
final class SlowFileSystem extends RawLocalFileSystem {
  import SlowFileSystem._

  override def getUri: URI = Uri
  override def getScheme: String = Uri.getScheme

  override def open(path: Path, bufferSize: Int): FSDataInputStream =
    call(new FSDataInputStream(new Throttled(super.open(path, bufferSize))))

  override def create(
      path: Path,
      permission: FsPermission,
      overwrite: Boolean,
      bufferSize: Int,
      replication: Short,
      blockSize: Long,
      progress: Progressable
  ): FSDataOutputStream =
    call(super.create(path, overwrite, bufferSize, replication, blockSize, progress))

  override def rename(from: Path, to: Path): Boolean = call(super.rename(from, to))
  override def delete(path: Path, recursive: Boolean): Boolean =
    call(super.delete(path, recursive))
  override def listStatus(path: Path): Array[FileStatus] = call(super.listStatus(path))
  override def getFileStatus(path: Path): FileStatus = call(super.getFileStatus(path))
}

object SlowFileSystem {
  val Uri: URI = URI.create("slow:///")
  private val CallNanos = 20L * 1000 * 1000
  private val NanosPerByte = 10L

  private val isInCall = ThreadLocal.withInitial[Boolean](() => false)

  /** The way there and back, once: what the file system under it asks itself meanwhile is no call. */
  private def call[A](body: => A): A =
    if (isInCall.get) body
    else {
      LockSupport.parkNanos(CallNanos)
      isInCall.set(true)
      try body
      finally isInCall.set(false)
    }

  private final class Throttled(in: FSDataInputStream)
      extends InputStream
      with Seekable
      with PositionedReadable {
    private def taking(n: Int): Int = {
      if (n > 0) LockSupport.parkNanos(n * NanosPerByte)
      n
    }
    override def read(): Int = in.read()
    override def read(b: Array[Byte], off: Int, len: Int): Int = taking(in.read(b, off, len))
    override def seek(pos: Long): Unit = in.seek(pos)
    override def getPos: Long = in.getPos
    override def seekToNewSource(pos: Long): Boolean = in.seekToNewSource(pos)
    override def read(pos: Long, b: Array[Byte], off: Int, len: Int): Int =
      taking(in.read(pos, b, off, len))
    override def readFully(pos: Long, b: Array[Byte], off: Int, len: Int): Unit = {
      in.readFully(pos, b, off, len)
      taking(len): Unit
    }
    override def readFully(pos: Long, b: Array[Byte]): Unit = readFully(pos, b, 0, b.length)
    override def available(): Int = in.available()
    override def close(): Unit = in.close()
  }
}
