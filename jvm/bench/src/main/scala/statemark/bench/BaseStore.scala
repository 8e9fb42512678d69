package statemark.bench

import java.nio.file.{Files, Path}
import java.util.{Arrays, Comparator}

import scala.util.Using

import org.rocksdb.{FlushOptions, Options, ReadOptions, RocksDB, RocksIterator}
import org.rocksdb.{WriteBatch, WriteOptions}

/** A RocksDB without a log, in a directory that is deleted with it. */
final class BaseStore extends AutoCloseable {
  private val directory = Files.createTempDirectory("statemark-bench-base-")
  // Large enough that no flush falls into a measurement.
  private val options = new Options().setCreateIfMissing(true).setWriteBufferSize(256L << 20)
  val readOptions = new ReadOptions()
  val writeOptions: WriteOptions = new WriteOptions().setDisableWAL(true)
  val db: RocksDB = RocksDB.open(options, directory.toString)

  def get(key: Array[Byte]): Option[Array[Byte]] = Option(db.get(readOptions, key))

  def scan(prefix: Array[Byte]): RocksIterator = {
    val it = db.newIterator(readOptions)
    it.seek(prefix)
    it
  }

  def write(serialized: Array[Byte]): Unit =
    Using.resource(new WriteBatch(serialized))(db.write(writeOptions, _))

  /** Writes the rows and moves them to a file, as a base that has been there for a while. */
  def load(rows: Iterator[(Array[Byte], Array[Byte])]): Unit = {
    val batch = new SerializedBatch(1 << 20)
    rows.foreach { case (k, v) => batch.put(k, v) }
    write(batch.result())
    Using.resource(new FlushOptions().setWaitForFlush(true))(db.flush(_))
  }

  override def close(): Unit = {
    Seq(db, options, readOptions, writeOptions).foreach(_.close())
    BaseStore.delete(directory)
  }
}

object BaseStore {
  RocksDB.loadLibrary()

  def startsWith(bytes: Array[Byte], prefix: Array[Byte]): Boolean =
    bytes.length >= prefix.length &&
      Arrays.equals(bytes, 0, prefix.length, prefix, 0, prefix.length)

  def delete(directory: Path): Unit =
    Using.resource(Files.walk(directory)) { paths =>
      paths.sorted(Comparator.reverseOrder[Path]()).forEach(p => Files.deleteIfExists(p): Unit)
    }
}

/** Staged cells and base rows under a prefix in one order; a staged row hides the base's. */
class MergedScan(prefix: Array[Byte], sequence: Long, staged: Iterator[Cell], base: RocksIterator)
    extends Scan {
  private var stagedKey: Array[Byte] = _
  private var stagedValue: Array[Byte] = _
  private var baseKey: Array[Byte] = _
  nextStaged()
  nextBase()

  override def hasNext: Boolean = stagedKey != null || baseKey != null

  override def next(): (Array[Byte], Array[Byte]) = {
    val order =
      if (stagedKey == null) 1
      else if (baseKey == null) -1
      else Arrays.compareUnsigned(stagedKey, baseKey)
    val row = if (order <= 0) (stagedKey, stagedValue) else (baseKey, base.value())
    if (order <= 0) nextStaged()
    if (order >= 0) {
      base.next()
      nextBase()
    }
    row
  }

  override def close(): Unit = base.close()

  private def nextStaged(): Unit = {
    stagedKey = null
    var more = true
    while (more && staged.hasNext) {
      val cell = staged.next()
      more = BaseStore.startsWith(cell.key.bytes, prefix)
      if (more) cell.asOf(sequence).foreach { value =>
        stagedKey = cell.key.bytes
        stagedValue = value
        more = false
      }
    }
  }

  private def nextBase(): Unit = {
    baseKey = if (base.isValid) base.key() else null
    if (baseKey != null && !BaseStore.startsWith(baseKey, prefix)) baseKey = null
  }
}
