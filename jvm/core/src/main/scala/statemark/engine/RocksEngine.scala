package statemark.engine

import java.io.File
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.Files
import java.util.{ArrayList => JArrayList, Arrays => JArrays, Properties}
import org.rocksdb._
import scala.annotation.tailrec
import scala.jdk.CollectionConverters._
import scala.util.Using
import statemark.common._

/** A base store: RocksDB with the default column family, which holds the rows, and the offsets
  * column family, which says what version they are.
  *
  *   - No write-ahead log: rows are durable in the checkpoint location before they come here (I3).
  *   - Both families change in the same write (I2), and every explicit flush names both: with atomic
  *     flush on, a flush of one family still writes that one alone, and a crash then leaves rows
  *     ahead of their offsets.
  *
  * ''Thread:'' reads from any thread; `apply`, `flush` and `checkpoint` from one at a time, beside reads.
  */
final class RocksEngine private (
    val directory: File,
    db: RocksDB,
    rows: ColumnFamilyHandle,
    offsets: ColumnFamilyHandle,
    statistics: Statistics,
    cache: Cache,
    memtableBytes: Long,
    handles: NativeHandles
) extends BaseRows
    with AutoCloseable {

  private val readOptions = handles.add(new ReadOptions())
  private val limitedRead =
    handles.add(new ReadOptions().setValueSizeSoftLimit(ExistenceLookup.ValueBytes))
  private val writeOptions = handles.add(new WriteOptions().setDisableWAL(true))
  private val impatient =
    handles.add(new WriteOptions().setDisableWAL(true).setNoSlowdown(true))
  @volatile private var errorsSeen = 0L
  private var hasFilters = false
  private val gate = new ReadGate(s"The store in $directory")
  @volatile private var isOpen = true
  @volatile private var isDamaged_ = false
  private val existence = new ExistenceLookup(
    keys => reading(db.multiGetAsList(limitedRead, keys)),
    key => reading(db.get(rows, readOptions, key, Bytes.empty))
  )

  private val check = (iterator: RocksIterator) => reading(iterator.status())
  private val iterators = new SpareIterator(db.newIterator(rows, _), check)
  private val lookup = new PointLookup(
    (key, value) => db.keyMayExist(rows, readOptions, key, value),
    key => reading(db.get(rows, readOptions, key))
  )

  /** Tells whether a read met bytes that RocksDB cannot read: the directory cannot be trusted any more. */
  def isDamaged: Boolean = isDamaged_

  /** @throws StoreUnusableException where the files are damaged, as every read does */
  override def get(key: Array[Byte]): Option[Array[Byte]] = lookup.of(key)

  /** Tells which of `keys` are there.
    *
    * Passing over a row costs about a sixth of looking one up, so that keys that are dense among the
    * rows are found by one scan beside them (ADR 4).
    */
  override def exist(keys: IndexedSeq[Array[Byte]], rowCount: Long): Array[Boolean] =
    if (keys.length * RocksEngine.RowsPerLookup < rowCount) existence.of(keys)
    else Using.resource(scan(keys.headOption, None))(ExistenceLookup.byScan(keys, _))

  override def scan(begin: Option[Array[Byte]], end: Option[Array[Byte]]): EngineScan =
    if (end.exists(_.length <= SpareIterator.LongestEnd)) iterators.scan(begin, end.get)
    else scan(begin, end, _ => ())

  override def rest(): Unit = iterators.rest()

  private def scan(
      begin: Option[Array[Byte]],
      end: Option[Array[Byte]],
      configure: ReadOptions => Unit
  ): EngineScan = {
    val options = new ReadOptions()
    configure(options)
    EngineScan.open(db.newIterator(rows, _), options, begin, end)(check)
  }

  /** Has RocksDB count nothing for this thread (ADR 36). */
  def countNothing(): Unit = db.setPerfLevel(PerfLevel.DISABLE)

  /** Returns the rows as they are now, for other threads; the caller closes it. */
  def view(): EngineView = gate.reading {
    val snapshot = db.getSnapshot
    val options = new ReadOptions().setSnapshot(snapshot)
    new EngineView(
      gate.add(new EngineView.Source {
        override def get(key: Array[Byte]): Option[Array[Byte]] =
          reading(Option(db.get(rows, options, key)))
        override def scan(begin: Option[Array[Byte]], end: Option[Array[Byte]]): EngineScan =
          RocksEngine.this.scan(begin, end, _.setSnapshot(snapshot): Unit)
        override def close(): Unit = {
          options.close()
          db.releaseSnapshot(snapshot)
          snapshot.close()
        }
      }),
      gate
    )
  }

  /** Returns the record that the offsets column family holds under `key`. */
  def offsetsRecord(key: Array[Byte]): Option[Array[Byte]] =
    reading(Option(db.get(offsets, readOptions, key)))

  private def reading[A](read: => A): A =
    try read
    catch {
      case e: RocksDBException =>
        isDamaged_ = true
        throw new StoreUnusableException(
          s"RocksDB cannot read $directory: ${e.getMessage}. The local copy is given up; the next " +
            "attempt at the task loads the store again from the checkpoint.",
          Some(e)
        )
    }

  /** Applies a version's writes, the last segment together with `records` for the offsets column family.
    * Where there are several segments, the first one brings `intent` and the last one removes it: a
    * directory that holds one has rows of a version that it does not name (I2).
    *
    * RocksDB copies a write twice before it has it, so writes are small. A memtable that has no room for all of them is
    * frozen first, as RocksDB would freeze it between two of them. What is larger than a memtable is one write.
    *
    * @param onPart is called after each segment but the last
    */
  def apply(
      batch: SerializedBatch,
      records: Seq[(Array[Byte], Array[Byte])],
      intent: => Intent,
      onPart: () => Unit = () => ()
  ): Unit = {
    val held = property("rocksdb.cur-size-active-mem-table")
    if (held > memtableBytes / RocksEngine.LeastFiltered) filterMemtables()
    val isLarge = batch match {
      case heap: HeapBatch =>
        if (held + heap.memtableBytes > memtableBytes && heap.memtableBytes <= memtableBytes)
          flush(waits = false)
        heap.memtableBytes > memtableBytes
      case _: FileBatch => false
    }
    val segments =
      batch.segments(if (isLarge) BatchWriter.DefaultSegmentBytes else HeapBatch.PieceBytes)
    val memtable = new ActiveMemtable
    var isFirst = true
    do {
      val segment = segments.nextOption()
      val write = segment.fold(new WriteBatch())(new WriteBatch(_))
      val isLast = !segments.hasNext
      if (isFirst && !isLast)
        write.put(offsets, OffsetsColumnFamily.IntentKey, OffsetsColumnFamily.encodeIntent(intent))
      if (isLast && !isFirst) write.delete(offsets, OffsetsColumnFamily.IntentKey)
      if (isLast) records.foreach { case (key, value) => write.put(offsets, key, value) }
      this.write(write)
      if (!isFirst || !isLast) memtable.took(segment.fold(0)(BatchWriter.countOf))
      if (!isLast) onPart()
      isFirst = false
    } while (segments.hasNext)
    // A part of the version goes to disk; so does the rest.
    if (memtable.wasReplaced) flush(waits = false)
  }

  /** Gives later memtables a filter, which takes its whole size at once: not where memtables stay small (ADR 30). */
  private def filterMemtables(): Unit = if (!hasFilters) {
    hasFilters = true
    onDisk(db.setOptions(
      rows,
      MutableColumnFamilyOptions.builder()
        .setMemtableWholeKeyFiltering(true)
        .setMemtablePrefixBloomSizeRatio(RocksEngine.FilterShare)
        .build()
    ))
  }

  /** Tells whether RocksDB has begun another memtable between two writes of a version, as it does where what all stores
    * share has no room for this one.
    */
  private final class ActiveMemtable {
    private var entries = 0L
    var wasReplaced = false

    /** Looks at the memtable after `records` writes since the last call. */
    def took(records: Int): Unit = {
      val now = property("rocksdb.num-entries-active-mem-table")
      if (now < entries + records) wasReplaced = true
      entries = now
    }
  }

  /** Records for the offsets column family alone. */
  def note(records: Seq[(Array[Byte], Array[Byte])]): Unit =
    apply(SerializedBatch.empty, records, Intent(0, None))

  /** Waits for memtables that are being written, as RocksDB does; not for those that it cannot write, which on a
    * full disk is for ever.
    */
  private def write(batch: WriteBatch): Unit =
    try onDisk(write(batch, waited = 0))
    finally {
      iterators.written()
      batch.close()
    }

  @tailrec private def write(batch: WriteBatch, waited: Int): Unit = {
    val isStalled =
      try {
        db.write(impatient, batch)
        false
      } catch {
        case e: RocksDBException if RocksEngine.isStall(e) =>
          val most = if (errors > errorsSeen) RocksEngine.WaitsAfterError else RocksEngine.Waits
          if (errors > 0 && waited >= most) throw reasonOf(e)
          true
      }
    if (!isStalled) { if (waited > 0) errorsSeen = errors }
    else if (db.getLongProperty("rocksdb.is-write-stopped") == 0 || waited >= RocksEngine.Waits)
      db.write(writeOptions, batch) // it is slow, and has never failed
    else {
      Interrupts.pause(RocksEngine.WaitNanos)
      write(batch, waited + 1)
    }
  }

  /** Returns why RocksDB cannot write its memtables, of which a stall says nothing. */
  private def reasonOf(stall: RocksDBException): RocksDBException =
    if (directory.getUsableSpace >= db.getLongProperty("rocksdb.cur-size-all-mem-tables")) stall
    else {
      val noSpace = "No space left on device"
      new RocksDBException(new Status(Status.Code.IOError, Status.SubCode.NoSpace, noSpace))
    }

  /** Returns how often RocksDB could not write in the background. */
  private def errors: Long = db.getLongProperty("rocksdb.background-errors")

  /** Memtables of both families to SST files.
    * @param waits whether to return when the files are there, and not when the memtables are frozen
    * @throws DiskUnwritableException where the disk takes no more, as all that writes to the directory
    */
  def flush(waits: Boolean = true): Unit = {
    val options = new FlushOptions().setWaitForFlush(waits).setAllowWriteStall(!waits)
    try onDisk(db.flush(options, JArrays.asList(rows, offsets)))
    finally options.close()
  }

  def compact(): Unit = onDisk(db.compactRange(rows))

  /** Reads all SST files.
    * @throws StoreUnusableException where a checksum is wrong
    */
  def verify(): Unit = reading(db.verifyChecksum())

  /** Makes hard links of the files that there are now. The caller has flushed.
    * @param target does not exist
    */
  def checkpoint(target: File): Unit =
    DiskWrites.to(Disk.Local, target.getPath)(LinkedFiles.make(db, directory, target))

  private def onDisk[A](write: => A): A = DiskWrites.to(Disk.Local, directory.getPath)(write)

  /** Number of rows, by reading all of them. */
  def countRows(families: ColumnFamilies, usesFamilies: Boolean): RowCounts = {
    val scan = this.scan(None, None)
    var keys = 0L
    var internal = 0L
    try {
      while (scan.isValid) {
        if (usesFamilies && families.isInternal(RocksEngine.familyId(scan.key))) internal += 1
        else keys += 1
        scan.next()
      }
      RowCounts(keys, internal)
    } finally scan.close()
  }

  /** Returns a figure of RocksDB's; 0 once the engine is closed. ''Thread:'' any. */
  def property(name: String): Long = gate.readingOr(0L)(db.getLongProperty(rows, name))

  /** Returns a counter of RocksDB's since the engine was opened or `resetStatistics` was called; 0 once the engine is
    * closed.
    */
  def count(ticker: TickerType): Long = gate.readingOr(0L)(statistics.getTickerCount(ticker))

  /** Returns the sum of all values of a histogram, counted from the same moment as `count`; 0 once the engine is
    * closed.
    */
  def sum(histogram: HistogramType): Long =
    gate.readingOr(0L)(statistics.getHistogramData(histogram).getSum)

  /** Lets all counts begin anew; does nothing once the engine is closed. ''Thread:'' any. */
  def resetStatistics(): Unit = gate.readingOr(())(statistics.reset())

  /** Returns the bytes pinned in the cache that the engine reads through, which lives as long as the engine or
    * longer; 0 once the engine is closed.
    */
  def pinnedBytes: Long = gate.readingOr(0L)(cache.getPinnedUsage)

  /** Closes RocksDB; what was not flushed is lost, as after a crash. Idempotent. */
  override def close(): Unit = synchronized {
    if (isOpen) {
      isOpen = false
      gate.close()
      iterators.close()
      db.cancelAllBackgroundWork(true)
      handles.close()
    }
  }

  /** Leaves a directory that holds the default column family only, in which form Spark's own provider opens it: the
    * offsets column family is dropped, and SST files that no column family uses, and log files, are deleted. Closes
    * the engine.
    */
  private[engine] def stripAndClose(): Unit = {
    onDisk(db.dropColumnFamily(offsets))
    val live = db.getLiveFilesMetaData.asScala
      .filter(_.columnFamilyName.sameElements(RocksDB.DEFAULT_COLUMN_FAMILY))
      .map(_.fileName.stripPrefix("/"))
      .toSet
    close()
    for (file <- directory.listFiles) {
      val name = file.getName
      val isKept =
        if (name.endsWith(".sst")) live(name)
        else name == "CURRENT" || name.startsWith("MANIFEST-")
      if (!isKept) Files.delete(file.toPath)
    }
  }
}

