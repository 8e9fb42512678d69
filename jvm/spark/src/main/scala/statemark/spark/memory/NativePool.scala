package statemark.spark.memory

import org.apache.spark.sql.execution.streaming.state.{RocksDBConf, RocksDBLoader}
import org.rocksdb.{Cache, LRUCache, WriteBufferManager}
import statemark.common.ArrayPool
import statemark.transaction.RowPages

/** What the stores of an executor share where Statemark bounds their native memory: a quarter is a block cache that is
  * charged for index, filters and memtables as well, half are rows that were used last (ADR 32), the rest staged rows
  * (ADR 33) and prepared versions (ADR 14).
  *
  * Spark's own pool has up to 64 shards and gives index and filters a tenth: at 256 MiB a shard holds 4 MiB, and the
  * filter of one file takes two of it. A state of 10,000,000 keys then reads a filter from disk at every `get`
  * (docs/adr/0011).
  */
private[spark] final class NativePool(val bytes: Long) {
  import NativePool._

  private val cacheBytes = bytes - rowBytes(bytes) - writeBytes(bytes)
  val cache: Cache = new LRUCache(cacheBytes, ShardBits, false, IndexShare)
  val memtables: WriteBufferManager =
    new WriteBufferManager((cacheBytes * MemtableShare).toLong, cache)
}

private[spark] object NativePool {
  private val ShardBits = 2
  private val IndexShare = 0.4
  private val MemtableShare = 0.5
  @volatile private var shared = Option.empty[NativePool]

  /** The bound, None where no store has asked for the pool. */
  def limitBytes: Option[Long] = shared.map(_.bytes)

  /** What is in it, by stores of all queries. */
  def usedBytes: Long = shared.fold(0L) {
    _.cache.getUsage + RowPages.shared.memory.takenBytes + ArrayPool.shared.outside.takenBytes
  }

  /** Has stores keep rows, staged writes and prepared versions beside what the settings of the session bound.
    * @param bytes what native memory would be bounded by without these
    */
  def beside(bytes: Long): Unit = synchronized(if (shared.isEmpty) bound(bytes))

  private def rowBytes(bytes: Long): Long = bytes / 2
  private def writeBytes(bytes: Long): Long = bytes / 4

  private def bound(bytes: Long): Unit = {
    RowPages.shared.memory.bound(rowBytes(bytes))
    ArrayPool.shared.outside.bound(writeBytes(bytes))
  }

  /** The one pool of this executor; the first store says how large it is, as with Spark's. It lives as long as the
    * process.
    */
  def of(conf: RocksDBConf): NativePool = synchronized {
    RocksDBLoader.loadLibrary()
    val bytes = conf.totalMemoryUsageMB * 1024 * 1024
    val pool = shared.getOrElse(new NativePool(bytes))
    if (shared.isEmpty) bound(bytes)
    shared = Some(pool)
    pool
  }
}
