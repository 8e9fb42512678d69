package statemark.spark.local

import java.io.{File, IOException}
import java.nio.file._
import java.nio.file.attribute.BasicFileAttributes
import scala.collection.mutable

/** The files and directories below some homes, and what they take of the disk: content, rounded up to the blocks of the
  * file system, as Java does not tell how many blocks a file has (docs/adr/0023). A file under several names counts
  * once.
  *
  * @param files bytes by what the system calls a file
  */
private[spark] final case class DiskUse(files: Map[AnyRef, Long]) {
  def bytes: Long = files.values.sum

  /** Returns the use of both together. */
  def ++(other: DiskUse): DiskUse = DiskUse(files ++ other.files)

  /** Returns the use that ends where these files go and `others` stay. */
  def --(others: DiskUse): DiskUse = DiskUse(files -- others.files.keys)
}

private[spark] object DiskUse {
  val none: DiskUse = DiskUse(Map.empty)

  /** The largest block of a local file system on Linux. Network file systems name the size of their transfers, which may
    * be a MiB, and do not take as much for a small file.
    */
  private val MaxBlockBytes = 64L * 1024

  private val UnknownBlockBytes = 4096L

  /** Returns the use of a directory, whose owner may delete files meanwhile. Links are not followed. */
  def of(directory: File): DiskUse = {
    val blockBytes = blockBytesOf(directory.toPath)
    val files = mutable.Map.empty[AnyRef, Long]
    def add(path: Path, found: BasicFileAttributes): FileVisitResult = {
      val blocks = (found.size + blockBytes - 1) / blockBytes
      if (!found.isSymbolicLink)
        files(Option(found.fileKey).getOrElse(path)) = blocks * blockBytes
      FileVisitResult.CONTINUE
    }
    val count = new SimpleFileVisitor[Path] {
      override def preVisitDirectory(d: Path, found: BasicFileAttributes): FileVisitResult =
        add(d, found)
      override def visitFile(file: Path, found: BasicFileAttributes): FileVisitResult =
        add(file, found)
      override def visitFileFailed(file: Path, e: IOException): FileVisitResult =
        FileVisitResult.CONTINUE
      override def postVisitDirectory(d: Path, e: IOException): FileVisitResult =
        FileVisitResult.CONTINUE
    }
    Files.walkFileTree(directory.toPath, count): Unit
    DiskUse(files.toMap)
  }

  private def blockBytesOf(path: Path): Long =
    try math.min(math.max(Files.getFileStore(path).getBlockSize, 1), MaxBlockBytes)
    catch { case _: IOException | _: UnsupportedOperationException => UnknownBlockBytes }
}