object RocksEngine {
  // A memtable is written within seconds; a minute, and one second where writing it has just failed.
  private val WaitNanos = 5L * 1000 * 1000
  private val Waits = 12000
  private val WaitsAfterError = 200

  private def isStall(e: RocksDBException): Boolean =
    Option(e.getStatus).exists(_.getCode == Status.Code.Incomplete)

  /** Rows that a scan passes over in the time of one lookup. */
  private val RowsPerLookup = 6L

  /** Older versions of one row that a scan passes over before it seeks the next row instead, which takes longer than
    * to pass what memtables and young files have where flushes come every few versions (ADR 12). RocksDB's is 8.
    */
  private val VersionsPassed = 64L

  /** The part of a memtable, as one in so many, that has to be full for the next ones to have a filter. */
  private val LeastFiltered = 16

  /** The size of a memtable's filter, for its own: at 100 bytes a row some 16 bits. */
  private val FilterShare = 0.02

  /** Returns the virtual column family of a row: the first two bytes of its key, little endian. */
  def familyId(key: Array[Byte]): Short = ((key(0) & 0xff) | (key(1) << 8)).toShort

  /** Returns the bytes with which the keys of a virtual column family begin; the inverse of [[familyId]]. */
  def familyPrefix(id: Short): Array[Byte] = Array(id.toByte, (id >> 8).toByte)

