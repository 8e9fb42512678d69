package statemark.staging

import java.util.Arrays
import java.lang.invoke.VarHandle
import java.util.concurrent.ConcurrentSkipListMap
import java.util.concurrent.atomic.AtomicLong
import scala.annotation.tailrec
import scala.collection.mutable
import scala.jdk.CollectionConverters._
import statemark.common.{Bytes, KeyHash}

/** The staged writes of one transaction.
  *
  * A hash table serves point reads and writes. The first scan builds an ordered index beside it, to
  * which every later scan adds the keys that are new since: so a transaction that never scans pays
  * for no order, and one that scans between writes pays the logarithm of what is staged, never its
  * size (ADR 1). At commit the index, or one sort, gives the writes in key order.
  *
  * Rules of folding: a put or delete replaces what stood; a merge appends to a staged value, starts
  * a value after a staged delete or under a range tombstone, and else collects operands for the
  * base; a range tombstone turns staged writes inside it into deletes, later ones stand above it.
  *
  * ''Thread:'' the owner of the transaction. Ownership may pass between threads (PySpark's
  * transformWithState does that) where the passing orders memory. `lookupBeside` and `copyBeside` from any
  * thread while the owner goes on, by a sequence lock: it costs the owner two stores for each write and no
  * fence, and readers try again where they met a write.
  */
final class TransactionBuffer(mergeDelimiter: Array[Byte]) {
  import StagedEntry._
  import TransactionBuffer._

  // Slots and chains end with null, inside this class only: they are the hot path of every write.
  private var slots = new Array[StagedEntry](MinSlots)
  private var entries = 0
  private var index: Option[ConcurrentSkipListMap[Array[Byte], StagedEntry]] = None
  // New keys since the last scan: no open scan may see them, so they enter the index with the next.
  private val unindexed = mutable.ArrayBuffer.empty[StagedEntry]
  private var tombstones_ = RangeTombstones.none
  private var seq = 0L
  // Scans that need the writes in memory as they were when the scan was opened.
  private val openScans = new OpenScans
  // Below what is in memory.
  private var spilled_ = Option.empty[SpilledWrites]
  private var bytes_ = 0L
  private var rememberedBytes = 0L
  private var writes = 0

  // Odd while the owner changes something.
  private val changes = new AtomicLong

  /** Heap bytes held, keys, values and bookkeeping, and what is kept for open scans. */
  def bytes: Long = bytes_ + openScans.bytes

  /** About what a batch of all that is in memory takes. */
  private[statemark] def expectedBatchBytes: Long =
    bytes_ - entries * (EntryOverhead - BatchRecordOverhead)

  /** Returns the writes that memory had no room for. */
  private[statemark] def spilled: Option[SpilledWrites] = spilled_

  def tombstones: RangeTombstones = tombstones_

  def isEmpty: Boolean = writes == 0 && tombstones_.isEmpty && spilled_.isEmpty

  def lookup(key: Array[Byte]): StagedLookup = {
    val entry = find(key)
    if (entry != null && entry.hasWrite) resultOf(entry.op, entry.value, entry.length)
    else
      spilled_.flatMap(_.lookup(key)).getOrElse(
        if (entry != null && entry.inBase == Absent) StagedLookup.KnownAbsent
        else if (tombstones_.covers(key)) StagedLookup.Deleted
        else StagedLookup.NotStaged
      )
  }

  /** `key` and `value` are the buffer's from now on: the caller does not change them. */
  def put(key: Array[Byte], value: Array[Byte]): Unit =
    changing(write(entryFor(key), Put, value, value.length))

  def remove(key: Array[Byte]): Unit = changing(write(entryFor(key), Delete, Bytes.empty, 0))

