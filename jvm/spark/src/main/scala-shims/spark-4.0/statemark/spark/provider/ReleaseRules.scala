package statemark.spark.provider

/** Spark 4.0 knows no release of a store: it aborts what it has read, also after its task has ended. */
private[spark] object ReleaseRules {
  val areAborted: Boolean = true
}