  /** Opens `directory`, creating what is missing.
    * @throws StoreUnusableException where RocksDB refuses the directory
    * @throws DiskUnwritableException where the disk takes no more, as each method that opens it for writing
    */
  def open(directory: File, options: EngineOptions): RocksEngine =
    open(directory, options, isForExport = false, isThere = false)

  /** Opens `directory` beside a process that has it open: takes no lock and changes no file. Shows what was on disk
    * at that moment.
    * @throws StoreUnusableException where RocksDB refuses the directory, also because its owner has just
    *   deleted a file
    */
  def openReadOnly(directory: File, options: EngineOptions): RocksEngine =
    open(directory, options, isForExport = false, isThere = true, isReadOnly = true)

  /** Opens `directory` as an earlier process left it: in no time that grows with its size.
    * @throws StoreUnusableException where RocksDB refuses the directory
    */
  def reopen(directory: File, options: EngineOptions): RocksEngine =
    open(directory, options, isForExport = false, isThere = true)

  /** Opens a RocksDB checkpoint, applies a version's writes and strips it for export: see
    * [[RocksEngine.stripAndClose]]. SST files that are there stay as they are.
    */
  def exportFrom(directory: File, options: EngineOptions, batch: Option[SerializedBatch]): Unit = {
    val engine = open(directory, options, isForExport = true, isThere = true)
    try {
      batch.filter(_.bytes > 0).foreach { writes =>
        engine.apply(writes, Nil, Intent(0, None))
        engine.flush()
      }
      engine.stripAndClose()
    } finally engine.close()
  }

