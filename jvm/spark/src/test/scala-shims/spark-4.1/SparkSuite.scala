package statemark.spark

import org.apache.spark.sql.execution.streaming.state._

/** Spark's acceptance suite. */
abstract class SparkSuite[P <: StateStoreProvider] extends StateStoreSuiteBase[P] {

  /** Tests that fit Spark's own providers only. */
  protected def notForOthers: Set[String] = Set(
    // It looks for a golden file by their class.
    "Load spark 4.0 golden checkpoint written without checksum",
    // It counts files after a snapshot of the last version. Statemark takes the one before where that is due
    // (docs/differences.md); SnapshotSuite has what is kept.
    "checksum files are also cleaned up during maintenance"
  )
}
