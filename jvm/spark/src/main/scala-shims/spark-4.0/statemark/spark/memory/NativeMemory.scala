package statemark.spark.memory

/** Native memory of a store. Spark 4.0 has no account of it. */
@annotation.nowarn("msg=never used")
object NativeMemory {

  /** Properties of RocksDB whose sum is what a store uses. */
  val sources: Seq[String] = Seq(
    "rocksdb.estimate-table-readers-mem",
    "rocksdb.size-all-mem-tables",
    "rocksdb.block-cache-usage"
  )

  def update(id: String, bytes: Long, isBounded: Boolean): Unit = ()

  def remove(id: String): Unit = ()

  /** As Spark 4.0 reports it: every store reports the shared pool as a whole. */
  def share(id: String, bytes: Long): Long = bytes

  def pinnedShare(id: String, bytes: Long): Long = bytes
}
