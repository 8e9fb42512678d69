package statemark.spark.offline.ownership

import java.io.FileNotFoundException
import java.nio.file.{Files, NoSuchFileException, StandardCopyOption}
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{
  FileAlreadyExistsException,
  FileContext,
  LocalFileSystem,
  Options,
  Path
}
import scala.util.Try

/** Renames in one file system. Each is one step: on the local file system, where Hadoop's own deletes the
  * target first and copies what it cannot rename, by the operating system; on HDFS by the name node. On an
  * object store a rename is a copy and a deletion, whatever is done here.
  */
private[offline] final class Moves(root: Path, hadoopConf: Configuration) {
  private val fs = root.getFileSystem(hadoopConf)

  // None where a file system has only the older of Hadoop's two interfaces.
  private lazy val context = Try(FileContext.getFileContext(fs.getUri, hadoopConf)).toOption

  /** Renames a file or a directory.
    *
    * @return false where `from`, or the directory that it goes to, is not there
    * @throws org.apache.hadoop.fs.FileAlreadyExistsException where something is at `to` already
    */
  def move(from: Path, to: Path): Boolean = renamed(from, to, replaces = false)

  /** Renames a file; what is at `to` is replaced.
    *
    * @return false where `from`, or the directory that it goes to, is not there
    */
  def replace(from: Path, to: Path): Boolean = renamed(from, to, replaces = true)

  private def renamed(from: Path, to: Path, replaces: Boolean): Boolean = fs match {
    case local: LocalFileSystem =>
      def file(path: Path) = local.pathToFile(path).toPath
      if (!replaces && Files.exists(file(to))) throw taken(to)
      // Hadoop's checksum of the file that is replaced would be held against the new one.
      Files.deleteIfExists(file(local.getChecksumFile(to)))
      try {
        Files.move(file(from), file(to), StandardCopyOption.ATOMIC_MOVE)
        Files.deleteIfExists(file(local.getChecksumFile(from)))
        true
      } catch { case _: NoSuchFileException => false }
    case _ =>
      try
        context.fold {
          if (fs.exists(to)) {
            if (!replaces) throw taken(to)
            fs.delete(to, false): Unit
          }
          fs.rename(from, to)
        } { files =>
          val how = if (replaces) Options.Rename.OVERWRITE else Options.Rename.NONE
          files.rename(from, to, how)
          true
        }
      catch { case _: FileNotFoundException => false }
  }

  private def taken(path: Path) = new FileAlreadyExistsException(s"$path exists")
}
