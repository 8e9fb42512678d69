package statemark.spark.metrics

/** Those of Spark's metrics of a RocksDB store that not every line of Spark has: none on Spark 4.0. */
object VersionedMetrics {
  val all: Seq[Metric[CommitFacts]] = Nil
}
