package statemark.spark.plan

/** What a line of Spark asks of a session in which a real-time query starts. */
private[spark] object RealTimeMode {

  /** Whether Spark refuses every real-time query in a session whose `providerClass` names another provider than its own.
    *
    * ''Source:'' Spark 4.3 `StreamingQueryManager`: the check is by the exact name, and made where the session has the key.
    */
  val refusesProviders: Boolean = true
}
