package statemark.spark.process

/** Ids of executors. */
private[spark] object Executors {

  /** The id of the executor that is the driver itself. ''Source:'' Spark 4.2 `SparkContext.DRIVER_IDENTIFIER`. */
  val Driver: String = "driver"
}
