package statemark.spark.conf

/** Names of the functions that the extension adds to a session. */
private[spark] object SqlFunctions {
  val Latest: String = "statemark_latest"
}
