package statemark.engine

import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.atomic.AtomicInteger
import java.util.concurrent.locks.ReentrantReadWriteLock
import statemark.common.ViewClosedException

/** The rows of a base store as they stood at one moment, while its owner goes on. Holds a snapshot of
  * RocksDB until the last of its users has closed it, or the engine is closed.
  *
  * ''Thread:'' any, several at once; the owner of the engine pays nothing for them. ''Throws:''
  * [[ViewClosedException]] from every call once the engine is closed.
  */
final class EngineView private[engine] (source: EngineView.Source, gate: ReadGate)
    extends AutoCloseable {
  private val users = new AtomicInteger(1)

  /** Adds a user, who closes the view as well; returns false where the last user is gone. */
  def retain(): Boolean = gate.reading(users.getAndUpdate(n => if (n > 0) n + 1 else 0) > 0)

  def get(key: Array[Byte]): Option[Array[Byte]] = using(source.get(key))

  /** Returns rows of `[begin, end)` in key order; the caller closes the cursor. */
  def scan(begin: Option[Array[Byte]], end: Option[Array[Byte]]): RowCursor =
    using(new GatedCursor(gate, gate.add(source.scan(begin, end))))

  /** Runs a call as a user of the view for as long as it takes: a user that closes while another of its threads reads
    * does not free the snapshot under that one.
    */
  private def using[A](read: => A): A = {
    if (!retain()) {
      throw new ViewClosedException(
        "The rows were closed by their reader while it read them. Open them again."
      )
    }
    try gate.reading(read)
    finally close()
  }

  /** Removes a user; each user calls it once. The last call releases RocksDB's objects. */
  override def close(): Unit = if (users.decrementAndGet() == 0) gate.release(source)
}

private[engine] object EngineView {

  /** RocksDB's part of a view. */
  trait Source extends AutoCloseable {
    def get(key: Array[Byte]): Option[Array[Byte]]
    def scan(begin: Option[Array[Byte]], end: Option[Array[Byte]]): EngineScan
  }
}

/** Takes rows through the gate by blocks, which begin small: most scans are short or go on to the end. */
private final class GatedCursor(gate: ReadGate, scan: EngineScan) extends RowCursor {
  private var block = Vector.empty[(Array[Byte], Array[Byte])]
  private var at = 0
  private var rows = 1

  override def keyOrEnd(): Option[Array[Byte]] = {
    gate.check()
    if (at == block.length && rows > 0) read()
    Option.when(at < block.length)(block(at)._1)
  }
  override def value: Array[Byte] = block(at)._2
  override def next(): Unit = at += 1
  // In turn with `read`: the gate lets both in.
  override def close(): Unit = synchronized(gate.release(scan))

  private def read(): Unit = synchronized {
    val found = Vector.newBuilder[(Array[Byte], Array[Byte])]
    var count = 0
    var bytes = 0L
    gate.reading {
      while (count < rows && bytes < GatedCursor.BlockBytes && scan.isValid) {
        val row = (scan.key, scan.value)
        found += row
        count += 1
        bytes += row._1.length + row._2.length
        scan.next()
      }
      rows = if (scan.isValid) math.min(2 * rows, GatedCursor.BlockRows) else 0
    }
    block = found.result()
    at = 0
  }
}

private object GatedCursor {
  val BlockRows = 128
  val BlockBytes = 64L * 1024
}

/** Lets readers into native memory, and keeps its owner from freeing it under them: the owner's close waits
  * for calls that are inside, and closes what readers have left open. Calls are short.
  *
  * ''Thread:'' any.
  */
private[engine] final class ReadGate(what: String) {
  private val lock = new ReentrantReadWriteLock
  private val open = ConcurrentHashMap.newKeySet[AutoCloseable]()
  @volatile private var isClosed = false

  /** Runs `body` like `reading`, for an owner that may come after the end of the engine: returns `closed` then. */
  def readingOr[A](closed: => A)(body: => A): A = {
    lock.readLock.lock()
    try if (isClosed) closed else body
    finally lock.readLock.unlock()
  }

  /** @throws ViewClosedException once it is closed */
  def reading[A](body: => A): A = {
    lock.readLock.lock()
    try {
      check()
      body
    } finally lock.readLock.unlock()
  }

  /** Fails like `reading` where the engine is closed, and reads nothing. */
  def check(): Unit = if (isClosed) {
    throw new ViewClosedException(
      s"$what was closed while it was read: its query has stopped, or the store has moved to another executor. " +
        "Read it again."
    )
  }

  /** Closed with the gate, unless it is released before. */
  def add[A <: AutoCloseable](handle: A): A = {
    open.add(handle): Unit
    handle
  }

  def release(handle: AutoCloseable): Unit = {
    lock.readLock.lock()
    try if (open.remove(handle)) handle.close()
    finally lock.readLock.unlock()
  }

  def close(): Unit = {
    lock.writeLock.lock()
    try {
      isClosed = true
      open.forEach(_.close())
      open.clear()
    } finally lock.writeLock.unlock()
  }
}
