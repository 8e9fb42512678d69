package statemark.spark.model

import statemark.spark.Providers

/** Validates the model on the provider that Spark ships. That of earlier lines loses writes of a batch
  * that is retried in checkpoint format v2.
  */
class SparkRocksDBModelSuite extends ModelSuiteBase {
  override protected def traits: ProviderTraits = ProviderTraits.spark
  override protected def providerClass: String = Providers.sparksOwn
  override protected def defaultHistories: Int = 10
}
