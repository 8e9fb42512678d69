package statemark.engine

import java.io.File
import java.util.concurrent.atomic.AtomicInteger
import org.rocksdb._
import statemark.common.{ArrayPool, ScratchFullException, StoreUnusableException}

/** Rows that one transaction has put aside: a RocksDB of its own, empty at first, deleted at the end.
  *
  * ''Thread:'' one writes; any read. Each reader but the owner holds a share while it reads, so that the files go
  * when nobody needs them.
  *
  * @param directory does not exist
  */
final class ScratchStore(directory: File, options: EngineOptions) extends AutoCloseable {
  private val handles = new NativeHandles
  private val users = new AtomicInteger(1)
  private val readOptions = handles.add(new ReadOptions())
  private val writeOptions = handles.add(new WriteOptions().setDisableWAL(true))
  private val flushOptions = handles.add(new FlushOptions().setWaitForFlush(true))
  private val db = open()

  private def open(): RocksDB = {
    val settings = handles.add(
      options.database(new Options())
        .setCreateIfMissing(true)
        .setErrorIfExists(true)
        .setCompressionType(options.compression)
        .setTableFormatConfig(options.table(handles))
        .setWriteBufferSize(ScratchStore.MemtableBytes)
    )
    try
      writing {
        val _ = directory.mkdirs()
        handles.add(RocksDB.open(settings, directory.getPath))
      }
    catch {
      case e: Throwable =>
        handles.close()
        throw e
    }
  }

  /** Puts rows aside; `flush` follows.
    * @param rows writes them
    * @throws ScratchFullException where the disk does not take them
    */
  def write(rows: BatchWriter => Unit): Unit = writing {
    val writer = new BatchWriter(ScratchStore.SegmentBytes)(segment => {
      val batch = new WriteBatch(segment.toArray)
      ArrayPool.shared.give(segment.bytes)
      try db.write(writeOptions, batch)
      finally batch.close()
    })
    rows(writer)
    writer.finish()
  }

  /** Flushes: the writes that were put aside are on disk when it returns.
    * @throws ScratchFullException where the disk does not take it
    */
  def flush(): Unit = writing(db.flush(flushOptions))

  /** @throws ScratchFullException where the disk does not take it */
  def deleteRange(begin: Array[Byte], end: Array[Byte]): Unit =
    writing(db.deleteRange(writeOptions, begin, end))

  def get(key: Array[Byte]): Option[Array[Byte]] = reading(Option(db.get(readOptions, key)))

  /** Returns rows of `[begin, end)` in key order, as they are now; the caller closes the cursor. */
  def scan(begin: Option[Array[Byte]], end: Option[Array[Byte]]): RowCursor =
    scan(begin, end, new ReadOptions())

  private def scan(
      begin: Option[Array[Byte]],
      end: Option[Array[Byte]],
      options: ReadOptions
  ): RowCursor =
    EngineScan.open(db.newIterator(_: ReadOptions), options, begin, end)(iterator =>
      reading(iterator.status())
    )

  /** Opens a scan of `[begin, end)` like `scan`, with no iterator until the cursor is asked: an iterator holds
    * memtables, where a snapshot holds only files.
    */
  def scanLater(begin: Option[Array[Byte]], end: Option[Array[Byte]]): RowCursor =
    new RowCursor {
      private var snapshot = Option(db.getSnapshot)
      private var opened = Option.empty[RowCursor]

      private def rows: RowCursor = opened.getOrElse {
        val options = new ReadOptions()
        snapshot.foreach(options.setSnapshot)
        val found = ScratchStore.this.scan(begin, end, options)
        opened = Some(found)
        release()
        found
      }

      private def release(): Unit = {
        snapshot.foreach { s =>
          db.releaseSnapshot(s)
          s.close()
        }
        snapshot = None
      }

      override def keyOrEnd(): Option[Array[Byte]] = rows.keyOrEnd()
      override def value: Array[Byte] = rows.value
      override def next(): Unit = rows.next()
      override def close(): Unit = {
        release()
        opened.foreach(_.close())
      }
    }

  /** Adds a user, who closes the store as well; returns false where the last user is gone. */
  def retain(): Boolean = users.getAndUpdate(n => if (n > 0) n + 1 else 0) > 0

  /** Removes a user; each user calls it once. The last call deletes the files. */
  override def close(): Unit = if (users.decrementAndGet() == 0) {
    db.cancelAllBackgroundWork(true)
    handles.close()
    Option(directory.listFiles).toSeq.flatten.foreach(_.delete())
    directory.delete(): Unit
  }

  private def writing[A](write: => A): A =
    try write
    catch { case e: RocksDBException => throw ScratchStore.full(directory, e) }

  private def reading[A](read: => A): A =
    try read
    catch {
      case e: RocksDBException =>
        throw new StoreUnusableException(
          s"Staged writes in $directory cannot be read: ${e.getMessage}. The task fails; the next attempt " +
            "begins anew.",
          Some(e)
        )
    }
}

private[engine] object ScratchStore {
  private val MemtableBytes = 8L * 1024 * 1024
  private val SegmentBytes = 1024 * 1024

  def full(path: File, cause: Exception): ScratchFullException = new ScratchFullException(
    s"Staged writes cannot be put aside in $path: ${cause.getMessage}. The batch stages more than " +
      "maxUncommittedBytes, and what is over it goes to the local disk. Nothing is lost: the task fails and " +
      "can be tried again. Give the executor more local disk, raise maxUncommittedBytes, or make batches " +
      "smaller.",
    Some(cause)
  )
}