  def merge(key: Array[Byte], operand: Array[Byte]): Unit = changing {
    val entry = entryFor(key)
    if (!entry.hasWrite) recall(entry)
    entry.op match {
      case Put | Merge => append(entry, operand)
      case Delete => write(entry, Put, operand, operand.length)
      case _ if tombstones_.covers(key) => write(entry, Put, operand, operand.length)
      case _ => write(entry, Merge, operand, operand.length)
    }
  }

  /** Deletes `[begin, end)`, staged and base. */
  def deleteRange(begin: Array[Byte], end: Array[Byte]): Unit =
    if (Bytes.order.lt(begin, end)) {
      changing {
        orderedIndex.subMap(begin, true, end, false).values.forEach { entry =>
          if (entry.hasWrite) write(entry, Delete, Bytes.empty, 0)
        }
        bytes_ -= tombstones_.bytes
        tombstones_ = tombstones_.added(begin, end)
        bytes_ += tombstones_.bytes
      }
      // After the tombstone: a reader that misses what goes here finds that.
      spilled_.foreach(_.deleteRange(begin, end))
    }

  /** Keeps what a read found in the base, so that counting rows at commit need not ask again. */
  def rememberBase(key: Array[Byte], exists: Boolean): Unit =
    if (rememberedBytes < MaxRememberedBytes) changing {
      val before = bytes_
      val entry = entryFor(key)
      if (entry.inBase == Unknown) entry.inBase = if (exists) Present else Absent
      rememberedBytes += bytes_ - before
    }

  /** Opens a scan of the writes staged in `[begin, end)` now, in key order; later writes do not show (I7). */
  def scan(begin: Option[Array[Byte]], end: Option[Array[Byte]]): StagedScan = {
    val all = orderedIndex
    val part = (begin, end) match {
      case (Some(b), Some(e)) =>
        if (Bytes.order.lt(b, e)) all.subMap(b, true, e, false) else all.subMap(b, true, b, false)
      case (Some(b), None) => all.tailMap(b, true)
      case (None, Some(e)) => all.headMap(e, false)
      case (None, None) => all
    }
    val at = seq
    val memory = new MemoryLayer(
      part.values.iterator.asScala.flatMap(entry => entry.at(at).map((entry.key, _))),
      w => resultOf(w.op, w.value, w.length)
    )
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
    if (writes > 0) {
      val target = spilled_.getOrElse(make())
      changing { spilled_ = Some(target) }
      val moments = openScans.moments
      val parts = writesByMoment(moments.iterator.map(_._1).toArray)
      for (((_, scans), part) <- moments.zip(parts)) {
        target.add(part)
        scans.foreach { scan =>
          scan.moveTo(target)
          openScans.remove(scan)
        }
      }
      target.add(parts.last)
      target.flush()
      openScans.clear()
    }
    // Reads that are remembered are forgotten as well.
    changing {
      slots = new Array[StagedEntry](MinSlots)
      entries = 0
      writes = 0
      index = None
      unindexed.clear()
      bytes_ = tombstones_.bytes
      rememberedBytes = 0
    }
  }

  /** Returns the writes to spill before each of `moments`, and after the last: of each key the write that stands
    * then, where it is another one than before.
    */
  private def writesByMoment(moments: Array[Long]): Vector[Iterable[(StagedEntry, OlderWrite)]] = {
    val parts =
      Vector.fill(moments.length + 1)(mutable.ArrayBuffer.empty[(StagedEntry, OlderWrite)])
    sorted.foreach { entry =>
      var last = parts.length
      (Iterator(entry.newest) ++ entry.olderWrites).foreach { write =>
        val found = Arrays.binarySearch(moments, write.seq)
        val part = if (found < 0) -found - 1 else found
        if (part < last) parts(part) += ((entry, write))
        last = part
      }
    }
    parts
  }

  /** Deletes the spilled writes, when the owner is done. */
  private[statemark] def close(): Unit = spilled_.foreach(_.close())

