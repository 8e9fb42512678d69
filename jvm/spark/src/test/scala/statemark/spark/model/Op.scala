package statemark.spark.model

/** One step of a history. Families and keys are wishes: numbers that the [[Machine]] maps to a
  * family that is there and suits, and to a key of its pool. A step that is not legal where it
  * stands is passed over; so any sub-sequence of a history is a history, which is all that
  * shrinking needs.
  */
sealed trait Op

/** A step that changes the content of the open store. */
sealed trait Write extends Op

object Op {
  final case class Put(family: Int, key: Int, value: Int) extends Write
  final case class PutList(family: Int, key: Int, values: Seq[Int]) extends Write
  final case class Merge(family: Int, key: Int, value: Int) extends Write
  final case class MergeList(family: Int, key: Int, values: Seq[Int]) extends Write
  final case class Remove(family: Int, key: Int) extends Write
  final case class DeleteRange(family: Int, from: Int, until: Int) extends Write
  final case class CreateFamily(family: Int) extends Write
  final case class RemoveFamily(family: Int) extends Write

  final case class Get(family: Int, key: Int) extends Op
  final case class MultiGet(family: Int, keys: Seq[Int]) extends Op
  final case class KeyExists(family: Int, key: Int) extends Op
  final case class Values(family: Int, key: Int) extends Op

  /** A scan read to its end at once. */
  final case class ReadScan(family: Int, scan: Scan, multi: Boolean) extends Op

  /** A scan left open while others write. @param slot at most one scan is open in each */
  final case class OpenScan(slot: Int, family: Int, scan: Scan, multi: Boolean) extends Op
  final case class AdvanceScan(slot: Int, keys: Int) extends Op
  final case class FinishScan(slot: Int) extends Op
  final case class CloseScan(slot: Int) extends Op

  /** Every row of every family, and the names of the families. */
  case object ReadAll extends Op

  /** @param rewind ask for the version before the newest: a retry of the last batch
    * @param readOnly a read store, to be upgraded or released
    * @param forceSnapshot what the coordinator asks of stores whose snapshots lag
    */
  final case class Open(rewind: Boolean, readOnly: Boolean, forceSnapshot: Boolean) extends Op
  final case class Upgrade(forceSnapshot: Boolean) extends Op
  case object Commit extends Op

  /** Ends the open store: a write store aborts, a read store releases. */
  case object Abort extends Op

  /** Format v2: the query went on from another attempt at the newest version. */
  final case class AdoptAttempt(choice: Int) extends Op

  /** @param linger the old provider object stays open beside the new one for a while */
  final case class Reload(linger: Boolean) extends Op
  final case class CloseLingering(maintenanceFirst: Boolean) extends Op
  case object Maintenance extends Op

  /** The query is stopped, its last batches are taken back by hand, and it starts again. */
  final case class RollBack(batches: Int) extends Op

  /** Spark's own provider goes on with the query, a version for each group of writes. */
  final case class SparkBatches(batches: Seq[Seq[Write]], hasChangelogs: Boolean) extends Op

  /** A second provider reads an older version. */
  final case class ReadOld(choice: Int, readStore: Boolean) extends Op

  /** A second provider replays changelogs onto one given snapshot. */
  final case class Replay(choice: Int, readOnly: Boolean) extends Op
}
