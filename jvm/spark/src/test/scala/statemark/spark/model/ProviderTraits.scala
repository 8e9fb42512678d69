package statemark.spark.model

/** Where providers may rightly differ.
  *
  * @param countsRangeDeletes a range delete lowers the row count; Spark 4.2.0's provider leaves it
  * @param retriesMayDiffer in format v1 a retried batch may write other rows than its first attempt.
  *   Spark 4.2.0's provider may then load a snapshot that the first attempt left
  */
final case class ProviderTraits(countsRangeDeletes: Boolean, retriesMayDiffer: Boolean)

object ProviderTraits {
  val spark: ProviderTraits = ProviderTraits(countsRangeDeletes = false, retriesMayDiffer = false)
  val statemark: ProviderTraits = ProviderTraits(countsRangeDeletes = true, retriesMayDiffer = true)
}
