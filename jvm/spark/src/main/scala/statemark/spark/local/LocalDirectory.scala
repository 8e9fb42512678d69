package statemark.spark.local

import java.io.{File, IOException}
import java.nio.file._
import java.nio.file.attribute._
import java.util.Comparator
import scala.util.Using

/** Directories on local disks that are this user's alone: the state of a query may be secret, and files of another user
  * may be forged (I11).
  *
  * A root may be anyone's, and all may write to it. What lies in it is looked at from the root downwards, so that no step
  * is taken over a link, or through a directory of another user.
  */
object LocalDirectory {
  private val Private = PosixFilePermissions.fromString("rwx------")

  /** Deletes `root` and all below; what is gone already is fine. */
  def deleteTree(root: File): Unit = if (root.exists)
    Using.resource(Files.walk(root.toPath)) { walk =>
      walk.sorted(Comparator.reverseOrder[Path]()).forEach(p => Files.deleteIfExists(p): Unit)
    }

  /** Returns the first on the way from `root` to `own` that is not a directory of this user; None where all are, or
    * one is gone. Changes nothing.
    */
  private[spark] def foreign(root: File, own: File): Option[Foreign] =
    try steps(root, own).iterator.flatMap(problemOf).nextOption()
    catch {
      case _: NoSuchFileException => None
      case e: IOException => Some(Foreign(s"$own cannot be looked at: $e", None))
    }

  /** Makes `own`, and what is missing on the way to it from `root`, which may be missing as well.
    * @throws ForeignDirectoryException where something on the way is not a directory of this user
    * @throws NoSuchFileException where another process deletes it meanwhile
    */
  private[spark] def make(root: File, own: File): Unit = {
    val attribute = PosixFilePermissions.asFileAttribute(Private)
    Files.createDirectories(root.toPath, attribute): Unit
    steps(root, own).foreach { step =>
      try Files.createDirectory(step, attribute): Unit
      catch { case _: FileAlreadyExistsException => () }
      close(step)
    }
  }

  /** Checks that `own`, and all on the way to it from `root`, are this user's, and closes them to others.
    * @throws ForeignDirectoryException where something is not a directory of this user
    * @throws NoSuchFileException where one is not there
    */
  private[spark] def check(root: File, own: File): Unit = steps(root, own).foreach(close)

  /** Tells whether `own`, and all on the way to it from `root`, are there and this user's; changes nothing. */
  private[spark] def isOwn(root: File, own: File): Boolean =
    try steps(root, own).forall(problemOf(_).isEmpty)
    catch { case _: IOException => false }

  /** Returns the paths from below `root` to `own`, the topmost first. */
  private def steps(root: File, own: File): Seq[Path] =
    Iterator.iterate(own.toPath)(_.getParent)
      .takeWhile(p => p.startsWith(root.toPath) && p != root.toPath).toVector.reverse

  /** Takes from others what they may do with a directory of this user. Volumes that are mounted again may come with
    * rights for a group (Kubernetes' `fsGroup`). Fails for a link that has taken its place since it was looked at.
    */
  private def close(directory: Path): Unit = {
    problemOf(directory).foreach(found => throw new ForeignDirectoryException(found.problem))
    val view = viewOf(directory)
    if (view.readAttributes.permissions != Private) view.setPermissions(Private)
  }

  private def problemOf(path: Path): Option[Foreign] = {
    val found = viewOf(path).readAttributes
    if (found.isSymbolicLink)
      Some(Foreign(s"$path is a link to ${Files.readSymbolicLink(path)}", None))
    else if (!found.isDirectory) Some(Foreign(s"$path is no directory", None))
    else Option.when(found.owner != user) {
      val owner = found.owner.getName
      Foreign(s"$path belongs to $owner and not to ${user.getName}", Some(owner))
    }
  }

  private def viewOf(path: Path): PosixFileAttributeView = Files.getFileAttributeView(
    path,
    classOf[PosixFileAttributeView],
    LinkOption.NOFOLLOW_LINKS
  )

  /** The owner of files that this process creates; the name of the user may be unknown to a container. */
  private[local] lazy val user: UserPrincipal = {
    val file = Files.createTempFile("statemark-", ".owner")
    try Files.getOwner(file)
    finally Files.delete(file)
  }
}

/** A path that is not a directory of this user.
  *
  * @param owner the user whose it is, where that is another
  */
private[spark] final case class Foreign(problem: String, owner: Option[String])

/** A path below a root is not a directory of this user: its message says what it is. */
private[local] final class ForeignDirectoryException(problem: String) extends IOException(problem)