  private def open(
      directory: File,
      options: EngineOptions,
      isForExport: Boolean,
      isThere: Boolean,
      isReadOnly: Boolean = false
  ): RocksEngine = {
    RocksDB.loadLibrary()
    val handles = new NativeHandles
    try {
      if (!isReadOnly) Files.createDirectories(directory.toPath): Unit
      RocksManifest.checkKinds(directory)
      RocksManifest.check(directory)
      val statistics = handles.add(new Statistics())
      val dbOptions = handles.add(databaseOptions(options, statistics, isThere))
      val rowOptions = handles.add(familyOptions(options, handles, isForExport))
      val offsetsOptions = handles.add(
        newFamilyOptions().setDisableAutoCompactions(isForExport)
      )
      val descriptors = JArrays.asList(
        new ColumnFamilyDescriptor(RocksDB.DEFAULT_COLUMN_FAMILY, rowOptions),
        new ColumnFamilyDescriptor(OffsetsColumnFamily.Name.getBytes(UTF_8), offsetsOptions)
      )
      val families = new JArrayList[ColumnFamilyHandle]()
      val path = directory.getPath
      val db = handles.add(
        if (isReadOnly) RocksDB.openReadOnly(dbOptions, path, descriptors, families)
        else RocksDB.open(dbOptions, path, descriptors, families)
      )
      families.forEach(family => handles.add(family): Unit)
      new RocksEngine(
        directory,
        db,
        families.get(0),
        families.get(1),
        statistics,
        options.blockCache,
        options.memtableBytes,
        handles
      )
    } catch {
      case e: Throwable =>
        handles.close()
        throw (DiskWrites.told(Disk.Local, directory.getPath, e) match {
          case e: RocksDBException => new StoreUnusableException(
              s"RocksDB cannot open $directory: ${e.getMessage}. The local copy is given up; it is " +
                "loaded again from the checkpoint.",
              Some(e)
            )
          case e => e
        })
    }
  }

