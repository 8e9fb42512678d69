package statemark.spark

import org.apache.spark.SparkConf
import org.apache.spark.sql.execution.streaming.state.{RocksDBConf, StateStoreConf}
import org.apache.spark.sql.internal.SQLConf
import org.scalatest.funsuite.AnyFunSuite
import statemark.spark.conf.NativeMemoryBound

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

  test("memory is bounded unless the session sizes it by hand") {
    val heapMb = Runtime.getRuntime.maxMemory / 1024 / 1024
    assert(applied() == ((true, math.max(heapMb / 10, 384L) / 2)))
    assert(applied("maxMemoryUsageMB" -> "77") == ((true, 77L)))
    assert(applied("boundedMemoryUsage" -> "true") == ((true, 500L)))
    assert(applied("boundedMemoryUsage" -> "true", "maxMemoryUsageMB" -> "77") == ((true, 77L)))
    for (key <- Seq("blockCacheSizeMB", "writeBufferSizeMB", "maxWriteBufferNumber"))
      assert(!applied(key -> "9")._1, key)
    assert(!applied("boundedMemoryUsage" -> "false")._1)
    assert(!applied("BlockCacheSizeMB" -> "9")._1, "Spark takes these keys in any case")
  }

  test("half of what a driver or an executor has beside its heap") {
    for (role <- Seq("driver", "executor")) {
      def mebibytes(heapMb: Long, confs: (String, String)*) = {
        val ofRole = confs.map { case (key, value) => s"spark.$role.$key" -> value }
        NativeMemoryBound.mebibytes(new SparkConf(false).setAll(ofRole), role, heapMb)
      }
      assert(mebibytes(1024) == 192)
      assert(mebibytes(20 * 1024) == 1024)
      assert(mebibytes(20 * 1024, "memoryOverhead" -> "3g") == 1536)
      assert(mebibytes(1024, "memoryOverhead" -> "1000") == 500)
      assert(mebibytes(10 * 1024, "memoryOverheadFactor" -> "0.4") == 2048)
      assert(mebibytes(1024, "minMemoryOverhead" -> "1g") == 512)
    }
  }
}