  /** Returns all entries with a write, in key order: from the index where it lacks few of them. */
  private[statemark] def sorted: Array[StagedEntry] =
    if (index.isDefined && unindexed.length <= writes / 8)
      orderedIndex.values.iterator.asScala.toArray
    else {
      val result = written
      EntrySort.sort(result)
      result
    }

  /** Looks a key up like [[lookup]], from another thread. */
  private[statemark] def lookupBeside(key: Array[Byte]): StagedLookup =
    beside {
      val entry = find(key)
      if (entry != null && entry.hasWrite) Left(resultOf(entry.op, entry.value, entry.length))
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
    def isWanted(key: Array[Byte]) =
      begin.forall(Bytes.order.lteq(_, key)) && end.forall(Bytes.order.lt(key, _))
    @tailrec def copied(): Array[(Array[Byte], StagedLookup)] = {
      val table = beside(slots)
      val result = mutable.ArrayBuffer.empty[(Array[Byte], StagedLookup)]
      var i = 0
      var isSame = true
      while (isSame && i < table.length) {
        val (found, current) = beside((writesOf(table(i)), slots))
        isSame = current eq table
        found.foreach { case write @ (key, _) => if (isWanted(key)) result += write }
        i += 1
      }
      // It has grown, and entries have moved.
      if (isSame) result.toArray else copied()
    }
    val memory = copied().sortBy(_._1)(Bytes.order)
    // In this order: what memory has lost is spilled, what was spilled no more lies under a range.
    val spilled = beside(spilled_).map(_.scanBeside(begin, end))
    new LayeredCursor(
      new IteratorLayer(memory.iterator) +: spilled.toVector,
      beside(tombstones_)
    )
  }

  private def writesOf(slot: StagedEntry): List[(Array[Byte], StagedLookup)] = {
    var found = List.empty[(Array[Byte], StagedLookup)]
    var at = slot
    while (at != null) {
      if (at.hasWrite) found = (at.key, resultOf(at.op, at.value, at.length)) :: found
      at = at.nextInSlot
    }
    found
  }

  /** Runs a change on the owner's side of the sequence lock. */
  private def changing[A](change: => A): A = {
    val n = changes.getPlain
    changes.setOpaque(n + 1)
    VarHandle.storeStoreFence()
    try change
    finally changes.setRelease(n + 2)
  }

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

  private[statemark] def resultOf(op: Byte, value: Array[Byte], length: Int): StagedLookup =
    op match {
      case Put => StagedLookup.Value(exact(value, length))
      case Delete => StagedLookup.Deleted
      case Merge => StagedLookup.Operands(exact(value, length))
      case _ => StagedLookup.NotStaged
    }

  /** Returns a base value with staged operands appended. */
  def merged(base: Option[Array[Byte]], operands: Array[Byte]): Array[Byte] =
    TransactionBuffer.merged(base, operands, mergeDelimiter)

  private def write(entry: StagedEntry, op: Byte, value: Array[Byte], length: Int): Unit = {
    openScans.keep(entry, value)
    if (!entry.hasWrite) {
      writes += 1
      if (index.isDefined) unindexed += entry
    }
    bytes_ += value.length - entry.value.length
    seq += 1
    entry.seq = seq
    entry.op = op
    entry.value = value
    entry.length = length
    openScans.tidy()
  }

  /** Moves the spilled write of the key back into memory. */
  private def recall(entry: StagedEntry): Unit =
    spilled_.flatMap(_.recall(entry.key)).foreach { found =>
      if (entry.inBase == Unknown) entry.inBase = found.inBase
      write(entry, found.op, found.value, found.value.length)
    }

  private def append(entry: StagedEntry, operand: Array[Byte]): Unit = {
    val needed = entry.length + mergeDelimiter.length + operand.length
    val room =
      if (entry.value.length >= needed && ownsTail(entry)) entry.value
      else Arrays.copyOf(entry.value, math.max(needed, entry.length * 2))
    System.arraycopy(mergeDelimiter, 0, room, entry.length, mergeDelimiter.length)
    System.arraycopy(operand, 0, room, entry.length + mergeDelimiter.length, operand.length)
    write(entry, entry.op, room, needed)
  }

