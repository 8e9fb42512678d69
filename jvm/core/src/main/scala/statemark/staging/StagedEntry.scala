package statemark.staging

/** The entry of a transaction for one key: the write that stands, if any, and whether the base has it.
  *
  * A write is folded into the one before it. While scans are open, the one before is kept for them
  * (`older`), so that each sees what stood when it was opened; `seq` orders writes and scans.
  *
  * A value is the first `length` bytes of `value`: merges append to the array beyond what older
  * writes see of it.
  */
private[statemark] final class StagedEntry(val key: Array[Byte], val hash: Long) {
  var op: Byte = StagedEntry.NoWrite
  var seq: Long = 0L
  var value: Array[Byte] = Array.emptyByteArray
  var length: Int = 0
  var older: Option[StagedEntry.OlderWrite] = None

  /** Tells whether the base has the key; Unknown until a read has told. */
  var inBase: Byte = StagedEntry.Unknown

  /** The next entry of the same hash slot, null at the end. */
  var nextInSlot: StagedEntry = _

  def hasWrite: Boolean = op != StagedEntry.NoWrite

  /** Returns the write that stands, without those before it. */
  def newest: StagedEntry.OlderWrite = StagedEntry.OlderWrite(seq, op, value, length, None)

  /** Returns the earlier writes that are kept, newest first. */
  def olderWrites: Iterator[StagedEntry.OlderWrite] =
    Iterator.unfold(older)(_.map(write => (write, write.older)))

  /** Returns the write that stood at `seq`, without those before it: they may be dropped while it is held. */
  def at(seq: Long): Option[StagedEntry.OlderWrite] =
    if (hasWrite && this.seq <= seq) Some(newest)
    else {
      var write = older
      while (write.exists(_.seq > seq)) write = write.get.older
      write.map(_.copy(older = None))
    }
}

private[statemark] object StagedEntry {
  final val NoWrite: Byte = 0
  final val Put: Byte = 1
  final val Delete: Byte = 2

  /** Operands to append to what the base has. */
  final val Merge: Byte = 3

  final val Unknown: Byte = 0
  final val Present: Byte = 1
  final val Absent: Byte = 2

  final case class OlderWrite(
      seq: Long,
      op: Byte,
      value: Array[Byte],
      length: Int,
      older: Option[OlderWrite]
  )
}

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
}
