package statemark.transaction

import java.util.BitSet
import scala.collection.immutable.ArraySeq
import scala.collection.mutable
import statemark.changelog.ChangelogWriter
import statemark.common.{ArrayPool, Bytes, Gate, IllegalCallException, Position}
import statemark.engine._
import statemark.staging.{
  LongList,
  NothingStaged,
  OpenRows,
  StagedLookup,
  StagedRows,
  StagedTable,
  TransactionBuffer
}

/** All writes of one store between the load of a version and its commit or rollback.
  *
  * Writes are staged; the base store is not touched (I4). Reads see the transaction's own writes over
  * the base. Every call that changes something is appended to the changelog in program order.
  *
  * ''Thread:'' one owner at a time. Any other thread may end it meanwhile, as Spark ends a task whose store a second
  * thread uses: every call passes a gate, so that the end waits for the call that is inside, and no call finds what is
  * ended (ADR 18). A thread that ends it holds no lock of a store.
  *
  * ''Throws:'' [[IllegalCallException]] from every call but `rollback` once the transaction has ended.
  *
  * ''Source:'' KIP-892, docs/kip-892.md.
  *
  * @param base the state of the base when the transaction began
  * @param openChangelog makes the changelog writer; called at the first write or at commit
  * @param expected what it is likely to do; anything else is fine
  */
