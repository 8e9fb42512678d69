package statemark.transaction

import statemark.common.Bytes
import statemark.engine.{BatchReader, BatchRecord}

/** Writes that lie over a base, as a read view sees them.
  *
  * ''Thread:'' any, several at once.
  */
private[statemark] trait StagedRows {
  def lookup(key: Array[Byte]): StagedLookup

  /** Writes in `[begin, end)`; one thread uses the cursor. */
  def scan(begin: Option[Array[Byte]], end: Option[Array[Byte]]): StagedCursor
}

private[statemark] object StagedRows {

  /** No writes: the base alone. */
  object None extends StagedRows {
    override def lookup(key: Array[Byte]): StagedLookup = StagedLookup.NotStaged
    override def scan(begin: Option[Array[Byte]], end: Option[Array[Byte]]): StagedCursor =
      new IndexedCursor(0, 0, RangeTombstones.none)(_ => throw new NoSuchElementException)
  }
}

/** The writes of a prepared version, read where they lie serialized; the first read finds where each is. */
private[statemark] final class PreparedRows(segments: Vector[Array[Byte]]) extends StagedRows {
  private lazy val batch = new BatchReader(segments)
  private lazy val tombstones = batch.ranges.foldLeft(RangeTombstones.none) {
    case (all, (begin, end)) => all.added(begin, end)
  }

  override def lookup(key: Array[Byte]): StagedLookup =
    batch.find(key).map(write).getOrElse(
      if (tombstones.covers(key)) StagedLookup.Deleted else StagedLookup.NotStaged
    )

  override def scan(begin: Option[Array[Byte]], end: Option[Array[Byte]]): StagedCursor = {
    val from = begin.fold(0)(batch.firstFrom)
    new IndexedCursor(from, end.fold(batch.length)(batch.firstFrom), tombstones)(i =>
      (batch.key(i), write(i))
    )
  }

  private def write(i: Int): StagedLookup = batch.record(i) match {
    case BatchRecord.Put(value) => StagedLookup.Value(value)
    // Under a range that the version deleted, operands begin a row.
    case BatchRecord.Merge(operand) => StagedLookup.Operands(operand)
    case BatchRecord.Delete => StagedLookup.Deleted
  }
}

/** The writes of an open transaction, as they are at the moment of each read: its owner goes on. A scan sees
  * each key as it stood at some moment while the scan was opened.
  */
private[statemark] final class OpenRows(buffer: TransactionBuffer) extends StagedRows {
  override def lookup(key: Array[Byte]): StagedLookup = buffer.lookupBeside(key)

  override def scan(begin: Option[Array[Byte]], end: Option[Array[Byte]]): StagedCursor = {
    val (writes, tombstones) = buffer.copyBeside(key =>
      begin.forall(Bytes.order.lteq(_, key)) && end.forall(Bytes.order.lt(key, _))
    )
    val sorted = writes.sortBy(_._1)(Bytes.order)
    new IndexedCursor(0, sorted.length, tombstones)(sorted)
  }
}

private final class IndexedCursor(from: Int, until: Int, val tombstones: RangeTombstones)(
    at: Int => (Array[Byte], StagedLookup)
) extends StagedCursor {
  private var next = from
  private var current: Option[(Array[Byte], StagedLookup)] = None
  advance()

  override def head: Option[(Array[Byte], StagedLookup)] = current
  override def advance(): Unit = {
    current = Option.when(next < until)(at(next))
    next += 1
  }
  override def close(): Unit = ()
}
