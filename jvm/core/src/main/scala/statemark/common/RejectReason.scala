package statemark.common

/** Why a directory that an earlier process left is not used (I6). */
sealed abstract class RejectReason(val name: String)

object RejectReason {

  /** RocksDB, or a record of ours, cannot be read. */
  case object Damaged extends RejectReason("Damaged")

  /** Another release wrote it. */
  case object OtherFormat extends RejectReason("OtherFormat")

  /** The directory is of another query, operator, partition, store, or number of partitions. */
  case object OtherStore extends RejectReason("OtherStore")

  /** A version was being applied when the process died. */
  case object Unfinished extends RejectReason("Unfinished")

  /** The directory holds a later version than the one that is asked for. */
  case object Ahead extends RejectReason("Ahead")

  /** The checkpoint's history does not contain its version, or no longer the file that it saw. */
  case object OtherHistory extends RejectReason("OtherHistory")

  /** Nothing tells which history its version belongs to. */
  case object Unproven extends RejectReason("Unproven")

  /** So many changelogs came since that a snapshot is nearer, or one of them is not there. */
  case object TooOld extends RejectReason("TooOld")

  val all: Seq[RejectReason] =
    Seq(Damaged, OtherFormat, OtherStore, Unfinished, Ahead, OtherHistory, Unproven, TooOld)
}
