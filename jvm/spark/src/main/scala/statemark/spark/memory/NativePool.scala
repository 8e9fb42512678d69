package statemark.spark.memory

import org.apache.spark.sql.execution.streaming.state.{RocksDBConf, RocksDBLoader}
import org.rocksdb.{Cache, LRUCache, WriteBufferManager}

/** What the stores of an executor share where Statemark bounds their native memory: a block cache that is charged for
  * index, filters and memtables as well.
  *
  * Spark's own pool has up to 64 shards and gives index and filters a tenth: at 256 MiB a shard holds 4 MiB, and the
  * filter of one file takes two of it. A state of 10,000,000 keys then reads a filter from disk at every `get`
  * (docs/adr/0011).
  */
private[spark] final class NativePool(val bytes: Long) {
  import NativePool._

  val cache: Cache = new LRUCache(bytes, ShardBits, false, IndexShare)
  val memtables: WriteBufferManager = new WriteBufferManager((bytes * MemtableShare).toLong, cache)
}

private[spark] object NativePool {
  private val ShardBits = 2
  private val IndexShare = 0.4
  private val MemtableShare = 0.5
  @volatile private var shared = Option.empty[NativePool]

  /** The bound, None where no store has asked for the pool. */
  def limitBytes: Option[Long] = shared.map(_.bytes)

  /** What is in it, by stores of all queries. */
  def usedBytes: Long = shared.fold(0L)(_.cache.getUsage)

  /** The one pool of this executor; the first store says how large it is, as with Spark's. It lives as long as the
    * process.
    */
  def of(conf: RocksDBConf): NativePool = synchronized {
    RocksDBLoader.loadLibrary()
    val pool = shared.getOrElse(new NativePool(conf.totalMemoryUsageMB * 1024 * 1024))
    shared = Some(pool)
    pool
  }
}
