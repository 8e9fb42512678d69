package statemark.spark.provider

/** These lines of Spark release a store that they have read. */
private[spark] object ReleaseRules {
  val areAborted: Boolean = false
}
