package statemark.spark

import org.apache.spark.SparkConf
import org.apache.spark.sql.execution.streaming.state.{RocksDBConf, StateStoreConf}
import org.apache.spark.sql.internal.SQLConf
import org.scalatest.funsuite.AnyFunSuite

class NativeMemoryBoundSuite extends AnyFunSuite {

  /** Whether memory is bounded, and by how many mebibytes. */
  private def applied(settings: (String, String)*): (Boolean, Long) = {
    val session = new SQLConf
    settings.foreach { case (k, v) =>
      session.setConfString(s"spark.sql.streaming.stateStore.rocksdb.$k", v)
    }
    val conf = new StateStoreConf(session)
    val NativeMemoryBound(found, sparks, isOwn) =
      NativeMemoryBound.of(RocksDBConf(conf), conf.sqlConfs)
    assert(sparks == RocksDBConf(conf) && isOwn == (found ne sparks))
    (found.boundedMemoryUsage, found.totalMemoryUsageMB)
  }

  private def executor(confs: (String, String)*): Long =
    NativeMemoryBound.mebibytes(new SparkConf(false).setAll(confs), isExecutor = true, 1L << 30)

  test("memory is bounded unless the session sizes it by hand") {
    val quarter = Runtime.getRuntime.maxMemory / 4 / 1024 / 1024
    assert(applied() == ((true, math.max(quarter, 256L))))
    assert(applied("maxMemoryUsageMB" -> "77") == ((true, 77L)))
    assert(applied("boundedMemoryUsage" -> "true") == ((true, 500L)))
    assert(applied("boundedMemoryUsage" -> "true", "maxMemoryUsageMB" -> "77") == ((true, 77L)))
    for (key <- Seq("blockCacheSizeMB", "writeBufferSizeMB", "maxWriteBufferNumber"))
      assert(!applied(key -> "9")._1, key)
    assert(!applied("boundedMemoryUsage" -> "false")._1)
    assert(!applied("BlockCacheSizeMB" -> "9")._1, "Spark takes these keys in any case")
  }

  test("half of what an executor has beside its heap, a quarter of the driver's heap") {
    assert(executor() == 192)
    assert(executor("spark.executor.memory" -> "20g") == 1024)
    assert(executor(
      "spark.executor.memory" -> "20g",
      "spark.executor.memoryOverhead" -> "3g"
    ) == 1536)
    assert(executor("spark.executor.memoryOverhead" -> "1000") == 500)
    val factor = "spark.executor.memoryOverheadFactor" -> "0.4"
    assert(executor("spark.executor.memory" -> "10g", factor) == 2048)
    def driver(heap: Long) =
      NativeMemoryBound.mebibytes(new SparkConf(false), isExecutor = false, heap)
    assert(driver(1L << 30) == 256 && driver(4L << 30) == 1024 && driver(1L << 28) == 256)
  }
}