final class Transaction private[statemark] (
    engine: BaseRows,
    val base: StoreState,
    mergeDelimiter: Array[Byte],
    openChangelog: () => ChangelogWriter,
    staging: Option[Staging] = None,
    expected: Transaction.Expected = Transaction.Expected()
) extends Rows {
  private val gate = new Gate
  private var buffer = new TransactionBuffer(mergeDelimiter, ArrayPool.shared, expected.keys)
  private var stagedAtEnd = 0L
  private var rememberedAtEnd = 0L
  private var next_ = expected
  private var spills_ = 0L
  private var spilledBytes_ = 0L
  // Staged bytes at which memory is asked again.
  private var nextCheck = staging.fold(Long.MaxValue)(_.memory.step)
  private var openedChangelog: Option[ChangelogWriter] = None
  private val scans = mutable.HashSet.empty[ScanCursors]
  private var newestScan: Option[OwnScan] = None
  // Of every scan: to make them anew for each takes time, and the compiler's for what is in them.
  private val closed = (cursors: ScanCursors) => scans.subtractOne(cursors): Unit
  private val openNow = () => isOpen_
  private val merged = (base: Option[Array[Byte]], operands: Array[Byte]) =>
    buffer.merged(base, operands)
  // Readers look at it beside the owner.
  @volatile private var families_ = base.families
  @volatile private var isOpen_ = true

  def isOpen: Boolean = isOpen_

  /** Column families of this transaction; what it created is gone if it rolls back. */
  override def families: ColumnFamilies = families_

  /** Returns bytes of staged writes, in memory and spilled: their keys and values; once it has ended, what they were
    * then. ''Source:'' KIP-892, `approximateNumUncommittedBytes`.
    */
  def approximateNumUncommittedBytes: Long = stagedAtEnd + buffer.stagedBytes

  /** Returns bytes of the keys of reads that are remembered, and that no write followed. */
  def rememberedBytes: Long = rememberedAtEnd + buffer.rememberedBytes

  /** Returns what the next transaction of the store is likely to do, once this one has ended. */
  private[statemark] def next: Transaction.Expected = next_

  /** Returns how often the transaction has spilled; `spilledBytes` returns how many bytes. */
  def spills: Long = spills_
  def spilledBytes: Long = spilledBytes_

  override def get(key: Array[Byte]): Option[Array[Byte]] = {
    val wasInside = enter()
    try
      buffer.lookup(key) match {
        case StagedLookup.Value(bytes) => Some(bytes)
        case StagedLookup.Deleted | StagedLookup.KnownAbsent => None
        case StagedLookup.Operands(bytes) => Some(buffer.merged(engine.get(key), bytes))
        case StagedLookup.NotStaged =>
          val found = engine.get(key)
          val isWorthIt = found.isEmpty || expected.writesFound && !engine.wasKept
          if (base.counts.isTracked && isWorthIt) {
            buffer.rememberBase(key, found.isDefined)
            checkMemory()
          }
          found
      }
    finally gate.leave(wasInside)
  }

  /** Upsert. `key` and `value` are copied. */
  def put(key: Array[Byte], value: Array[Byte]): Unit = {
    val wasInside = enter()
    try {
      buffer.put(key, value)
      rememberScanned(key)
      changelog.put(key, value)
      checkMemory()
    } finally gate.leave(wasInside)
  }

  /** Deletes `key`; a key that is not there is fine. */
  def remove(key: Array[Byte]): Unit = {
    val wasInside = enter()
    try {
      buffer.remove(key)
      rememberScanned(key)
      changelog.delete(key)
      checkMemory()
    } finally gate.leave(wasInside)
  }

  /** Appends `operand` to the row of `key`, or makes it the row. */
  def merge(key: Array[Byte], operand: Array[Byte]): Unit = {
    val wasInside = enter()
    try {
      buffer.merge(key, operand)
      changelog.merge(key, operand)
      checkMemory()
    } finally gate.leave(wasInside)
  }

  /** Deletes every row in `[begin, end)`. */
  def deleteRange(begin: Array[Byte], end: Array[Byte]): Unit = inside {
    buffer.deleteRange(begin, end)
    changelog.deleteRange(begin, end)
    checkMemory()
  }

  /** Deletes every row in `[begin, end)`, each with a delete of its own in the changelog. */
  def removeEach(begin: Array[Byte], end: Array[Byte]): Unit =
    removeAll(range(Some(begin), Some(end)))

  private def removeAll(rows: RowScan): Unit =
    try while (rows.next()) remove(rows.key)
    finally rows.close()

  /** Opens a scan. The end of the transaction closes it, where its reader has not. */
  override def range(begin: Option[Array[Byte]], end: Option[Array[Byte]]): RowScan = {
    val wasInside = enter()
    try
      engine.scan(begin, end) match {
        case found: ShortScans.FoundRows =>
          buffer.scan(begin, end) match {
            case NothingStaged => new FoundScan(found.rows, openNow)
            case writes => opened(new ScanCursors(found, writes, closed))
          }
        case rows => opened(ScanCursors.open(rows, buffer, begin, end)(closed))
      }
    finally gate.leave(wasInside)
  }

  override def unordered(prefix: Array[Byte]): RowScan = {
    val wasInside = enter()
    try
      if (!buffer.hasNewKeysAlone) this.prefix(prefix)
      else {
        val (begin, end) = (Some(prefix), Bytes.prefixEnd(prefix))
        val cursors = ScanCursors.open(engine.scan(begin, end), buffer, begin, end)(closed)
        opened(cursors, new UnorderedScan(cursors, gate))
      }
    finally gate.leave(wasInside)
  }

  private def opened(cursors: ScanCursors): RowScan =
    opened(cursors, new TransactionScan(cursors, merged, gate))

  private def opened(cursors: ScanCursors, scan: OwnScan): RowScan = {
    scans += cursors
    newestScan = Some(scan)
    scan
  }

  /** Id of the column family `name`, created where it is absent. */
  def createColumnFamily(name: String, isInternal: Boolean): Short = inside {
    families_ = families_.created(name, isInternal)
    families_.byName(name).id
  }

  /** Deletes the column family `name` and its rows, each with a delete of its own in the changelog;
    * false where it does not exist.
    */
  def dropColumnFamily(name: String): Boolean = inside {
    val family = families_.byName.get(name)
    family.foreach { f =>
      removeAll(prefix(RocksEngine.familyPrefix(f.id)))
      families_ = families_.removed(name)
    }
    family.isDefined
  }

  /** Drops all that is staged and the changelog. Idempotent; reads nothing (I4). Waits for the call that another
    * thread is in.
    */
  def rollback(): Unit = gate.through {
    val written = openedChangelog
    end()
    written.foreach(_.abort())
  }

  /** Runs `body` in one piece: no other thread ends the transaction meanwhile.
    * @throws IllegalCallException where it has ended
    */
  private[statemark] def inside[A](body: => A): A = {
    val wasInside = enter()
    try body
    finally gate.leave(wasInside)
  }

  /** Enters the gate of a transaction that has not ended. */
  private def enter(): Boolean = {
    val wasInside = gate.enter()
    if (!isOpen_) {
      gate.leave(wasInside)
      throw new IllegalCallException(
        s"The transaction on version ${base.version} has ended; begin a new one to read or write."
      )
    }
    wasInside
  }

  /** Ends the transaction; its writes, counted, sorted and serialized, as the version `at`. */
  private[statemark] def serialize(
      at: VersionId,
      usesFamilies: Boolean,
      position: Option[Position]
  ): PreparedTransaction = inside {
    val counter = new RowCounter(
      base.counts,
      // A family that this transaction dropped is known to the base only.
      if (usesFamilies) Seq(families_, base.families) else Nil
    )
    val batch = buffer.spilled match {
      case Some(spilled) =>
        spill()
        new SpilledBatch(engine, base.counts, mergeDelimiter)
          .write(buffer.bytes, spilled, buffer.tombstones, counter, staging.get, at.version)
      case None => serialized(counter, at.version)
    }
    if (base.counts.isTracked && !base.counts.isZero) countDeleted(counter)
    val counts = if (base.counts.isTracked) counter.result else RowCounts.untracked
    val lineage = if (at.checkpointId.isDefined) base.lineage :+ at else Vector.empty
    PreparedTransaction(
      batch,
      StoreState(at, counts, families_, base.lastSnapshot, lineage, position)
    )
  }

  /** Serializes the staged writes, all of which are in memory: to memory, if there is room for both, else to disk. */
  private def serialized(counter: RowCounter, version: Long): SerializedBatch = {
    val ranges = buffer.tombstones.ranges
    val rowsBefore =
      Option.when(engine.wantsRowsBefore && base.counts.isTracked && ranges.isEmpty)(new BitSet)
    if (base.counts.isTracked) count(counter, rowsBefore)
    staging.filter(_.memory.holdsOpen(2 * buffer.bytes)) match {
      case Some(s) =>
        val file = s.write(version, ranges) { out =>
          write(out) { (key, operands) =>
            out.put(key, s.merged(engine, key, operands, mergeDelimiter, 2 * buffer.bytes))
          }
        }
        spilled(s, file.bytes)
        file
      case None =>
        HeapBatch.of(buffer.expectedBatchBytes, rowsBefore = rowsBefore) { out =>
          ranges.foreach { case (begin, end) => out.deleteRange(begin, end) }
          foreachEntry(buffer.entries.writeTo(out, _))
        }
    }
  }

  private def spilled(to: Staging, bytes: Long): Unit = if (bytes > 0) {
    spills_ += 1
    spilledBytes_ += bytes
    to.memory.spilled(bytes)
    to.observer.reached(CommitPhase.WritesSpilled)
  }

  private def write(out: BatchWriter)(merge: (Array[Byte], Array[Byte]) => Unit): Unit = {
    val table = buffer.entries
    foreachEntry { entry =>
      if (table.op(entry) != StagedTable.Merge) table.writeTo(out, entry)
      else merge(table.key(entry), table.value(entry, table.valueLength(entry)))
    }
  }

  private def foreachEntry(use: Long => Unit): Unit = {
    val entries = buffer.sorted
    var i = 0
    while (i < entries.length) {
      use(entries(i))
      i += 1
    }
  }

  /** Returns the staged rows for readers on other threads; None once the transaction has ended. */
  private[statemark] def stagedRows: Option[StagedRows] = {
    val now = buffer
    Option.when((now ne Transaction.Ended) && now.share())(new OpenRows(now))
  }

  /** Returns the changelog, opened if nothing was written. */
  private[statemark] def changelog: ChangelogWriter = openedChangelog match {
    case Some(writer) => writer
    case None =>
      val writer = openChangelog()
      openedChangelog = Some(writer)
      writer
  }

  /** Marks the transaction as committed, and lets go of what it staged: Spark keeps the task that had it, and so it,
    * until the store has its next one. Idempotent. Waits as `rollback` does.
    */
  private[statemark] def end(): Unit = gate.through {
    if (isOpen_) {
      val keys = buffer.entries.entries
      next_ = Transaction.Expected(keys, expected.writesFound && buffer.unwritten <= keys / 4)
      isOpen_ = false
      stagedAtEnd = approximateNumUncommittedBytes
      rememberedAtEnd = rememberedBytes
      newestScan = None
      scans.toVector.foreach(_.close())
      engine.rest()
      buffer.close()
      buffer = Transaction.Ended
      openedChangelog = None
      staging.foreach(_.memory.holdsOpen(0))
    }
  }

  private def checkMemory(): Unit = if (buffer.bytes >= nextCheck) {
    staging.foreach { s =>
      if (s.memory.holdsOpen(buffer.bytes)) spill()
      s.memory.holdsRows(approximateNumUncommittedBytes, rememberedBytes)
      nextCheck = buffer.bytes + s.memory.step
    }
  }

  private def spill(): Unit = staging.foreach { s =>
    val before = buffer.spilled.fold(0L)(_.bytes)
    buffer.spill(() => s.newScratch())
    s.memory.holdsOpen(buffer.bytes): Unit
    spilled(s, buffer.spilled.fold(0L)(_.bytes) - before)
  }

  /** Adds what staged writes make of the number of rows: what reads remembered, one sorted read of the base for
    * the rest.
    * @param rowsBefore is told of each record of the batch, by its number, whether the base has its key
    */
  private def count(counter: RowCounter, rowsBefore: Option[BitSet]): Unit = {
    if (!base.counts.isZero) resolveExistence()
    val table = buffer.entries
    var number = 0
    foreachEntry { entry =>
      val isInBase = table.inBase(entry) == StagedTable.Present &&
        (buffer.tombstones.isEmpty || !buffer.tombstones.covers(table.key(entry)))
      counter.written(table.key(entry), table.op(entry) != StagedTable.Delete, isInBase)
      if (isInBase) rowsBefore.foreach(_.set(number))
      number += 1
    }
  }

  /** Takes off rows of the base under range tombstones. */
  private def countDeleted(counter: RowCounter): Unit =
    buffer.tombstones.ranges.foreach { case (begin, end) =>
      val deleted = engine.scan(Some(begin), Some(end))
      try
        while (deleted.keyOrEnd().map(counter.add(_, -1)).isDefined) deleted.next()
      finally deleted.close()
    }

  /** Operators evict the row that a scan stands at, and write a row of a group that they have scanned: no read need tell
    * whether the base has it.
    */
  private def rememberScanned(key: Array[Byte]): Unit = if (base.counts.isTracked) {
    val isFound = newestScan match {
      case Some(scan) => scan.hasFound(key)
      case None => false
    }
    (if (isFound) Transaction.Found else engine.scanned(key)) match {
      case Some(isInBase) => buffer.rememberBase(key, isInBase)
      case None => ()
    }
  }

  private def resolveExistence(): Unit = {
    val table = buffer.entries
    val unknown = new LongList(ArrayPool.shared)
    foreachEntry(entry => if (table.inBase(entry) == StagedTable.Unknown) unknown += entry)
    val rows = base.counts.keys + base.counts.internalKeys
    var from = 0
    while (from < unknown.length) {
      val length = math.min(unknown.length - from, Transaction.KeysAtOnce)
      val keys = new Array[Array[Byte]](length)
      for (i <- keys.indices) keys(i) = table.key(unknown(from + i))
      // So many rows lie beside these keys, if they are spread as all keys are.
      val found = engine.exist(ArraySeq.unsafeWrapArray(keys), rows * length / unknown.length)
      for (i <- 0 until length) table.setInBase(
        unknown(from + i),
        if (found(i)) StagedTable.Present else StagedTable.Absent
      )
      from += length
    }
    unknown.clear()
  }
}

