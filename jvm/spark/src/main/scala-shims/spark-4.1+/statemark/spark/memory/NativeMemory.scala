package statemark.spark.memory

import org.apache.spark.sql.execution.streaming.state.{RocksDB, RocksDBMemoryManager}

/** Native memory of a store, as Spark's memory manager knows it. */
object NativeMemory {

  /** Properties of RocksDB whose sum is what a store uses. */
  val sources: Seq[String] = RocksDB.mainMemorySources

  def update(id: String, bytes: Long, isBounded: Boolean): Unit =
    RocksDBMemoryManager.updateMemoryUsage(id, bytes, isBounded)

  def remove(id: String): Unit = RocksDBMemoryManager.unregisterInstance(id)

  /** The store's share of `bytes`, where all stores of the executor share one pool. */
  def share(id: String, bytes: Long): Long = RocksDBMemoryManager.getInstanceMemoryUsage(id, bytes)

  /** The store's share of pinned bytes. */
  def pinnedShare(id: String, bytes: Long): Long =
    RocksDBMemoryManager.getInstancePinnedBlocksMemUsage(id, bytes)
}
