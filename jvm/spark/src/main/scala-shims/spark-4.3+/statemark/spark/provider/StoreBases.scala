package statemark.spark.provider

import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.types.StructType
import statemark.spark.metrics.InstanceMetrics

/** Spark's interfaces as Statemark implements them on every line: what a line lacks is declared here,
  * what only one line has is answered here.
  */
trait StoreBase extends StateStore {

  /** A join makes a column family known to the store that it reads before it writes. */
  override def registerColFamily(
      colFamilyName: String,
      keySchema: StructType,
      valueSchema: StructType,
      keyStateEncoderSpec: KeyStateEncoderSpec,
      useMultipleValuesPerKey: Boolean,
      isInternal: Boolean
  ): Unit = createColFamilyIfAbsent(
    colFamilyName,
    keySchema,
    valueSchema,
    keyStateEncoderSpec,
    useMultipleValuesPerKey,
    isInternal
  )
}

trait ProviderBase extends StateStoreProvider with SupportsFineGrainedReplay {
  override def supportedInstanceMetrics: Seq[StateStoreInstanceMetric] = InstanceMetrics.all

  /** How a store is handed out for reading: Spark upgrades the same object when it writes. */
  protected def handOut(store: StatemarkRocksDBStateStore): ReadStateStore = store
}
