package statemark.spark.local

import java.io.{File, IOException}
import java.nio.file._
import java.nio.file.attribute.{BasicFileAttributes, PosixFilePermissions, UserPrincipal}
import java.util.Comparator

/** Directories of this user on local disks. */
object LocalDirectory {
  private val Private = PosixFilePermissions.fromString("rwx------")

  /** Deletes `root` and all below; what is gone already is fine. */
  def deleteTree(root: File): Unit = if (root.exists) {
    val walk = Files.walk(root.toPath)
    try walk.sorted(Comparator.reverseOrder[Path]()).forEach(p => Files.deleteIfExists(p): Unit)
    finally walk.close()
  }

  /** Returns bytes of all files below a directory, whose owner may delete some meanwhile. */
  def bytesOf(directory: File): Long = {
    var bytes = 0L
    val count = new SimpleFileVisitor[Path] {
      override def visitFile(file: Path, attributes: BasicFileAttributes): FileVisitResult = {
        if (attributes.isRegularFile) bytes += attributes.size
        FileVisitResult.CONTINUE
      }

      override def visitFileFailed(file: Path, e: IOException): FileVisitResult =
        FileVisitResult.CONTINUE

      override def postVisitDirectory(d: Path, e: IOException): FileVisitResult =
        FileVisitResult.CONTINUE
    }
    Files.walkFileTree(directory.toPath, count): Unit
    bytes
  }

  /** Returns the owner of a directory, where it is not this user; None for a directory that is gone. */
  private[spark] def otherOwner(directory: File): Option[UserPrincipal] =
    try Some(Files.getOwner(directory.toPath)).filter(_ != user)
    catch { case _: NoSuchFileException => None }

  private[spark] def createPrivate(path: Path): Unit =
    Files.createDirectories(path, PosixFilePermissions.asFileAttribute(Private)): Unit

  /** State of a query may be secret, and files of another user may be forged.
    * @throws IOException where `own`, or a directory between it and `root`, is not this user's
    */
  private[spark] def checkOwners(own: File, root: Option[File]): Unit =
    Iterator.iterate(own.toPath)(_.getParent)
      .takeWhile(p => p != null && root.exists(r => p.startsWith(r.toPath) && p != r.toPath))
      .foreach { directory =>
        val owner = Files.getOwner(directory)
        if (owner != user) throw new IOException(s"$directory belongs to $owner and not to $user")
        Files.setPosixFilePermissions(directory, Private): Unit
      }

  /** The owner of files that this process creates; the name of the user may be unknown to a container. */
  private lazy val user = {
    val file = Files.createTempFile("statemark-", ".owner")
    try Files.getOwner(file)
    finally Files.delete(file)
  }
}