private[statemark] object Transaction {

  /** @param keys the number of keys that it writes, or reads and does not find
    * @param writesFound whether it writes most of the keys that it finds, so that it is worth to remember that they are
    *   there. A deduplication does not
    */
  private[statemark] final case class Expected(keys: Int = 0, writesFound: Boolean = true)

  /** The buffer of a transaction that has ended: no write goes there. */
  private val Ended = new TransactionBuffer(Bytes.empty)

  private val Found = Some(true)

  /** The number of keys that the base is asked for in one call. */
  private val KeysAtOnce = 8192
}

/** Adds up row counts, those of internal column families apart. */
private[transaction] final class RowCounter(from: RowCounts, families: Seq[ColumnFamilies]) {
  private val hasInternal = families.exists(_.hasInternal)
  private var keys = from.keys
  private var internalKeys = from.internalKeys

  /** @param isRow whether the write leaves a row
    * @param isInBase whether the base has a row that counts
    */
  def written(key: => Array[Byte], isRow: Boolean, isInBase: Boolean): Unit =
    if (isRow != isInBase) add(key, if (isRow) 1 else -1)

  def add(key: => Array[Byte], n: Int): Unit =
    if (hasInternal && families.exists(_.isInternal(RocksEngine.familyId(key)))) internalKeys += n
    else keys += n

  def result: RowCounts = RowCounts(keys, internalKeys)
}
