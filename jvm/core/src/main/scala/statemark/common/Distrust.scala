package statemark.common

/** Why a directory that an earlier process left is not used (I6). */
sealed abstract class Distrust(val name: String)

object Distrust {

  /** RocksDB, or a record of ours, cannot be read. */
  case object Damaged extends Distrust("Damaged")

  /** Another release wrote it. */
  case object OtherFormat extends Distrust("OtherFormat")

  /** It is of another query, operator, partition, store, or number of partitions. */
  case object OtherStore extends Distrust("OtherStore")

  /** A version was being applied when the process died. */
  case object Unfinished extends Distrust("Unfinished")

  /** It holds a later version than the one that is asked for. */
  case object Ahead extends Distrust("Ahead")

  /** The checkpoint's history does not contain its version, or no longer the file that it saw. */
  case object OtherHistory extends Distrust("OtherHistory")

  /** Nothing tells which history its version belongs to. */
  case object Unproven extends Distrust("Unproven")

  /** So many changelogs came since that a snapshot is nearer, or one of them is not there. */
  case object TooOld extends Distrust("TooOld")

  val all: Seq[Distrust] =
    Seq(Damaged, OtherFormat, OtherStore, Unfinished, Ahead, OtherHistory, Unproven, TooOld)
}
