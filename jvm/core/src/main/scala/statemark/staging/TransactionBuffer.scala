package statemark.staging

import java.lang.invoke.VarHandle
import java.util.Arrays
import java.util.concurrent.atomic.AtomicLong
import scala.annotation.tailrec
import scala.collection.mutable
import statemark.common.{ArrayPool, Bytes, KeyHash, Sharing}

/** The staged writes of one transaction.
  *
  * A hash table serves point reads and writes. The first scan that does not begin behind all of them puts
  * the entries in order beside it, and every later one those that are new since: so a transaction that scans ahead
  * of its writes only, or never, pays for no order, and one that scans between writes pays little for what is
  * staged, never all of its size (ADR 1, ADR 34). At commit the writes come in key order.
  *
  * Keys and values are copied into pages. Whatever is handed out is a copy, so that a page serves another
  * transaction when this one has closed, unless a reader on another thread may look at it still: then it is
  * left to the garbage collector.
  *
  * Rules of folding: a put or delete replaces what stood; a merge appends to a staged value, starts
  * a value after a staged delete or under a range tombstone, and else collects operands for the
  * base; a range tombstone turns staged writes inside it into deletes, later ones stand above it.
  *
  * ''Thread:'' the owner of the transaction. Ownership may pass between threads (PySpark's
  * transformWithState does that) where the passing orders memory. `lookupBeside` and `scanBeside` from any
  * thread while the owner goes on, by a sequence lock: it costs the owner two stores for each write and no
  * fence, and readers try again where they met a write.
  *
  * @param expected the expected number of keys; more and less are fine
  */
