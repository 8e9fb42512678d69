package statemark.kafka.sink.stress

import java.nio.file.Files
import org.apache.spark.sql.SparkSession
import statemark.kafka.TestBrokers
import statemark.kafka.stress.Stress

/** `make stress-kafka PARTS=spark`: random histories of queries of Spark's, and of copies of their checkpoints. It takes
  * the properties that [[Stress]] takes.
  */
object SparkStress {

  def main(args: Array[String]): Unit = {
    val brokers = new TestBrokers()
    val spark = session()
    val faults =
      try
        Stress.run("PARTS=spark ", defaultParallel = 2) { (seed, steps) =>
          new SparkHistory(brokers, spark, seed, steps).run()
        }
      finally {
        spark.stop()
        brokers.close()
      }
    Runtime.getRuntime.halt(if (faults == 0) 0 else 1)
  }

  private def session(): SparkSession = SparkSession.builder().master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.log.level", "OFF")
    .config("spark.sql.warehouse.dir", Files.createTempDirectory("statemark-warehouse-").toString)
    .config("spark.sql.streaming.minBatchesToRetain", "1000")
    .getOrCreate()
}
