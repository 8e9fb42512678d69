package statemark.spark

import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.internal.SQLConf

/** Spark's acceptance suite, with the methods that later lines ask for. */
abstract class SparkSuite[P <: StateStoreProvider] extends StateStoreSuiteBase[P] {
  def newStoreProviderNoInit(): P
  def newStoreProviderWithClonedConf(storeId: StateStoreId): P
  def cloneSQLConf(): SQLConf = SQLConf.get.clone()

  /** Tests that fit Spark's own providers only. */
  protected def notForOthers: Set[String] = Set.empty
}
