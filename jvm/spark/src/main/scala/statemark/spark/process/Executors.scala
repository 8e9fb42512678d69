package statemark.spark.process

import org.apache.spark.SparkEnv

/** Ids and hosts of executors. */
private[spark] object Executors {

  /** The id of the executor that is the driver itself. ''Source:'' Spark 4.2 `SparkContext.DRIVER_IDENTIFIER`. */
  val Driver: String = "driver"

  /** Returns the name by which the scheduler knows the host of this executor. Executors of a cluster serve no RPC, and
    * `PluginContext.hostname` fails there.
    */
  def host(env: SparkEnv): String = env.blockManager.blockManagerId.host
}
