package statemark.spark.conf

import org.apache.spark.sql.internal.SQLConf

/** The name of the provider's class, which Spark pins in every checkpoint. */
private[spark] object ProviderName {

  /** The setting by which a session chooses its provider. */
  val Key: String = SQLConf.STATE_STORE_PROVIDER_CLASS.key

  val Statemark: String = "statemark.spark.StatemarkStateStoreProvider"

  /** Whether a session's stores are Statemark's. */
  def isUsed(conf: SQLConf): Boolean = conf.stateStoreProviderClass == Statemark
}
