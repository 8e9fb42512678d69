package statemark.testkit

import java.io.{File, FileNotFoundException}
import java.net.URI
import java.nio.file.{Files, StandardCopyOption}
import java.util.EnumSet
import java.util.concurrent.CompletableFuture

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs._
import org.apache.hadoop.fs.Options.ChecksumOpt
import org.apache.hadoop.fs.impl.OpenFileParameters
import org.apache.hadoop.fs.permission.FsPermission
import org.apache.hadoop.util.Progressable

/** The local file system under the scheme `counting`, with every call of the caller recorded once in [[FileCounts]].
  *
  * What the local implementation asks of itself (a status before an open, say) is not counted: a remote file system
  * would not be asked. Not counted either are calls that read no data and change none of the names, like permissions.
  *
  * Set `spark.hadoop.fs.counting.impl` to this class and `spark.hadoop.fs.AbstractFileSystem.counting.impl` to
  * [[CountingAbstractFileSystem]], then use `counting:///absolute/path`.
  */
class CountingFileSystem extends FilterFileSystem(new LocalUnderCountingScheme) {
  import CountingFileSystem._

  override def getScheme: String = scheme

  override def open(f: Path, bufferSize: Int): FSDataInputStream = {
    count(FileEvent.Open, f)
    super.open(f, bufferSize)
  }

  // The builder of the wrapped file system would open the file there, past the count.
  override def openFile(path: Path): FutureDataInputStreamBuilder =
    FileSystem.createDataInputStreamBuilder(this, path)

  override protected def openFileWithOptions(
      path: Path,
      parameters: OpenFileParameters
  ): CompletableFuture[FSDataInputStream] = {
    count(FileEvent.Open, path)
    super.openFileWithOptions(path, parameters)
  }

  override def create(
      f: Path,
      permission: FsPermission,
      overwrite: Boolean,
      bufferSize: Int,
      replication: Short,
      blockSize: Long,
      progress: Progressable
  ): FSDataOutputStream = counted(FileEvent.Create, f) {
    super.create(f, permission, overwrite, bufferSize, replication, blockSize, progress)
  }

  override def create(
      f: Path,
      permission: FsPermission,
      flags: EnumSet[CreateFlag],
      bufferSize: Int,
      replication: Short,
      blockSize: Long,
      progress: Progressable,
      checksumOpt: ChecksumOpt
  ): FSDataOutputStream = counted(FileEvent.Create, f) {
    super.create(f, permission, flags, bufferSize, replication, blockSize, progress, checksumOpt)
  }

  override def createNonRecursive(
      f: Path,
      permission: FsPermission,
      flags: EnumSet[CreateFlag],
      bufferSize: Int,
      replication: Short,
      blockSize: Long,
      progress: Progressable
  ): FSDataOutputStream = counted(FileEvent.Create, f) {
    super.createNonRecursive(f, permission, flags, bufferSize, replication, blockSize, progress)
  }

  override def append(f: Path, bufferSize: Int, progress: Progressable): FSDataOutputStream =
    counted(FileEvent.Create, f)(super.append(f, bufferSize, progress))

  override def createFile(path: Path): FSDataOutputStreamBuilder[_, _] =
    counted(FileEvent.Create, path)(super.createFile(path))

  override def rename(src: Path, dst: Path): Boolean =
    counted(FileEvent.Rename, dst)(super.rename(src, dst))

  /** Renames as HDFS does through FileContext: in one step, and refused when the destination exists.
    *
    * ''Throws:'' FileAlreadyExistsException when `dst` exists and `overwrite` is false; FileNotFoundException when
    * `src` does not exist.
    */
  private[testkit] def renameAtomically(src: Path, dst: Path, overwrite: Boolean): Unit =
    counted(FileEvent.Rename, dst) {
      val (from, to) = (localFile(src).toPath, localFile(dst).toPath)
      try {
        if (overwrite) {
          Files.move(from, to, StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING)
        } else if (Files.isDirectory(from)) {
          Files.move(from, to)
        } else {
          // A hard link is the one local call that is atomic and refuses an existing name.
          Files.createLink(to, from)
          Files.delete(from)
        }
        ()
      } catch {
        case e: java.nio.file.FileAlreadyExistsException =>
          throw new FileAlreadyExistsException(s"rename $src to $dst: ${e.getMessage} exists")
        case e: java.nio.file.NoSuchFileException =>
          throw new FileNotFoundException(s"rename $src to $dst: ${e.getMessage} does not exist")
      }
    }

  override def delete(f: Path, recursive: Boolean): Boolean =
    counted(FileEvent.Delete, f)(super.delete(f, recursive))

