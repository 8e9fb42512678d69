package statemark.spark

import java.nio.file.Files
import org.apache.spark.sql.SQLContext
import org.scalatest.funsuite.AnyFunSuite

/** The same query under each of Spark's settings that change how a provider is used: the result is that
  * of a batch, over a stop and start in the middle.
  */
class QuerySettingsSuite extends AnyFunSuite with OneSession {
  private val prefix = "spark.sql.streaming.stateStore."
  private val cases: Seq[(String, Map[String, String])] = Seq(
    "providers unloaded after each task" -> Map("unloadOnCommit" -> "true"),
    "file checksums in checkpoint format v2" -> Map("checkpointFormatVersion" -> "2"),
    "native memory bounded for the executor" -> Map(
      "rocksdb.boundedMemoryUsage" -> "true",
      "rocksdb.maxMemoryUsageMB" -> "64"
    ),
    "rows not tracked" -> Map("rocksdb.trackTotalNumberOfRows" -> "false"),
    "compaction before a snapshot at every version, maintained all the time" -> Map(
      "rocksdb.compactOnCommit" -> "true",
      "minDeltasForSnapshot" -> "1",
      "maintenanceInterval" -> "50ms"
    ),
    "no limit on uncommitted bytes" -> Map("statemark.maxUncommittedBytes" -> "-1")
  ) ++ Option.when(Line.hasStoreOf42)("row checksums" -> Map("rowChecksum.enabled" -> "true"))

  for ((name, settings) <- cases) test(name) {
    settings.foreach { case (k, v) => spark.conf.set(prefix + k, v) }
    try assert(run() == expected)
    finally settings.keys.foreach(k => spark.conf.unset(prefix + k))
  }

  private val batches = Seq.tabulate(6)(b => Seq.tabulate(40)(i => (i * (b + 3)) % 23))
  private val expected = batches.flatten.groupBy(identity).map { case (k, v) =>
    k -> v.length.toLong
  }

  private def run(): Map[Int, Long] = {
    implicit val sql: SQLContext = spark.sqlContext
    import spark.implicits._
    val input = Line.MemoryStream[Int]
    val checkpoint = Files.createTempDirectory("statemark-settings-").toString
    def process(some: Seq[Seq[Int]]): Unit = {
      val query = input.toDF().groupBy("value").count().writeStream.format("memory")
        .queryName("settings").outputMode("complete").option(
          "checkpointLocation",
          checkpoint
        ).start()
      try
        some.foreach { batch =>
          input.addData(batch)
          query.processAllAvailable()
        }
      finally query.stop()
    }
    val (before, after) = batches.splitAt(3)
    process(before)
    process(after)
    spark.table("settings").as[(Int, Long)].collect().toMap
  }
}
