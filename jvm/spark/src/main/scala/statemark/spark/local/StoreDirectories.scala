package statemark.spark.local

import java.io.{File, IOException}
import java.nio.file._
import java.nio.file.attribute.{BasicFileAttributes, PosixFilePermissions, UserPrincipal}
import java.util.{Comparator, UUID}
import org.apache.spark.sql.execution.streaming.state.{StateStoreId, StatemarkBridge}
import org.slf4j.LoggerFactory
import scala.annotation.tailrec
import statemark.common.InvalidInputException
import statemark.spark.conf.StoreSettings

/** One incarnation of a store on local disk: the base store in `base`, and what its owner works with
  * beside it. Where it outlives its process a lock says whether some process uses it.
  *
  * @param isFresh made by this process, and not left by another
  *
  * ''Thread:'' `fresh` from any, the rest from one.
  */
final class StoreDirectory private[spark] (
    val path: File,
    lock: Option[DirectoryLock],
    val isFresh: Boolean
) {
  private var created = 0

  val base: File = new File(path, StoreDirectory.BaseName)

  /** Tells whether the home outlives its process. */
  def isDurable: Boolean = lock.isDefined

  /** Returns a path beside the base that is not there yet. */
  def fresh(prefix: String): File = synchronized {
    created += 1
    new File(path, s"$prefix-$created")
  }

  /** Notes the version that the last flush is of, for people and as a hint: nothing relies on it, as RocksDB
    * may still be writing.
    */
  def note(version: Long): Unit = lock.foreach(_.note(s"$version\n"))

  /** Returns the version that its last owner noted. */
  def noted: Option[Long] = lock.flatMap(_.noted).flatMap(_.trim.toLongOption)

  /** Gives it up for another process to find; deletes it where it does not outlive this one. */
  def release(): Unit = lock match {
    case Some(held) => held.release()
    case None => LocalDirectory.deleteTree(path)
  }

  /** Deletes it, as far as the disk lets us; whether it is gone. What a crash in the middle leaves is no base
    * store any more, and a home still, so that it is found again.
    */
  def delete(): Boolean =
    try {
      Files.deleteIfExists(new File(base, "CURRENT").toPath): Unit
      Option(path.listFiles).toSeq.flatten.filterNot(_.getName == StoreDirectory.LockName)
        .foreach(LocalDirectory.deleteTree)
      LocalDirectory.deleteTree(path)
      true
    } catch {
      case e: IOException =>
        StoreDirectory.log.warn(
          s"$path cannot be deleted; it is tried again when it is collected.",
          e
        )
        false
    } finally lock.foreach(_.release())

  /** Removes what an earlier owner worked with. */
  private[spark] def clean(): this.type = {
    Option(path.listFiles).toSeq.flatten.filterNot(f =>
      f.getName == StoreDirectory.BaseName || f.getName == StoreDirectory.LockName
    )
      .foreach(LocalDirectory.deleteTree)
    this
  }
}

object StoreDirectory {
  private val log = LoggerFactory.getLogger(classOf[StoreDirectory])
  val LockName = "owner.lock"
  val BaseName = "base"

  /** Returns when the base in a home went to disk last. */
  def usedAtMs(path: File): Long = new File(path, LockName).lastModified()

  /** Returns every home below a root, in use or not: each directory that has the shape of one. Links are not
    * followed, as they lead out of the root.
    */
  def all(root: File): Seq[File] = {
    def isThere(f: File, isType: (Path, LinkOption) => Boolean) =
      isType(f.toPath, LinkOption.NOFOLLOW_LINKS)
    def below(d: File) =
      Option(d.listFiles).toSeq.flatten.filter(isThere(_, Files.isDirectory(_, _)))
    below(root).flatMap(below).filter(d => StoreName.matches(d.getName)).flatMap(below)
      .filter(home => isThere(new File(home, LockName), Files.isRegularFile(_, _)))
  }

  /** Tells whether some process holds the home in `path`, this one included; keeps no process from holding it. */
  def isInUse(path: File): Boolean = DirectoryLock.isInUse(path)