  /** Tells whether the bytes after the entry's value are free: arrays that callers handed over end with
    * their value, so a longer array is one that `append` made for this entry.
    */
  private def ownsTail(entry: StagedEntry): Boolean = entry.value.length > entry.length

  /** Returns every entry with a write, in key order. */
  private def orderedIndex: ConcurrentSkipListMap[Array[Byte], StagedEntry] = {
    val ordered = index.getOrElse {
      val built = new ConcurrentSkipListMap[Array[Byte], StagedEntry](Bytes.order)
      index = Some(built)
      unindexed ++= written
      built
    }
    unindexed.foreach(entry => ordered.put(entry.key, entry))
    bytes_ += unindexed.length * IndexOverhead
    unindexed.clear()
    ordered
  }

  /** Returns all entries with a write, in no order. */
  private def written: Array[StagedEntry] = {
    val result = new Array[StagedEntry](writes)
    var n = 0
    slots.foreach { head =>
      var at = head
      while (at != null) {
        if (at.hasWrite) {
          result(n) = at
          n += 1
        }
        at = at.nextInSlot
      }
    }
    result
  }

  private def find(key: Array[Byte]): StagedEntry = find(key, KeyHash.of(key))

  private def find(key: Array[Byte], hash: Long): StagedEntry = {
    var at = slots(slotOf(hash, slots))
    while (at != null && !(at.hash == hash && Arrays.equals(at.key, key))) at = at.nextInSlot
    at
  }

  /** Returns how many entries a call for `key` compares it with. */
  private[statemark] def compares(key: Array[Byte]): Int = {
    val hash = KeyHash.of(key)
    val found = find(key, hash)
    val chain =
      Iterator.iterate(slots(slotOf(hash, slots)))(_.nextInSlot).takeWhile(_ != null)
    chain.takeWhile(_ ne found).size + (if (found == null) 0 else 1)
  }

  private def entryFor(key: Array[Byte]): StagedEntry = {
    val hash = KeyHash.of(key)
    val found = find(key, hash)
    if (found != null) found
    else {
      if (entries >= slots.length - (slots.length >> 2)) grow()
      val entry = new StagedEntry(key, hash)
      link(slots, entry)
      entries += 1
      bytes_ += key.length + EntryOverhead
      entry
    }
  }

  private def link(into: Array[StagedEntry], entry: StagedEntry): Unit = {
    val slot = slotOf(entry.hash, into)
    entry.nextInSlot = into(slot)
    into(slot) = entry
  }

  private def grow(): Unit = {
    val larger = new Array[StagedEntry](slots.length * 2)
    slots.foreach { head =>
      var at = head
      while (at != null) {
        val next = at.nextInSlot
        link(larger, at)
        at = next
      }
    }
    slots = larger
  }

  private def exact(value: Array[Byte], length: Int): Array[Byte] =
    if (value.length == length) value else Arrays.copyOf(value, length)
}

object TransactionBuffer {

  private[statemark] def merged(
      base: Option[Array[Byte]],
      operands: Array[Byte],
      delimiter: Array[Byte]
  ): Array[Byte] = base.fold(operands)(Bytes.concat(_, delimiter, operands))

  private val MinSlots = 256

  // Heap bytes of an entry with its slot and two array headers; of a skip list node and its tower.
  private val EntryOverhead = 128L
  private val IndexOverhead = 48L
  // A tag and two lengths.
  private val BatchRecordOverhead = 8L

  /** Beyond this, reads are not remembered: a batch that reads far more than it writes would
    * otherwise hold all keys that it read.
    */
  private val MaxRememberedBytes = 32L * 1024 * 1024

  private def slotOf(hash: Long, slots: Array[StagedEntry]): Int = hash.toInt & (slots.length - 1)
}
