package statemark.spark.plan

/** What a line of Spark asks of a session in which a real-time query starts. */
private[spark] object RealTimeMode {

  /** Whether Spark refuses every real-time query in a session whose `providerClass` names another provider than its own.
    *
    * ''Source:'' These lines look at no provider when a real-time query starts.
    */
  val refusesProviders: Boolean = false
}
