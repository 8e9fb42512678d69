package statemark.spark.offline.repartition

/** How far a repartition is.
  *
  * @param store the one that is being moved, as `operator/name`
  * @param partitionsDone of that store
  * @param rows of all stores so far
  */
final case class RepartitionProgress(
    store: String,
    storesDone: Int,
    stores: Int,
    partitionsDone: Int,
    partitions: Int,
    rows: Long
)

/** What a repartition, or its rollback, came to. */
sealed trait RepartitionResult

object RepartitionResult {

  /** State of `stores` stores lies in `to` partitions; the next run of the query goes on with them. */
  final case class Moved(batch: Long, from: Int, to: Int, stores: Int, rows: Long)
      extends RepartitionResult

  /** What [[Moved]] would be; nothing was done.
    *
    * @param isBegun whether an interrupted repartition would go on
    * @param givenUp the last batch, where it is not committed and would be read again
    */
  final case class WouldMove(
      batch: Long,
      from: Int,
      to: Int,
      stores: Int,
      isBegun: Boolean,
      givenUp: Option[Long]
  ) extends RepartitionResult

  /** What [[RolledBack]] would be; nothing was done. */
  final case class WouldRollBack(batch: Long, partitions: Int) extends RepartitionResult

  /** The query has that many partitions: nothing was done. */
  final case class Unchanged(partitions: Int) extends RepartitionResult

  /** What an unfinished repartition had written is gone; the query has `partitions` as before. */
  final case class RolledBack(batch: Long, partitions: Int) extends RepartitionResult

  /** No repartition was under way. */
  case object NothingToRollBack extends RepartitionResult
}
