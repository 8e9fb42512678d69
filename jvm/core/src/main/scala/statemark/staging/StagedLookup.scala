package statemark.staging

/** The staged state of a key. */
sealed trait StagedLookup

object StagedLookup {

  /** Nothing: the base decides. */
  case object NotStaged extends StagedLookup

  /** Nothing, and a read of this transaction has found that the base has nothing either. */
  case object KnownAbsent extends StagedLookup

  /** Deleted, by its key or with a range. */
  case object Deleted extends StagedLookup

  final case class Value(bytes: Array[Byte]) extends StagedLookup

  /** Operands, already joined, that append to what the base has. */
  final case class Operands(bytes: Array[Byte]) extends StagedLookup

  /** Returns what a write of a kind, of [[StagedTable]], means. */
  private[statemark] def apply(op: Byte, value: => Array[Byte]): StagedLookup = op match {
    case StagedTable.Put => Value(value)
    case StagedTable.Merge => Operands(value)
    case StagedTable.Delete => Deleted
    case _ => NotStaged
  }
}
