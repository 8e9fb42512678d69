package statemark

import java.io.File
import org.rocksdb.{HistogramType, TickerType}
import scala.annotation.tailrec
import scala.util.control.NonFatal
import statemark.changelog.{ChangelogCommit, ChangelogWriter}
import statemark.common._
import statemark.engine._
import statemark.transaction._

/** One store: a base at a confirmed version, at most one prepared version on top of it, and at most
  * one open transaction (I1).
  *
  * {{{
  *   newTransaction ─► stage ─► commit ─► prepared v+1 ─► confirm ─► base v+1
  *                        └─► rollback         └─► dropPrepared ─► base v, untouched
  * }}}
  * A committed version stays prepared because Spark may ask for the version before it again: a task
  * or a batch that is rerun. Dropping it costs nothing and reads nothing (I4).
  *
  * ''Thread:'' the owner of the open transaction commits, confirms and drops; `snapshot` and
  * `markSnapshot` may come from another thread beside it. The lock is this object's monitor; who holds it
  * replaces what there is to read. Views are made and read from any thread without it:
  * they see no version that is half applied, and end with the store.
  *
  * ''Source:'' KIP-892, `StateStore` (docs/kip-892.md); prepared versions are Spark's addition.
  */
final class TransactionalStore private[statemark] (
    engine: RocksEngine,
    partition: Int,
    initial: StoreState,
    usesFamilies: Boolean,
    options: EngineOptions,
    observer: CommitObserver,
    isOnDisk: Boolean,
    retention: ReadRetention,
    limit: Option[UncommittedLimit]
) extends AutoCloseable {
  private val mergeDelimiter = options.mergeDelimiter.getBytes
  private val staging: Option[Staging] = limit.map { l =>
    val member = l.memory.join(l.bytes, () => spillPrepared())
    new Staging(ReopenedStore.stagingOf(engine.directory), options, member, observer)
  }
  @volatile private var versions = ReadableVersions(initial, engine.view())
  private val rows =
    new RowCache(engine, mergeDelimiter, RowPages.shared, isEmpty = initial.version == 0)

  /** The reads that go on beside the owner. */
  val readers: Readers = new Readers(retention)
  private val unflushedKeys = new KeySketch
  private var writesBefore = 0L
  private var expected = Transaction.Expected()
  @volatile private var isClosed = false
  // From the first piece of a version in the base to the last, and for ever where an error comes between.
  @volatile private var isHalfApplied = false
  @volatile private var flushed_ = if (isOnDisk) initial.version else TransactionalStore.NotOnDisk

  /** Returns the state of the version that the base holds. */
  def base: StoreState = versions.base

  /** Returns the committed version that waits to be confirmed. */
  def prepared: Option[PreparedTransaction] = versions.prepared

  /** Returns the bytes that the store has counted against the limit; None where it counts none. ''Thread:'' any. */
  def uncommitted: Option[UncommittedMemory#Member] = staging.map(_.memory)

  /** Figures of RocksDB's; 0 once the store is closed. ''Thread:'' any. */
  def property(name: String): Long = engine.property(name)
  def count(ticker: TickerType): Long = engine.count(ticker)
  def sum(histogram: HistogramType): Long = engine.sum(histogram)
  def resetStatistics(): Unit = engine.resetStatistics()
  def pinnedBytes: Long = engine.pinnedBytes

  /** Version that is on disk, or on its way there; a crash loses what came after it. Far below any
    * version where nothing is.
    */
  def flushed: Long = flushed_

  /** Returns bytes of the base that are in memory only. */
  def unflushedBytes: Long = engine.property("rocksdb.cur-size-active-mem-table")

  /** Writes of the base that are in memory only, those included that later ones have replaced. */
  def unflushedWrites: Long = engine.property("rocksdb.num-entries-active-mem-table")

  /** About how many rows those writes are of. Known where rows are not counted; else the counts tell more. */
  def unflushedRows: Long = synchronized(unflushedKeys.estimate)

  /** Tells whether a read met damaged files, or an error ended the write of a version to the base. If so, close the
    * store, delete its directory, load it again.
    */
  def isDamaged: Boolean = engine.isDamaged || isHalfApplied

  /** Begins a transaction on the base.
    * @throws IllegalCallException while another is open or a version is prepared: confirm or drop it
    * @throws StoreUnusableException where an error ended the write of a version
    */
  def newTransaction(openChangelog: () => ChangelogWriter): Transaction = synchronized {
    checkUsable()
    require(versions.open.forall(!_.isOpen), s"a transaction on version ${base.version} is open")
    require(prepared.isEmpty, s"version ${prepared.map(_.state.version)} is prepared")
    engine.countNothing()
    val transaction =
      new Transaction(rows, base, mergeDelimiter, openChangelog, staging, expected)
    versions = versions.copy(open = Some(transaction))
    transaction
  }

  /** Tells whether the batch that makes version `version + 1` has begun here, or is through. */
  def hasBegun(version: Long): Boolean = {
    val now = versions
    now.base.version > version || now.prepared.exists(_.state.version > version) ||
    now.base.version == version && now.open.exists(_.isOpen)
  }

  /** Rolls back a transaction that its owner left open; the new owner calls it before it begins. Waits for a call of
    * that owner's, without the lock, which such a call may want.
    */
  def rollbackOpen(): Unit = versions.open.foreach(_.rollback())

  /** Returns a view for readers at `level`: of the base, which is the newest version that is known to count; or of
    * the staged rows over it as well, prepared or not.
    *
    * @throws ViewClosedException where the store is closed
    */
  def readOnly(level: IsolationLevel): ReadView = view(now => Some(now.newest(level))).get

  /** Returns the version `at`: the base, the prepared version, or one that was left a short time ago; None where it is
    * none of them.
    *
    * @throws ViewClosedException where the store is closed
    */
  def readAt(at: VersionId): Option[ReadView] = view(_.find(at))

  private def view(find: ReadableVersions => Option[ReadableRows]): Option[ReadView] = {
    readers.came()
    retained(find)
  }

  @tailrec private def retained(find: ReadableVersions => Option[ReadableRows]): Option[ReadView] =
    find(versions) match {
      case None => None
      case Some(found) if found.retain() =>
        Some(new ReadView(found.base, found.staged, found.state, found.andMore, mergeDelimiter))
      // No reader finds the view any more since it was found: there are newer versions.
      case Some(_) => retained(find)
    }

  /** Makes the open transaction the prepared version `base + 1`: its changelog becomes durable
    * first (I3). When this throws, the transaction is still open and can be rolled back.
    *
    * ''Source:'' KIP-892, `StateStore.commit(changelogOffsets)`
    *
    * @param changelogOffsets what the new version holds of itself, written with the rows
    * @param uploadSnapshot uploads a snapshot of the new version where the commit needs one
    */
  def commit(
      transaction: Transaction,
      changelogOffsets: ChangelogOffsets = ChangelogOffsets(),
      uploadSnapshot: Option[PreparedTransaction => Unit] = None
  ): PreparedTransaction = transaction.inside {
    require(versions.open.contains(transaction), "the transaction is of another store")
    val at = VersionId(base.version + 1, changelogOffsets.checkpointId)
    val serialized = transaction.serialize(at, usesFamilies, changelogOffsets.position)
    val next =
      try {
        observer.reached(CommitPhase.BatchSerialized)
        val durable = serialized.after(transaction.changelog.commit())
        observer.reached(CommitPhase.ChangelogDurable)
        uploadSnapshot.foreach { upload =>
          upload(durable)
          observer.reached(CommitPhase.SnapshotUploaded)
        }
        durable
      } catch {
        case e: Throwable =>
          serialized.batch.delete()
          throw e
      }
    synchronized {
      val newest = if (uploadSnapshot.isDefined) next.state.at else base.lastSnapshot
      val prepared = next.copy(state = withSnapshot(next.state, newest))
      versions = versions.copy(prepared = Some(prepared), open = None)
      transaction.end()
      expected = transaction.next
      holdsPrepared(prepared.bytes)
    }
    staging.foreach(_.memory.checkPrepared())
    observer.reached(CommitPhase.VersionPrepared)
    next
  }

  /** Moves the prepared version into the base, rows, offsets and fingerprint together (I2). Does nothing
    * where none is prepared. A version on disk is durable when this returns.
    * @throws StoreUnusableException where RocksDB fails: close the store and load it again
    * @throws DiskUnwritableException where the local disk takes no more: close the store, whose base may have a part of
    *   the version in memory, and open it again with room
    */
  def confirm(): Unit =
    if (prepared.isDefined || isClosed) {
      observer.reached(CommitPhase.ConfirmStarted)
      synchronized {
        checkUsable()
        prepared.foreach(apply)
      }
      observer.reached(CommitPhase.ConfirmApplied)
    }

  /** Drops the prepared version: the base stands at the version before it, as if that version had
    * never been committed. True where there was one. Reads nothing (I4).
    */
  def dropPrepared(): Boolean = synchronized {
    val dropped = prepared
    versions = versions.copy(prepared = None)
    dropped.foreach(delete)
    dropped.isDefined
  }

  private def delete(version: PreparedTransaction): Unit = {
    holdsPrepared(0)
    version.batch.delete()
  }

  private def holdsPrepared(bytes: Long): Unit = staging.foreach(_.memory.holdsPrepared(bytes))

  /** Moves the prepared version to disk, where it is in memory.
    *
    * ''Thread:'' any that does not hold the lock of another store.
    */
  private def spillPrepared(): Unit = synchronized {
    for (s <- staging; p <- prepared if !isClosed) p.batch match {
      case heap: HeapBatch if heap.bytes > 0 =>
        val file = SpilledBatch.spill(heap, engine, mergeDelimiter, s, p.state.version)
        versions = versions.copy(prepared = Some(p.copy(batch = file)))
        heap.delete()
        s.memory.spilled(file.bytes)
        holdsPrepared(file.heapBytes)
        observer.reached(CommitPhase.VersionSpilled)
      case _ => ()
    }
  }

  /** Returns the version up to which the changelog of a partition is in the base, and so may be read from; None for
    * another partition than the store's. ''Source:'' KIP-892, `StateStore.committedOffset`.
    */
  def committedOffset(partition: Int): Option[Long] =
    Option.when(partition == this.partition)(base.version)

  /** Tells that the offsets lie in the store, written with the rows (I2). ''Source:'' KIP-892,
    * `StateStore.managesOffsets`.
    */
  def managesOffsets: Boolean = true

  /** Returns the source offsets that a view at `level` includes; None where they are not known. */
  def position(level: IsolationLevel): Option[Position] = {
    val view = readOnly(level)
    try view.position
    finally view.close()
  }

  /** Returns bytes of writes that are staged since the last commit, keys and values: 0 where there are none.
    * ''Source:'' KIP-892, `StateStore.approximateNumUncommittedBytes`.
    */
  def approximateNumUncommittedBytes: Long =
    versions.open.filter(_.isOpen).fold(0L)(_.approximateNumUncommittedBytes)

  /** Records the source offsets that the base includes, where it was loaded from files that do not say them. */
  def recordPosition(position: Position): Unit = synchronized {
    checkUsable()
    versions = versions.copy(base = base.copy(position = Some(position)))
    engine.note(Seq(
      OffsetsColumnFamily.PositionKey -> OffsetsColumnFamily.encodePosition(Some(position))
    ))
  }

  /** Replays the changelog of version `base + 1` into the base: `writes` stages it, and returns the fingerprint of what
    * it has read.
    */
  def replay(checkpointId: Option[String])(writes: Transaction => Option[Fingerprint]): Unit = {
    val transaction = newTransaction(() => ChangelogWriter.None)
    try {
      val fingerprint = writes(transaction)
      val at = VersionId(base.version + 1, checkpointId)
      val next = transaction.serialize(at, usesFamilies, position = None)
      try synchronized(apply(next.after(ChangelogCommit(fingerprint, 0))))
      finally next.batch.delete()
    } finally transaction.rollback()
  }

  private def apply(version: PreparedTransaction): Unit = {
    checkUsable()
    val records = OffsetsColumnFamily.records(version.state, Some(base))
    val redo = version.file.map(batch => Redo(batch.file.getName, records))
    isHalfApplied = true
    try {
      engine.apply(
        version.batch,
        records,
        Intent(version.state.version, redo),
        () => observer.reached(CommitPhase.PartApplied)
      )
      // From here on no crash needs the file.
      redo.foreach(_ => flushNow(version.state))
    } catch {
      case e: DiskUnwritableException => throw e
      case NonFatal(e) => throw unusable(version.state.version, e.getMessage, Some(e))
    }
    rows.written(version.batch)
    holdsPrepared(0)
    if (!version.state.counts.isTracked) sketch(version.batch)
    val (keeps, pinned) = readers.kept()
    val (next, useless) = versions.advanced(version.state, engine.view(), keeps, pinned)
    versions = next
    isHalfApplied = false
    version.batch.delete()
    useless.foreach(_.close())
  }

  /** Adds keys to those that are in memory only; these are all where a flush has begun another memtable meanwhile. */
  private def sketch(batch: SerializedBatch): Unit = {
    val writes = unflushedWrites
    batch match {
      case heap: HeapBatch =>
        if (writes < writesBefore + heap.records) unflushedKeys.clear()
        heap.foreachKey(unflushedKeys.add)
      case _: FileBatch => unflushedKeys.clear() // it is flushed with its confirm
    }
    writesBefore = writes
  }

  /** Writes an image of a version to `target` in which form Spark's own provider opens it: a copy
    * of the base made of hard links, with the prepared version applied where `version` is that one.
    * Names of SST files that were born in the copy mean nothing outside it; the result names those
    * that are hard links of the base's own files.
    *
    * @param target a directory that does not exist; the caller's to delete
    * @return what the image holds, and its hard-linked SST files; None where `version` is neither
    *   base nor prepared any more, or the store is closed or damaged
    */
  def snapshot(version: VersionId, target: File): Option[(StoreState, Set[String])] =
    imageOf(version, target).map { case (batch, state) =>
      try (state, exported(target, batch))
      finally batch.foreach(_.release())
    }

  /** Writes a snapshot like `snapshot`, of a version that is being committed. */
  def snapshot(next: PreparedTransaction, target: File): (StoreState, Set[String]) = {
    synchronized(copied(target))
    (next.state, exported(target, Some(next.batch)))
  }

  /** Copies the base, and returns the version to apply to the copy, which is retained: the owner may be done with it
    * before.
    */
  private def imageOf(version: VersionId, target: File) = synchronized {
    val image = prepared.filter(_.state.at == version).map(p => (Some(p.batch), p.state))
      .orElse(Option.when(base.at == version)((None, base)))
    val there = image.filter(_ => isUsable)
    there.foreach { case (batch, _) =>
      copied(target)
      batch.foreach(_.retain())
    }
    there
  }

  /** Makes hard links of the base, which is flushed for them. */
  private def copied(target: File): Unit = {
    flushNow(base)
    engine.checkpoint(target)
  }

  /** Brings all that the engine has to its files.
    * @param state the state that it has
    */
  private def flushNow(state: StoreState): Unit = {
    engine.flush()
    flushed_ = state.version
  }

  private def exported(target: File, batch: Option[SerializedBatch]): Set[String] = {
    val linked = target.list.filter(_.endsWith(".sst")).toSet
    RocksEngine.exportFrom(target, options, batch)
    linked & target.list.toSet
  }

  /** Remembers that a snapshot of `at` is in the checkpoint location, and forgets the lineage before
    * it; a later process that uses the base does so too. ''Source:'' Spark 4.2 `RocksDB.uploadSnapshot`.
    */
  def markSnapshot(at: VersionId): Unit = synchronized {
    val before = base
    versions = versions.copy(
      base = withSnapshot(base, at),
      prepared = prepared.map(p => p.copy(state = withSnapshot(p.state, at)))
    )
    if (!isClosed && base != before)
      engine.note(Seq(OffsetsColumnFamily.StateKey -> OffsetsColumnFamily.encodeState(base)))
  }

  private def withSnapshot(state: StoreState, at: VersionId): StoreState =
    if (at.version <= state.lastSnapshot.version || at.version > state.version) state
    else state.copy(lastSnapshot = at, lineage = state.lineage.filter(_.version >= at.version))

  /** Makes the base durable, so that a later process may use it.
    *
    * ''Thread:'' any, beside the owner.
    *
    * @param waits whether to return when the files are there
    */
  def flush(waits: Boolean = true): Unit = synchronized {
    if (isUsable) {
      observer.reached(CommitPhase.FlushStarted)
      engine.flush(waits)
      observer.reached(CommitPhase.FlushFrozen)
      flushed_ = base.version
    }
  }

  /** Remembers which SST files of the base lie in the checkpoint location, for a later process. */
  def noteUploads(uploads: Seq[UploadedSst]): Unit = synchronized {
    if (!isClosed)
      engine.note(Seq(OffsetsColumnFamily.UploadsKey -> OffsetsColumnFamily.encodeUploads(uploads)))
  }

  /** Returns a durable copy of the base in `target`, made of hard links, that another store can be opened on; false
    * where this one is closed or damaged.
    *
    * ''Thread:'' any, beside the owner.
    */
  def copyTo(target: File): Boolean = synchronized {
    if (isUsable) copied(target)
    isUsable
  }

  /** Reads all files of the base and checks their checksums.
    * @throws StoreUnusableException where one is wrong
    */
  def verify(): Unit = engine.verify()

  /** Compacts the rows of the base. Does nothing once the store is closed. */
  def compact(): Unit = synchronized(if (!isClosed) engine.compact())

  /** Rolls back what is open. Idempotent; waits for a snapshot that is being taken, and for the call that another
    * thread is in: RocksDB's memory is freed when no thread is in it.
    */
  override def close(): Unit = {
    synchronized { isClosed = true } // no transaction begins from here on
    try rollbackOpen()
    finally
      synchronized {
        try dropPrepared(): Unit
        finally {
          rows.close()
          staging.foreach(_.memory.close())
          engine.close()
        }
      }
  }

  private def unusable(version: Long, why: String, cause: Option[Throwable]) =
    new StoreUnusableException(
      s"RocksDB cannot take version $version: $why. The local copy is given up; it is loaded again from the " +
        "checkpoint.",
      cause
    )

  private def isUsable = !isClosed && !isHalfApplied

  private def checkUsable(): Unit = {
    if (isClosed)
      throw new IllegalCallException(
        s"The store in ${engine.directory} is closed at version ${base.version}; open it again to write."
      )
    if (isHalfApplied) throw unusable(base.version + 1, "an error has ended its write", None)
  }

  private def require(condition: Boolean, problem: => String): Unit =
    if (!condition) {
      throw new IllegalCallException(
        s"A store has one open transaction and one prepared version at most, but $problem."
      )
    }
}

private object TransactionalStore {
  private val NotOnDisk = Int.MinValue.toLong
}
