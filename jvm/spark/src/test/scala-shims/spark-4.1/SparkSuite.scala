package statemark.spark

import org.apache.spark.sql.execution.streaming.state._

/** Spark's acceptance suite. */
abstract class SparkSuite[P <: StateStoreProvider] extends StateStoreSuiteBase[P] {

  /** Tests that fit Spark's own providers only: this one looks for a golden file by their class. */
  protected def notForOthers: Set[String] =
    Set("Load spark 4.0 golden checkpoint written without checksum")
}
