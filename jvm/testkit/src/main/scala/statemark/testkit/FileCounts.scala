package statemark.testkit

import java.util.{ArrayDeque, List => JList}

import scala.collection.mutable
import scala.jdk.CollectionConverters._

import statemark.testkit.FileEvent.Kind

/** One call on [[CountingFileSystem]].
  *
  * @param seq position in the process's order of calls, from 0
  * @param nanos `System.nanoTime`: before the call for `open`, `list` and `status` (which count even when they fail, as
  *   an object store bills them), after it for what changes files (so that the event means "visible")
  * @param kind one of [[FileEvent.kinds]]
  * @param path absolute path without scheme; of a rename the destination
  */
final case class FileEvent(seq: Long, nanos: Long, kind: String, path: String)

object FileEvent {

  /** The closed set of kinds; the name is what tests write. */
  sealed abstract class Kind(val name: String)
  case object Open extends Kind("open")
  case object Create extends Kind("create")
  case object ListDir extends Kind("list")
  case object Status extends Kind("status")
  case object Rename extends Kind("rename")
  case object Delete extends Kind("delete")
  case object Mkdir extends Kind("mkdir")

  val kinds: Seq[Kind] = Seq(Open, Create, ListDir, Status, Rename, Delete, Mkdir)

  def kind(name: String): Kind = kinds.find(_.name == name).getOrElse {
    throw new IllegalArgumentException(
      s"unknown kind of file event: $name; use one of ${kinds.map(_.name).mkString(", ")}"
    )
  }
}

/** What this process did through [[CountingFileSystem]]: exact counts, and a bounded log that says which files.
  *
  * Static methods on purpose: one facade for tests in Scala and, over py4j, in Python
  * (`spark._jvm.statemark.testkit.FileCounts.opens("/tmp/checkpoint/state/0")`).
  *
  * A `prefix` is a file or directory, with or without scheme; it covers itself and everything beneath it.
  *
  * ''Thread:'' any; all state is guarded by this object's lock.
  */
object FileCounts {

  /** Enough for thousands of micro-batches; beyond it the oldest events go and asking for them fails. */
  val logCapacity: Int = 200000

  // Counts are kept per directory, not per file: temporary names are unique and would grow without bound.
  private val counts = mutable.HashMap.empty[(Kind, String), Long]
  private val log = new ArrayDeque[FileEvent]()
  private var nextSeq = 0L

  private[testkit] def record(kind: Kind, path: String): Unit = synchronized {
    val directory = if (kind == FileEvent.ListDir) path else parent(path)
    counts.updateWith((kind, directory))(n => Some(n.getOrElse(0L) + 1))
    if (log.size == logCapacity) log.removeFirst()
    log.addLast(FileEvent(nextSeq, System.nanoTime(), kind.name, path))
    nextSeq += 1
  }

  /** Makes a change and records it, in one step to whoever asks for a mark: a change that anyone has seen is in the log
    * by then.
    */
  private[testkit] def recorded[T](kind: Kind, path: String)(change: => T): T = synchronized {
    val result = change
    record(kind, path)
    result
  }

  /** Forgets counts and log; positions go on rising, so that a mark taken before stays valid. */
  def reset(): Unit = synchronized {
    counts.clear()
    log.clear()
  }

  def opens(prefix: String): Long = count(FileEvent.Open.name, prefix)
  def creates(prefix: String): Long = count(FileEvent.Create.name, prefix)
  def lists(prefix: String): Long = count(FileEvent.ListDir.name, prefix)
  def statuses(prefix: String): Long = count(FileEvent.Status.name, prefix)
  def renames(prefix: String): Long = count(FileEvent.Rename.name, prefix)
  def deletes(prefix: String): Long = count(FileEvent.Delete.name, prefix)
  def mkdirs(prefix: String): Long = count(FileEvent.Mkdir.name, prefix)

  /** Calls of one kind since the last [[reset]] under a directory; exact whatever the log has lost. */
  def count(kind: String, prefix: String): Long = synchronized {
    val (wanted, root) = (FileEvent.kind(kind), plain(prefix))
    counts.iterator.collect { case ((`wanted`, dir), n) if covers(root, dir) => n }.sum
  }

  /** Position of the next event; pass it to [[eventsSince]] later. */
  def mark(): Long = synchronized(nextSeq)

  /** Every event of the log under a prefix, in order.
    *
    * ''Throws:'' IllegalStateException when the log has lost events since the last reset.
    */
  def events(prefix: String): JList[FileEvent] = select(prefix, complete = true)(_ => true)

  /** Events at or after a position that [[mark]] returned. */
  def eventsSince(prefix: String, seq: Long): JList[FileEvent] = {
    requireKept(log.peekFirst == null || log.peekFirst.seq <= seq || !overflowed, s"event $seq")
    select(prefix, complete = false)(_.seq >= seq)
  }

  /** Events with `fromNanos` <= time < `untilNanos` (`System.nanoTime` of this process). */
  def eventsBetween(prefix: String, fromNanos: Long, untilNanos: Long): JList[FileEvent] = {
    requireKept(!overflowed || log.peekFirst.nanos - fromNanos <= 0, s"time $fromNanos")
    // nanoTime may wrap around, so times are compared by their difference.
    select(prefix, complete = false)(e => e.nanos - fromNanos >= 0 && e.nanos - untilNanos < 0)
  }

  private def overflowed: Boolean = synchronized(log.size == logCapacity)

  private def requireKept(kept: Boolean, asked: String): Unit = if (!kept) {
    throw new IllegalStateException(
      s"the log keeps $logCapacity events and has lost some since $asked; " +
        "call FileCounts.reset() nearer to what is measured"
    )
  }

  private def select(prefix: String, complete: Boolean)(
      wanted: FileEvent => Boolean
  ): JList[FileEvent] = synchronized {
    if (complete) requireKept(!overflowed, "the last reset")
    val root = plain(prefix)
    log.iterator.asScala.filter(e => covers(root, e.path) && wanted(e)).toList.asJava
  }

  private def covers(root: String, path: String): Boolean =
    root == "/" || path == root || path.startsWith(root + "/")

  private def parent(path: String): String = path.lastIndexOf('/') match {
    case i if i > 0 => path.substring(0, i)
    case _ => "/"
  }

  private def plain(prefix: String): String = {
    val path = new org.apache.hadoop.fs.Path(prefix).toUri.getPath
    require(path.startsWith("/"), s"a prefix is an absolute path, but got $prefix")
    path
  }
}
