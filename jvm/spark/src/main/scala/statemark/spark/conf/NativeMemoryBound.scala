package statemark.spark.conf

import java.util.Locale
import org.apache.spark.{SparkConf, SparkEnv}
import org.apache.spark.sql.execution.streaming.state.RocksDBConf
import statemark.spark.process.Executors

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

  /** Returns the bytes that stores of this process have where nobody has set a bound. */
  private[spark] def default: Long = defaultMb() * Mib

  private def defaultMb(): Long = {
    val env = Option(SparkEnv.get)
    val conf = env.fold(new SparkConf(false))(_.conf)
    val isExecutor = env.exists(_.executorId != Executors.Driver)
    if (isExecutor) mebibytes(conf, "executor", conf.getSizeAsMb("spark.executor.memory", "1g"))
    else mebibytes(conf, "driver", Runtime.getRuntime.maxMemory / Mib)
  }

  /** Half of what Spark gives a driver or an executor beside its heap. ''Source:'' Spark 4.2 `ResourceProfile`,
    * `DRIVER_MEMORY_OVERHEAD`.
    */
  private[spark] def mebibytes(conf: SparkConf, role: String, heapMb: Long): Long = {
    val factor = conf.getDouble(s"spark.$role.memoryOverheadFactor", OverheadFactor)
    val least = conf.getSizeAsMb(s"spark.$role.minMemoryOverhead", s"${MinOverheadMb}m")
    val byHeap = math.max((heapMb * factor).toLong, least)
    conf.getSizeAsMb(s"spark.$role.memoryOverhead", s"${byHeap}m") / 2
  }
}