  private def databaseOptions(
      options: EngineOptions,
      statistics: Statistics,
      isThere: Boolean
  ): DBOptions = options.database(new DBOptions())
    .setCreateIfMissing(!isThere)
    .setSkipStatsUpdateOnDbOpen(true)
    .setCreateMissingColumnFamilies(true)
    .setAtomicFlush(true)
    .setAvoidFlushDuringShutdown(true)
    .setStatistics(statistics)
    .setKeepLogFileNum(1)

  /** Settings that have no setter in Java.
    *
    * RocksDB writes a file of the lowest level anew when a snapshot is released that it was written under. Views of
    * versions come and go with each commit: every file would be written, and uploaded, twice. Other compactions
    * drop what is old in it as well.
    *
    * Blocks of files that compactions replaced would fill the cache; they leave it while one in ten is found there.
    */
  private def newFamilyOptions(): ColumnFamilyOptions = {
    val properties = new Properties
    properties.setProperty("bottommost_file_compaction_delay", (10 * 365 * 24 * 3600).toString)
    properties.setProperty("uncache_aggressiveness", "230")
    ColumnFamilyOptions.getColumnFamilyOptionsFromProps(properties)
  }

  private def familyOptions(
      options: EngineOptions,
      handles: NativeHandles,
      isForExport: Boolean
  ): ColumnFamilyOptions = {
    val family = newFamilyOptions()
      .setCompressionType(options.compression)
      .setTableFormatConfig(options.table(handles))
      .setMergeOperator(handles.add(new StringAppendOperator(options.mergeDelimiter)))
      .setDisableAutoCompactions(isForExport)
      .setMaxSequentialSkipInIterations(VersionsPassed)
    if (options.writeBufferBytes > 0) family.setWriteBufferSize(options.writeBufferBytes)
    if (options.maxWriteBuffers > 0) family.setMaxWriteBufferNumber(options.maxWriteBuffers)
    family
  }
}
