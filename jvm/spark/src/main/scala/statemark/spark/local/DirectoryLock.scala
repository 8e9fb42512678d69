package statemark.spark.local

import java.io.{File, FileNotFoundException, IOException, RandomAccessFile}
import java.nio.channels.{FileLock, OverlappingFileLockException}
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, LinkOption}
import java.nio.file.attribute.BasicFileAttributes
import java.util.{Set => JSet}
import java.util.concurrent.ConcurrentHashMap
import scala.collection.mutable

/** The lock of a home: a file that its owner holds, with a note for people in it.
  *
  * The system gives a lock up when its process closes the file, and when it closes any other that it has opened by
  * whatever name. So the file of a home that this process holds is not opened again, and its channel is for locking
  * alone: an interrupt of a thread that reads or writes would close it. Two places of the file are locked:
  *
  * - who has [[DirectoryLock.Ownership]] owns the home, and no other process takes that place;
  * - [[DirectoryLock.Presence]] tells others that the home has an owner. A process that only looks holds it for a
  * moment, and so keeps no process from owning the home.
  *
  * ''Thread:'' any.
  *
  * @param names the names of the home and of the lock file in the process's set
  */
private[spark] final class DirectoryLock private (file: RandomAccessFile, names: Set[String]) {
  private var isHeld = true
  private var isPresent = false

  /** Replaces the note. Does nothing once the lock is released. */
  def note(text: String): Unit = synchronized(if (isHeld) {
    file.setLength(0)
    file.seek(0)
    file.write(text.getBytes(UTF_8))
    showPresence()
  })

  /** Returns the note of the last owner; None once the lock is released. */
  def noted: Option[String] = synchronized(Option.when(isHeld) {
    file.seek(0)
    val bytes = new Array[Byte](DirectoryLock.MaxNote)
    new String(bytes, 0, math.max(file.read(bytes), 0), UTF_8)
  })

  /** Idempotent. */
  def release(): Unit = DirectoryLock.held.synchronized(synchronized(if (isHeld) {
    isHeld = false
    try file.close()
    finally names.foreach(DirectoryLock.held.remove)
  }))

  /** Takes the place by which others see that the home is in use. Where another process looks at this moment, the
    * next note takes it.
    */
  private def showPresence(): Unit =
    if (!isPresent)
      isPresent = DirectoryLock.taken(file, DirectoryLock.Presence, isShared = false)(())
}

private[spark] object DirectoryLock {
  private val Ownership = 0L
  private val Presence = 1L
  private val MaxNote = 32

  /** The homes that this process holds, whichever class loader has this class: their real paths, and the keys by
    * which the system knows their lock files. Code that opens a lock file synchronizes on it.
    */
  private val held: JSet[String] = {
    val made = System.getProperties.computeIfAbsent(
      "statemark.heldHomes",
      (_: Any) => ConcurrentHashMap.newKeySet[String]()
    )
    made.asInstanceOf[JSet[String]]
  }

  /** Files that another channel of this process has locked: to close one would give up that lock. They stay open, and
    * a later attempt at the same lock does it with them.
    */
  private val abandoned = mutable.Map.empty[LockFile.Key, RandomAccessFile]

  /** Returns the lock of the home in `path`, held from now on; None where it is held, in this process or another, or
    * where it cannot be opened.
    */
  def tryHold(path: File): Option[DirectoryLock] = held.synchronized {
    val lock = fileOf(path)
    if (isHeld(path)) None
    else
      opened(path, "rw").flatMap { tried =>
        var isOurs = false
        try {
          // Another process may have deleted the directory before the lock was ours.
          isOurs = takes(tried, Ownership, isShared = false) && lock.exists
          Option.when(isOurs)(owned(tried.file, namesOf(path)))
        } finally if (!isOurs) close(tried)
      }
  }

  private def owned(file: RandomAccessFile, names: Set[String]): DirectoryLock = {
    names.foreach(held.add)
    val lock = new DirectoryLock(file, names)
    lock.synchronized(lock.showPresence())
    lock
  }

  /** Tells whether some process holds the home in `path`, this one included, or that cannot be told. Keeps no process
    * from holding it.
    */
  def isInUse(path: File): Boolean = held.synchronized {
    isHeld(path) || opened(path, "r").forall { tried =>
      try !takes(tried, Presence, isShared = true)
      finally close(tried)
    }
  }

  /** Returns the note of the owner of the home in `path`; None where this process does, as it must not open the file.
    */
  def notedIn(path: File): Option[String] = held.synchronized {
    if (isHeld(path) || isOther(path)) None
    else
      try Some(Files.readString(fileOf(path).toPath))
      catch { case _: IOException => None }
  }

  private def opened(path: File, mode: String): Option[LockFile] = {
    val key = LockFile.Key(namesOf(path), mode)
    try
      Option.unless(isOther(path)) {
        LockFile(abandoned.getOrElse(key, new RandomAccessFile(fileOf(path), mode)), key)
      }
    catch { case _: FileNotFoundException => None }
  }

  /** Tells whether the lock's file is there and no regular one: a pipe would let its reader wait for ever. */
  private def isOther(path: File): Boolean = {
    val file = fileOf(path).toPath
    Files.exists(file, LinkOption.NOFOLLOW_LINKS) &&
    !Files.isRegularFile(file, LinkOption.NOFOLLOW_LINKS)
  }

  private def fileOf(path: File): File = new File(path, StoreDirectory.LockName)

  private def isHeld(path: File): Boolean = namesOf(path).exists(held.contains)

  /** Returns the names of a home and its lock file. A home has one real path, however it is named; a lock file that
    * is reached over two mounts is one file.
    */
  private def namesOf(path: File): Set[String] =
    try {
      val attributes = classOf[BasicFileAttributes]
      val lock = fileOf(path).toPath
      val key =
        if (Files.exists(lock)) Option(Files.readAttributes(lock, attributes).fileKey) else None
      key.map(_.toString).toSet + path.toPath.toRealPath().toString
    } catch { case _: IOException => Set(path.getAbsolutePath) }

  /** Takes a place of the file, if it is free. */
  private def takes(tried: LockFile, place: Long, isShared: Boolean): Boolean = {
    val isTaken = taken(tried.file, place, isShared)(abandoned(tried.key) = tried.file)
    if (isTaken) abandoned.remove(tried.key): Unit // so that it is closed when it is released
    isTaken
  }

  /** @param overlaps runs where another channel of this process has it */
  private def taken(file: RandomAccessFile, place: Long, isShared: Boolean)(
      overlaps: => Unit
  ): Boolean =
    try Option[FileLock](file.getChannel.tryLock(place, 1, isShared)).isDefined
    catch {
      case _: OverlappingFileLockException =>
        overlaps
        false
    }

  private def close(tried: LockFile): Unit =
    if (!abandoned.contains(tried.key)) tried.file.close()
}

/** A lock file that is open, for as long as its lock is tried. */
private final case class LockFile(file: RandomAccessFile, key: LockFile.Key)

private object LockFile {

  /** @param names the names of the home and of the file
    * @param mode the mode in which the file is open
    */
  final case class Key(names: Set[String], mode: String)
}
