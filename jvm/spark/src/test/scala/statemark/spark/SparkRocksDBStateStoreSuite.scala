package statemark.spark

import org.apache.spark.sql.execution.streaming.state.StateStoreProvider

/** Validates [[ProviderSuiteBase]] itself on the provider that Spark ships. */
class SparkRocksDBStateStoreSuite extends ProviderSuiteBase[StateStoreProvider] {
  override protected def providerClass: Class[_] = Class.forName(ReferenceProvider.className)
}

object ReferenceProvider {

  /** By name: the class is private to Spark's sql packages. */
  val className = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
}