  /** Returns the version that its owner noted; None where this process is the owner, as its lock does not survive
    * that somebody reads the file.
    */
  def notedVersion(path: File): Option[Long] =
    DirectoryLock.notedIn(path).flatMap(_.trim.toLongOption)

  /** Operator, partition and store. */
  private val StoreName = """\d+-\d+-.+""".r

  /** Returns the home in `path`, held from now on; None where it is held, in this process or another. */
  private[spark] def tryHold(path: File, isFresh: Boolean = false): Option[StoreDirectory] =
    DirectoryLock.tryHold(path).map(lock => new StoreDirectory(path, Some(lock), isFresh))
}

/** The homes of one store.
  *
  * Durable ones are `<root>/<query>/<operator>-<partition>-<store>/<unique>`, others lie in the
  * executor's own local directories and are deleted with it. No part of a path tells the host or the
  * executor: a disk that is attached elsewhere is as good as it was.
  *
  * @param root the root of homes that outlive the process; None where they go with it
  */
final class StoreDirectories(root: Option[File], queryId: String, storeId: StateStoreId) {
  private val name = s"${storeId.operatorId}-${storeId.partitionId}-${storeId.storeName}"

  // Runs find each other's homes whatever name of the root each was given.
  private val there = root.map { named =>
    try named.getCanonicalFile
    catch { case _: IOException => named }
  }

  /** The folder of all homes of the store; None where they do not outlive the process. A reader without a query
    * leaves no home behind.
    */
  val parent: Option[File] =
    there.filter(_ => queryId.nonEmpty).map(r => new File(new File(r, queryId), name))

  /** Returns a new home.
    * @throws InvalidInputException where the root cannot be written, or is another user's
    */
  def create(): StoreDirectory = parent match {
    case None =>
      new StoreDirectory(
        StatemarkBridge.newLocalDirectory(s"statemark-$name-"),
        None,
        isFresh = true
      )
    case Some(all) =>
      try made(all, StoreDirectories.Tries)
      catch { case e: IOException => throw unwritable(all, e) }
  }

  /** Makes a home and holds its lock. Until then the directory has no owner: other processes may delete a parent that
    * is empty, or take the directory for a home that was left. Another directory is made in that case.
    */
  @tailrec private def made(all: File, tries: Int): StoreDirectory = {
    val own = new File(all, UUID.randomUUID().toString)
    val home =
      try {
        LocalDirectory.createPrivate(own.toPath)
        LocalDirectory.checkOwners(own, there)
        StoreDirectory.tryHold(own, isFresh = true)
      } catch { case _: NoSuchFileException if tries > 1 => None }
    home match {
      case Some(held) => held
      case None if tries > 1 => made(all, tries - 1)
      case None => throw new IOException(s"$own cannot be locked")
    }
  }

  /** Homes that no process uses, held from now on: the caller releases or deletes each.
    * @throws InvalidInputException where one is another user's
    */
  def abandoned(): Seq[StoreDirectory] = {
    val all = parent.flatMap(p => Option(p.listFiles)).toSeq.flatten.filter(_.isDirectory)
    val ours =
      try all.filter(isOurs)
      catch { case e: IOException => throw unwritable(parent.getOrElse(new File("")), e) }
    val held = ours.flatMap(StoreDirectory.tryHold(_))
    try held.map(_.clean())
    catch {
      case e: IOException =>
        held.foreach(_.release())
        throw unwritable(parent.getOrElse(new File("")), e)
    }
  }

  /** False where it is gone since it was listed: another store has deleted it.
    * @throws IOException where it is another user's
    */
  private def isOurs(home: File): Boolean =
    try {
      LocalDirectory.checkOwners(home, there)
      true
    } catch { case _: NoSuchFileException => false }

  private def unwritable(path: File, cause: IOException): Throwable = new InvalidInputException(
    s"${StoreSettings.Prefix}localDir is '${root.fold("")(_.getPath)}', but $path cannot be written: " +
      s"$cause. Name a directory that this executor's user may write to, on a disk with room.",
    Some(cause)
  )
}

private[spark] object StoreDirectories {

  /** The number of attempts. One is lost only where another process deletes empty directories, or looks for homes, at
    * that very moment.
    */
  private val Tries = 1000
}

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