final class TransactionBuffer private[statemark] (
    mergeDelimiter: Array[Byte],
    pool: ArrayPool,
    expected: Int = 0
) extends StagedScans {
  import PagedTable.NoEntry
  import StagedTable._
  import TransactionBuffer._

  def this(mergeDelimiter: Array[Byte]) = this(mergeDelimiter, ArrayPool.shared)

  private val table = new StagedTable(pool, expected)
  private val index = new EntryIndex(table, pool)
  private var tombstones_ = RangeTombstones.none
  private var seq = 0L
  // Scans that need the writes in memory as they were when the scan was opened.
  private val openScans = new OpenScans(table)
  // Below what is in memory.
  private var spilled_ = Option.empty[SpilledWrites]
  // Of all keys in memory, of those that have a write, and of the values of these.
  private var keyBytes = 0L
  private var writtenKeyBytes = 0L
  private var valueBytes = 0L

  // Odd while the owner changes something.
  private val changes = new AtomicLong
  private val sharing = new Sharing

  /** Bytes held, on the heap or outside: keys, values and bookkeeping, and what is kept for open scans. */
  def bytes: Long = table.bytes + tombstones_.bytes + openScans.bytes

  /** Returns bytes of writes alone: keys, values and range tombstones, in memory and spilled. */
  def stagedBytes: Long =
    writtenKeyBytes + valueBytes + tombstones_.bytes + spilled_.fold(0L)(_.bytes)

  /** Returns bytes of keys that were read and not written. */
  def rememberedBytes: Long = keyBytes - writtenKeyBytes

  /** About what a batch of all that is in memory takes. */
  private[statemark] def expectedBatchBytes: Long =
    table.bytes - table.entries * (EntryOverhead - BatchRecordOverhead)

  /** Returns the writes that memory had no room for. */
  private[statemark] def spilled: Option[SpilledWrites] = spilled_

  def tombstones: RangeTombstones = tombstones_

  def isEmpty: Boolean = index.length == 0 && tombstones_.isEmpty && spilled_.isEmpty

  def lookup(key: Array[Byte]): StagedLookup = {
    val entry = find(key)
    if (entry != NoEntry && table.hasWrite(entry)) table.standing(entry)
    else
      lookupSpilled(key) match {
        case Some(write) => write
        case None if entry != NoEntry && table.inBase(entry) == Absent => StagedLookup.KnownAbsent
        case None if tombstones_.covers(key) => StagedLookup.Deleted
        case None => StagedLookup.NotStaged
      }
  }

  private def lookupSpilled(key: Array[Byte]): Option[StagedLookup] = spilled_ match {
    case Some(spilled) => spilled.lookup(key)
    case None => None
  }

  def put(key: Array[Byte], value: Array[Byte]): Unit = write(key, Put, value)

  def remove(key: Array[Byte]): Unit = write(key, Delete, Bytes.empty)

  private def write(key: Array[Byte], op: Byte, value: Array[Byte]): Unit = {
    val n = begin()
    try write(entryFor(key), op, value)
    finally end(n)
  }

  def merge(key: Array[Byte], operand: Array[Byte]): Unit = changing {
    val entry = entryFor(key)
    if (!table.hasWrite(entry)) recall(entry, key)
    table.op(entry) match {
      case Put | Merge =>
        openScans.keep(entry, isAppended = true)
        seq += 1
        table.append(entry, seq, mergeDelimiter, operand)
        valueBytes += mergeDelimiter.length + operand.length
        openScans.tidy()
      case Delete => write(entry, Put, operand)
      case _ if tombstones_.covers(key) => write(entry, Put, operand)
      case _ => write(entry, Merge, operand)
    }
  }

  /** Deletes `[begin, end)`, staged and base. */
  def deleteRange(begin: Array[Byte], end: Array[Byte]): Unit =
    if (Bytes.order.lt(begin, end)) {
      changing {
        val entries = index.from(Some(begin))
        while (entries.current != NoEntry && table.compareKey(entries.current, end) < 0) {
          write(entries.current, Delete, Bytes.empty)
          entries.advance()
        }
        tombstones_ = tombstones_.added(begin, end)
      }
      // After the tombstone: a reader that misses what goes here finds that.
      spilled_.foreach(_.deleteRange(begin, end))
    }

  /** Keeps what a read found in the base, so that counting rows at commit need not ask again. */
  def rememberBase(key: Array[Byte], exists: Boolean): Unit =
    if (rememberedBytes + unwritten * EntryOverhead < MaxRememberedBytes) changing {
      val entry = entryFor(key)
      if (table.inBase(entry) == Unknown) table.setInBase(entry, if (exists) Present else Absent)
    }

  /** Tells whether all that is staged, if anything, lies before `begin`; false where it takes longer to know. */
  private def isBehindAll(begin: Option[Array[Byte]]): Boolean =
    isBare && begin.isDefined && index.isBehindAll(begin.get)

  private def isBare = spilled_.isEmpty && tombstones_.isEmpty

  /** Tells whether reads have told of each key with a write that it is not in the base, and none has operands. */
  private[statemark] def hasNewKeysAlone: Boolean = isBare && sorted.forall { entry =>
    table.inBase(entry) == Absent && table.op(entry) != Merge
  }

  /** Opens a scan of the writes staged in `[begin, end)` now, in key order; later writes do not show (I7). */
  override def scan(begin: Option[Array[Byte]], end: Option[Array[Byte]]): StagedCursor =
    // Most scans of a group: nothing has to be kept for them.
    if (isBehindAll(begin)) NothingStaged
    else {
      val entries = index.from(begin)
      if (isBare && !isBefore(entries.current, end)) NothingStaged
      else openScan(entries, begin, end)
    }

  private def isBefore(entry: Long, end: Option[Array[Byte]]): Boolean =
    entry != NoEntry && (end.isEmpty || table.compareKey(entry, end.get) < 0)

  private def openScan(
      entries: EntryIndex#Cursor,
      begin: Option[Array[Byte]],
      end: Option[Array[Byte]]
  ): StagedScan = {
    val at = seq
    val memory = new MemoryLayer(table, entries, end, openScans, at)
    val below = spilled_.map(_.scan(begin, end))
    val scan = new StagedScan(memory, below, end, at, tombstones_, openScans.remove)
    openScans.add(scan)
    scan
  }

  /** Moves what is in memory to disk. Open scans go on there: each distinct moment at which one was opened is
    * written before what came after it.
    *
    * @param make makes the place for spilled writes, where nothing was spilled before
    * @throws statemark.common.ScratchFullException where the disk does not take it: all writes are in memory as
    *   before. Scans that have moved stay where they are: what lies there by the next try is later than they see
    */
  private[statemark] def spill(make: () => SpilledWrites): Unit = {
    if (index.length > 0) {
      val target = spilled_.getOrElse(make())
      changing { spilled_ = Some(target) }
      val moments = openScans.moments
      val parts = writesByMoment(moments.iterator.map(_._1).toArray)
      for (((_, scans), part) <- moments.zip(parts)) {
        target.add(table, part)
        scans.foreach { scan =>
          scan.moveTo(target)
          openScans.remove(scan)
        }
      }
      target.add(table, parts.last)
      target.flush()
      openScans.clear()
    }
    // Reads that are remembered are forgotten as well.
    changing {
      index.clear()
      table.clear()
      keyBytes = 0
      writtenKeyBytes = 0
      valueBytes = 0
    }
  }

  /** Returns the writes to spill before each of `moments`, and after the last: of each key the write that stands
    * then, where it is another one than before.
    */
  private def writesByMoment(moments: Array[Long]): Vector[Iterable[(Long, OlderWrite)]] = {
    val all = sorted
    def newest(entry: Long) = OlderWrite.newest(table, entry)
    if (moments.isEmpty)
      Vector((0 until all.length).view.map(all(_)).map(entry => (entry, newest(entry))))
    else {
      val parts = Vector.fill(moments.length + 1)(mutable.ArrayBuffer.empty[(Long, OlderWrite)])
      all.iterator.foreach { entry =>
        var last = parts.length
        (newest(entry) :: openScans.olderWrites(entry)).foreach { write =>
          val found = Arrays.binarySearch(moments, write.seq)
          val part = if (found < 0) -found - 1 else found
          if (part < last) parts(part) += ((entry, write))
          last = part
        }
      }
      parts
    }
  }

  /** Deletes the spilled writes and frees the pages, when the owner is done. */
  private[statemark] def close(): Unit = {
    spilled_.foreach(_.close())
    index.clear()
    if (sharing.end()) table.clear()
  }

  /** Lets readers beside the owner in; false where it is closed. */
  private[statemark] def share(): Boolean = sharing.share()

  /** Returns how many entries have no write. */
  private[statemark] def unwritten: Int = table.entries - index.length

  /** Returns all entries with a write, in key order, until the next call. */
  private[statemark] def sorted: LongList = index.all()

  /** Returns the entries, to read them in that order. */
  private[statemark] def entries: StagedTable = table

  /** Looks a key up like [[lookup]], from another thread. */
  private[statemark] def lookupBeside(key: Array[Byte]): StagedLookup =
    beside {
      val entry = find(key)
      if (entry != NoEntry && table.hasWrite(entry)) Left(table.standing(entry))
      else Right(spilled_)
    } match {
      case Left(write) => write
      case Right(spilled) =>
        // Read memory, then the spilled writes, then the tombstones: a write moves in that direction only, so that
        // none is missed.
        spilled.flatMap(_.lookupBeside(key)).getOrElse(
          if (beside(tombstones_).covers(key)) StagedLookup.Deleted else StagedLookup.NotStaged
        )
    }

  /** Writes in `[begin, end)` from another thread, each as it was at some moment of the call. */
  private[statemark] def scanBeside(
      begin: Option[Array[Byte]],
      end: Option[Array[Byte]]
  ): StagedCursor = {
    def isWanted(entry: Long) =
      begin.forall(table.compareKey(entry, _) >= 0) && end.forall(table.compareKey(entry, _) < 0)
    val reads = new StagedTable.Beside {
      override def apply[A](read: => A): A = beside(read)
    }
    val memory = (0 until PagedTable.Tables).iterator.flatMap { part =>
      table.copyBeside(part, reads) { entry =>
        Option.when(isWanted(entry))((table.key(entry), table.standing(entry)))
      }
    }.flatten.toArray.sortBy(_._1)(Bytes.order)
    // In this order: what memory has lost is spilled, what was spilled no more lies under a range.
    val spilled = beside(spilled_).map(_.scanBeside(begin, end))
    new LayeredCursor(
      new IteratorLayer(memory.iterator) +: spilled.toVector,
      beside(tombstones_)
    )
  }

  /** Runs a change on the owner's side of the sequence lock. */
  private def changing[A](change: => A): A = {
    val n = begin()
    try change
    finally end(n)
  }

  private def begin(): Long = {
    val n = changes.getPlain
    changes.setOpaque(n + 1)
    VarHandle.storeStoreFence()
    n
  }

  private def end(n: Long): Unit = changes.setRelease(n + 2)

  /** Runs `read` on the readers' side of the sequence lock: it sees no change in the middle. It may run several times
    * and meet anything, but nothing that it met then is returned or thrown.
    */
  @tailrec private def beside[A](read: => A): A = {
    val before = changes.getAcquire
    val result =
      if (before % 2 != 0) None
      else
        try Some(read)
        catch { case _: RuntimeException if !isUnchanged(before) => None }
    result match {
      case Some(found) if isUnchanged(before) => found
      case _ =>
        Thread.onSpinWait()
        beside(read)
    }
  }

  private def isUnchanged(since: Long): Boolean = {
    VarHandle.loadLoadFence()
    changes.getOpaque == since
  }

  /** Returns a base value with staged operands appended. */
  def merged(base: Option[Array[Byte]], operands: Array[Byte]): Array[Byte] =
    TransactionBuffer.merged(base, operands, mergeDelimiter)

  private def write(entry: Long, op: Byte, value: Array[Byte]): Unit = {
    openScans.keep(entry, isAppended = false)
    val isNew = !table.hasWrite(entry)
    // Where there is no memory for one of the two, neither is done.
    if (isNew) index.reserve()
    seq += 1
    val before = table.valueLength(entry)
    table.write(entry, op, seq, value)
    valueBytes += value.length - before
    if (isNew) {
      index += entry
      writtenKeyBytes += table.keyLength(entry)
    }
    openScans.tidy()
  }

  /** Moves the spilled write of the key back into memory. */
  private def recall(entry: Long, key: Array[Byte]): Unit =
    spilled_.flatMap(_.recall(key)).foreach { found =>
      if (table.inBase(entry) == Unknown) table.setInBase(entry, found.inBase)
      write(entry, found.op, found.value)
    }

  private def find(key: Array[Byte]): Long = table.find(KeyHash.of(key), key)

  /** Returns how many entries a call for `key` looks at. */
  private[statemark] def compares(key: Array[Byte]): Int = table.looks(KeyHash.of(key), key)

  private def entryFor(key: Array[Byte]): Long = {
    val hash = KeyHash.of(key)
    val found = table.find(hash, key)
    if (found != NoEntry) found
    else {
      val added = table.add(hash, key)
      keyBytes += key.length
      added
    }
  }
}

object TransactionBuffer {

  private[statemark] def merged(
      base: Option[Array[Byte]],
      operands: Array[Byte],
      delimiter: Array[Byte]
  ): Array[Byte] = base.fold(operands)(Bytes.concat(_, delimiter, operands))

  // Bytes of an entry beside its key and value.
  private val EntryOverhead = StagedTable.HeaderBytes + StagedTable.SlotBytes.toLong
  // A tag and two lengths.
  private val BatchRecordOverhead = 8L

  /** Beyond this, reads are not remembered: a batch that reads far more than it writes would
    * otherwise hold all keys that it read.
    */
  private val MaxRememberedBytes = 32L * 1024 * 1024
}
