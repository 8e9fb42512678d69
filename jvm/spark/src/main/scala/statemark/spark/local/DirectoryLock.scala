package statemark.spark.local

import java.io.{File, FileNotFoundException, IOException, RandomAccessFile}
import java.nio.channels.{FileLock, OverlappingFileLockException}
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.Files
import java.nio.file.attribute.BasicFileAttributes
import java.util.{Set => JSet}
import java.util.concurrent.ConcurrentHashMap
import scala.collection.mutable

/** The lock of a home: a file that its owner holds, with a note for people in it.
  *
  * The system gives a lock up when its process closes the file, and when it closes any other that it has opened by
  * whatever name. So the file of a home that this process holds is not opened again, and its channel is for
  * locking alone: an interrupt of a thread that reads or writes would close it. Two places of the file are locked:
  *
  *   - who has [[DirectoryLock.Ownership]] owns the home, and nobody else takes that place;
  *   - [[DirectoryLock.Presence]] tells others that somebody does. Who only looks holds it for a moment, and so keeps no
  *     process from owning the home.
  *
  * ''Thread:'' any.
  *
  * @param names of the home and of the lock file, as the process's set has them
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

  /** What the last owner noted; None once the lock is released. */
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

  /** Where somebody looks at this moment, the next note does it. */
  private def showPresence(): Unit =
    if (!isPresent)
      isPresent = DirectoryLock.taken(file, DirectoryLock.Presence, isShared = false)(())
}

private[spark] object DirectoryLock {
  private val Ownership = 0L
  private val Presence = 1L
  private val MaxNote = 32

  /** What this process holds, whichever class loader has this class: the real paths of homes, and what the system
    * knows their lock files by. It is the lock of whoever opens a lock file.
    */
  private val held: JSet[String] = {
    val made = System.getProperties.computeIfAbsent(
      "statemark.heldHomes",
      (_: Any) => ConcurrentHashMap.newKeySet[String]()
    )
    made.asInstanceOf[JSet[String]]
  }

  /** Files that another channel of this process has locked: to close one would give up that lock. They stay open, and
    * whoever tries the same lock again does it with them.
    */
  private val abandoned = mutable.Map.empty[LockFile.Key, RandomAccessFile]

  /** The lock of the home in `path`, held from now on; None where somebody holds it, in this process or another, or
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

  /** Whether some process holds the home in `path`, this one included, or it cannot be told. Keeps nobody from
    * holding it.
    */
  def isInUse(path: File): Boolean = held.synchronized {
    isHeld(path) || opened(path, "r").forall { tried =>
      try !takes(tried, Presence, isShared = true)
      finally close(tried)
    }
  }

  /** The note of whoever holds the home in `path`; None where this process does, as it must not open the file. */
  def notedIn(path: File): Option[String] = held.synchronized {
    if (isHeld(path)) None
    else
      try Some(Files.readString(fileOf(path).toPath))
      catch { case _: IOException => None }
  }

  private def opened(path: File, mode: String): Option[LockFile] = {
    val key = LockFile.Key(namesOf(path), mode)
    try Some(LockFile(abandoned.getOrElse(key, new RandomAccessFile(fileOf(path), mode)), key))
    catch { case _: FileNotFoundException => None }
  }

  private def fileOf(path: File): File = new File(path, StoreDirectory.LockName)

  private def isHeld(path: File): Boolean = namesOf(path).exists(held.contains)

  /** A home has one real path, however it is named; a lock file that is reached over two mounts is one file. */
  private def namesOf(path: File): Set[String] =
    try {
      val attributes = classOf[BasicFileAttributes]
      val lock = fileOf(path).toPath
      val key =
        if (Files.exists(lock)) Option(Files.readAttributes(lock, attributes).fileKey) else None
      key.map(_.toString).toSet + path.toPath.toRealPath().toString
    } catch { case _: IOException => Set(path.getAbsolutePath) }

  /** Takes a place of the file, if nobody has it. */
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

  /** @param names of the home and the file
    * @param mode that it is open in
    */
  final case class Key(names: Set[String], mode: String)
}
