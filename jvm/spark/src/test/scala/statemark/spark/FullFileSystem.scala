package statemark.spark

import java.io.{IOException, OutputStream}
import java.net.URI
import java.util.EnumSet
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs._
import org.apache.hadoop.fs.Options.ChecksumOpt
import org.apache.hadoop.fs.permission.FsPermission
import org.apache.hadoop.util.Progressable
import statemark.testkit.{CountingAbstractFileSystem, CountingFileSystem}

/** The counting file system on a disk that may be full: a write takes a few bytes and fails. */
class FullFileSystem extends CountingFileSystem {
  override def create(
      f: Path,
      permission: FsPermission,
      overwrite: Boolean,
      bufferSize: Int,
      replication: Short,
      blockSize: Long,
      progress: Progressable
  ): FSDataOutputStream = FullFileSystem.limited(
    f,
    super.create(f, permission, overwrite, bufferSize, replication, blockSize, progress)
  )
}

class FullAbstractFileSystem(uri: URI, conf: Configuration)
    extends CountingAbstractFileSystem(uri, conf) {
  override def createInternal(
      f: Path,
      flags: EnumSet[CreateFlag],
      permission: FsPermission,
      bufferSize: Int,
      replication: Short,
      blockSize: Long,
      progress: Progressable,
      checksumOpt: ChecksumOpt,
      createParent: Boolean
  ): FSDataOutputStream = FullFileSystem.limited(
    f,
    super.createInternal(
      f,
      flags,
      permission,
      bufferSize,
      replication,
      blockSize,
      progress,
      checksumOpt,
      createParent
    )
  )
}

object FullFileSystem {

  /** Which paths have no room. */
  @volatile var isFull: String => Boolean = _ => false

  private val RoomBytes = 10

  def in(conf: Configuration): Configuration = {
    conf.set("fs.counting.impl", classOf[FullFileSystem].getName)
    conf.setBoolean("fs.counting.impl.disable.cache", true)
    conf.set("fs.AbstractFileSystem.counting.impl", classOf[FullAbstractFileSystem].getName)
    conf
  }

  private[spark] def limited(path: Path, stream: FSDataOutputStream): FSDataOutputStream =
    if (!isFull(path.toString)) stream
    else new FSDataOutputStream(new LimitedStream(stream), null)

  private final class LimitedStream(under: OutputStream) extends OutputStream {
    private var room = RoomBytes

    override def write(b: Int): Unit = {
      if (room == 0) throw new IOException("No space left on device")
      room -= 1
      under.write(b)
    }

    override def close(): Unit = under.close()
  }
}
