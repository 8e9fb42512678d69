package statemark.spark.local

import java.io.{File, IOException}
import java.nio.file.{Files, LinkOption, NoSuchFileException, Path}
import java.util.UUID
import org.apache.spark.sql.execution.streaming.state.{StateStoreId, StatemarkBridge}
import org.slf4j.LoggerFactory
import scala.annotation.tailrec
import statemark.common.{Disk, DiskUnwritableException, DiskWrites, InvalidInputException}
import statemark.spark.conf.{LocalRoot, StoreSettings}

/** One incarnation of a store on local disk: the base store in `base`, and what its owner works with
  * beside it. Where it may be found by another process a lock says whether some process uses it.
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

  /** Tells whether the home outlives its process. One of a query with a temporary checkpoint does not: nobody can go on
    * from it.
    */
  def isDurable: Boolean = lock.isDefined && !StoreDirectory.isTemporary(path)

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
    case Some(held) if isDurable => held.release()
    case Some(_) => delete(): Unit
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
      if (StoreDirectory.isTemporary(path)) TemporaryHomes.delete(path)
      else LocalDirectory.deleteTree(path)
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

  /** Tells whether the home in `path` is of a query with a temporary checkpoint: of no use once its process has ended. Its
    * name says so, so that it is known as such from its first moment.
    */
  def isTemporary(path: File): Boolean = path.getName.startsWith(TemporaryPrefix)

  private[spark] val TemporaryPrefix = "temporary-"

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
  * executor: a disk that is attached elsewhere is as good as it was. The home of a query with a temporary
  * checkpoint lies where a durable one would, as the disk was chosen for stores, under a name by which whoever finds it
  * without an owner deletes it.
  *
  * @param root the root of homes that outlive the process; None where they go with it
  * @param isTemporary whether the checkpoint of the query ends with the process, and homes with it
  */
final class StoreDirectories(
    root: Option[LocalRoot],
    queryId: String,
    storeId: StateStoreId,
    isTemporary: Boolean = false
) {
  private val name = s"${storeId.operatorId}-${storeId.partitionId}-${storeId.storeName}"

  // Runs find each other's homes whatever name of the root each was given.
  private val there = root.map { named =>
    try named.directory.getCanonicalFile
    catch { case _: IOException => named.directory }
  }

  // A reader without a query leaves no home behind.
  private val folder: Option[File] =
    there.filter(_ => queryId.nonEmpty).map(r => new File(new File(r, queryId), name))

  /** The folder of all homes of the store; None where they do not outlive the process. */
  val parent: Option[File] = folder.filterNot(_ => isTemporary)

  /** Returns a new home.
    * @throws InvalidInputException where the root cannot be written, or what the home would lie in is not this user's
    *   alone
    * @throws DiskUnwritableException where the root's disk takes no more
    */
  def create(): StoreDirectory = folder match {
    case None =>
      new StoreDirectory(
        StatemarkBridge.newLocalDirectory(s"statemark-$name-"),
        None,
        isFresh = true
      )
    case Some(all) =>
      try made(all, StoreDirectories.Tries)
      catch { case e: IOException => throw refused(all, e) }
  }

  /** Makes a home and holds its lock. Until then the directory has no owner: other processes may delete a parent that
    * is empty, or take the directory for a home that was left. Another directory is made in that case.
    */
  @tailrec private def made(all: File, tries: Int): StoreDirectory = {
    val prefix = if (isTemporary) StoreDirectory.TemporaryPrefix else ""
    val own = new File(all, s"$prefix${UUID.randomUUID()}")
    if (isTemporary) TemporaryHomes.add(own)
    val home =
      try {
        there.foreach(LocalDirectory.make(_, own))
        StoreDirectory.tryHold(own, isFresh = true)
      } catch { case _: NoSuchFileException if tries > 1 => None }
    home match {
      case Some(held) => held
      case None if tries > 1 => made(all, tries - 1)
      case None => throw new IOException(s"$own cannot be locked")
    }
  }

  /** Returns homes that no process uses, held from now on: the caller releases or deletes each.
    * @throws InvalidInputException where one, or a directory that it lies in, is not this user's alone
    */
  def abandoned(): Seq[StoreDirectory] = parent.toSeq.flatMap { all =>
    try {
      val held = left(all).flatMap(StoreDirectory.tryHold(_))
      try held.map(_.clean())
      catch {
        case e: IOException =>
          held.foreach(_.release())
          throw e
      }
    } catch { case e: IOException => throw refused(all, e) }
  }

  /** Returns the homes in a folder that are known to be this user's; none where the folder is not there. */
  private def left(all: File): Seq[File] =
    if (!isOurs(all)) Nil
    else
      Option(all.listFiles).toSeq.flatten
        .filter(f => !Files.isRegularFile(f.toPath, LinkOption.NOFOLLOW_LINKS))
        .filter(home => !StoreDirectory.isTemporary(home) && isOurs(home))
        .tapEach(refuseBase)

  /** Returns false for a directory that is gone: another store has deleted it since it was listed.
    * @throws ForeignDirectoryException where it, or a directory that it lies in, is not this user's alone
    */
  private def isOurs(directory: File): Boolean =
    try {
      there.foreach(LocalDirectory.check(_, directory))
      true
    } catch { case _: NoSuchFileException => false }

  /** @throws ForeignDirectoryException where the base in a home is not a directory of this user */
  private def refuseBase(home: File): Unit =
    for {
      root <- there
      found <- LocalDirectory.foreign(root, new File(home, StoreDirectory.BaseName))
    } throw new ForeignDirectoryException(found.problem)

  private def refused(path: File, cause: IOException): Throwable = {
    val where = root.fold("")(_.text)
    DiskWrites.told(Disk.Local, path.getPath, cause) match {
      case unwritable: DiskUnwritableException => unwritable
      case foreign: ForeignDirectoryException =>
        new InvalidInputException(
          s"${foreign.getMessage}. $where, and what lies there has to be directories of user " +
            s"${LocalDirectory.user.getName}, and no links: whoever else may write in them could read the state, " +
            "or forge it.",
          Some(cause),
          Some(s"Remove it, or name another directory in ${StoreSettings.LocalDir.key}.")
        )
      case _ =>
        new InvalidInputException(
          s"$where, but $path cannot be written: $cause.",
          Some(cause),
          Some(
            s"Name a directory in ${StoreSettings.LocalDir.key} that this executor's user may write to, " +
              "on a disk with room."
          )
        )
    }
  }
}

private[spark] object StoreDirectories {

  /** The number of attempts. One is lost only where another process deletes empty directories, or looks for homes, at
    * that very moment.
    */
  private val Tries = 1000
}
