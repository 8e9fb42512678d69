package statemark.spark

import java.util.Locale
import org.apache.spark.{SparkConf, SparkEnv}
import org.apache.spark.sql.execution.streaming.state.RocksDBConf

/** One bound on the native memory of all stores of an executor, where nobody has set another: block cache, index,
  * filters and memtables together. Spark's default is a cache of 8 MiB for each store, and no bound on the rest.
  *
  * ''Source:'' Spark 4.2 `RocksDBMemoryManager`.
  *
  * @param conf what counts
  * @param sparks what the session says
  * @param isOwn whether the bound is this one, and the session has said nothing
  */
final case class NativeMemoryBound(conf: RocksDBConf, sparks: RocksDBConf, isOwn: Boolean)

object NativeMemoryBound {

  /** What says that somebody sizes native memory by hand. */
  private val Sizes = Seq(
    "boundedMemoryUsage",
    "blockCacheSizeMB",
    "writeBufferSizeMB",
    "maxWriteBufferNumber"
  ).map(key)
  private val Bound = key("maxMemoryUsageMB")

  private val Mib = 1024L * 1024
  private val MinLocalMb = 256L
  private val MinOverheadMb = 384L
  private val OverheadFactor = 0.1

  private def key(name: String) =
    s"spark.sql.streaming.stateStore.rocksdb.$name".toLowerCase(Locale.ROOT)

  /** @param settings of the session, as a store is handed them */
  def of(conf: RocksDBConf, settings: Map[String, String]): NativeMemoryBound = {
    val set = settings.keySet.map(_.toLowerCase(Locale.ROOT))
    if (Sizes.exists(set)) NativeMemoryBound(conf, conf, isOwn = false)
    else {
      val mb = if (set(Bound)) conf.totalMemoryUsageMB else defaultMb()
      val bounded = conf.copy(boundedMemoryUsage = true, totalMemoryUsageMB = mb)
      NativeMemoryBound(bounded, conf, isOwn = true)
    }
  }

  private def defaultMb(): Long = {
    val env = Option(SparkEnv.get)
    mebibytes(
      env.fold(new SparkConf(false))(_.conf),
      isExecutor = env.exists(_.executorId != StatemarkPlugin.Driver),
      Runtime.getRuntime.maxMemory
    )
  }

  /** Half of what an executor has beside its heap; in the driver, which has no such share, a quarter of the heap. */
  private[spark] def mebibytes(conf: SparkConf, isExecutor: Boolean, heapBytes: Long): Long =
    if (!isExecutor) math.max(heapBytes / 4 / Mib, MinLocalMb)
    else {
      val factor = conf.getDouble("spark.executor.memoryOverheadFactor", OverheadFactor)
      val least = conf.getSizeAsMb("spark.executor.minMemoryOverhead", s"${MinOverheadMb}m")
      val byHeap =
        math.max((conf.getSizeAsMb("spark.executor.memory", "1g") * factor).toLong, least)
      conf.getSizeAsMb("spark.executor.memoryOverhead", s"${byHeap}m") / 2
    }
}
