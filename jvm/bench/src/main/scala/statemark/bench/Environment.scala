package statemark.bench

/** What a reader needs to judge figures: they are comparable within one run only. */
object Environment {
  def describe(): Map[String, String] = {
    val runtime = Runtime.getRuntime
    Map(
      "java" -> s"${System.getProperty("java.vm.name")} ${System.getProperty("java.version")}",
      "os" -> s"${System.getProperty("os.name")} ${System.getProperty("os.arch")}",
      "cores" -> runtime.availableProcessors.toString,
      "heap MB" -> (runtime.maxMemory >> 20).toString,
      "spark" -> org.apache.spark.SPARK_VERSION,
      "rocksdb" -> org.rocksdb.RocksDB.rocksdbVersion.toString
    )
  }
}