  override def mkdirs(f: Path, permission: FsPermission): Boolean =
    counted(FileEvent.Mkdir, f)(super.mkdirs(f, permission))

  override def mkdirs(f: Path): Boolean = counted(FileEvent.Mkdir, f)(super.mkdirs(f))

  override protected def primitiveMkdir(f: Path, permission: FsPermission): Boolean =
    counted(FileEvent.Mkdir, f)(super.primitiveMkdir(f, permission))

  override def listStatus(f: Path): Array[FileStatus] = {
    count(FileEvent.ListDir, f)
    super.listStatus(f)
  }

  override def listStatusIterator(f: Path): RemoteIterator[FileStatus] = {
    count(FileEvent.ListDir, f)
    super.listStatusIterator(f)
  }

  override def listLocatedStatus(f: Path): RemoteIterator[LocatedFileStatus] = {
    count(FileEvent.ListDir, f)
    super.listLocatedStatus(f)
  }

  override def getFileStatus(f: Path): FileStatus = {
    count(FileEvent.Status, f)
    super.getFileStatus(f)
  }

  override def getFileLinkStatus(f: Path): FileStatus = {
    count(FileEvent.Status, f)
    super.getFileLinkStatus(f)
  }

  // The wrapped file system would copy within itself; a remote one creates, or opens, its side of the copy.
  override def copyFromLocalFile(delSrc: Boolean, src: Path, dst: Path): Unit =
    copyFromLocalFile(delSrc, true, src, dst)

  override def copyFromLocalFile(
      delSrc: Boolean,
      overwrite: Boolean,
      src: Path,
      dst: Path
  ): Unit = {
    val conf = getConf
    val _ = FileUtil.copy(FileSystem.getLocal(conf), src, this, dst, delSrc, overwrite, conf)
  }

  override def copyFromLocalFile(
      delSrc: Boolean,
      overwrite: Boolean,
      srcs: Array[Path],
      dst: Path
  ): Unit = {
    val conf = getConf
    val _ = FileUtil.copy(FileSystem.getLocal(conf), srcs, this, dst, delSrc, overwrite, conf)
  }

  override def copyToLocalFile(delSrc: Boolean, src: Path, dst: Path): Unit = {
    val conf = getConf
    val _ = FileUtil.copy(this, src, FileSystem.getLocal(conf), dst, delSrc, conf)
  }

  private[testkit] def localFile(path: Path): File =
    fs.asInstanceOf[RawLocalFileSystem].pathToFile(path)

  private def count(kind: FileEvent.Kind, path: Path): Unit =
    FileCounts.record(kind, makeQualified(path).toUri.getPath)

  private def counted[T](kind: FileEvent.Kind, path: Path)(call: => T): T =
    FileCounts.recorded(kind, makeQualified(path).toUri.getPath)(call)
}

object CountingFileSystem {
  val scheme: String = "counting"
  private[testkit] val root: URI = URI.create(s"$scheme:///")
}

/** The local file system that calls its paths `counting:`. */
private[testkit] class LocalUnderCountingScheme extends RawLocalFileSystem {
  override def getScheme: String = CountingFileSystem.scheme
  override def getUri: URI = CountingFileSystem.root
}

/** The same for Hadoop's FileContext, which Spark prefers for checkpoints because its rename is atomic. */
class CountingAbstractFileSystem(uri: URI, conf: Configuration)
    extends DelegateToFileSystem(
      uri,
      new CountingFileSystem,
      conf,
      CountingFileSystem.scheme,
      false
    ) {

  private def counting: CountingFileSystem = fsImpl.asInstanceOf[CountingFileSystem]

  // The file system of a local path has no port; the inherited one asks the wrapped class, which has none to give.
  override def getUriDefaultPort: Int = -1

  // The inherited one asks for the status of the parent first, which a remote file system does on its own side.
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
  ): FSDataOutputStream = {
    checkPath(f)
    val parent = counting.localFile(f).getParentFile
    if (!createParent && !parent.isDirectory) {
      throw new FileNotFoundException(s"create $f: $parent is not a directory")
    }
    val overwrite = flags.contains(CreateFlag.OVERWRITE)
    counting.create(f, permission, overwrite, bufferSize, replication, blockSize, progress)
  }

  override def renameInternal(src: Path, dst: Path): Unit =
    counting.renameAtomically(src, dst, overwrite = false)

  override def renameInternal(src: Path, dst: Path, overwrite: Boolean): Unit =
    counting.renameAtomically(src, dst, overwrite)
}
