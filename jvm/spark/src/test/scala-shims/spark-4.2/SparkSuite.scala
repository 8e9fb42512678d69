package statemark.spark

import org.apache.spark.sql.execution.streaming.state._

/** Spark's acceptance suite. */
abstract class SparkSuite[P <: StateStoreProvider] extends StateStoreSuiteBase[P] {

  /** Tests that fit Spark's own providers only. */
  protected def notForOthers: Set[String] = Set.empty
}
