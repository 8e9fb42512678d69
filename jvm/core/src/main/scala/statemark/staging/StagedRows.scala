package statemark.staging

import statemark.common.Bytes
import statemark.engine.{BatchReader, BatchRecord, SerializedBatch}

/** Writes that lie over a base, as a read view sees them.
  *
  * ''Thread:'' any, several at once.
  */
private[statemark] trait StagedRows extends StagedScans {
  def lookup(key: Array[Byte]): StagedLookup

  /** Adds a reader, who calls `release`; false where they are gone. */
  def retain(): Boolean = true

  /** Removes a reader. */
  def release(): Unit = ()
}

private[statemark] object StagedRows {

  /** No writes: the base alone. */
  object None extends StagedRows {
    override def lookup(key: Array[Byte]): StagedLookup = StagedLookup.NotStaged
    override def scan(begin: Option[Array[Byte]], end: Option[Array[Byte]]): StagedCursor =
      NothingStaged
  }
}

/** The writes of a prepared version, read where they lie serialized; the first read finds where each is. */
private[statemark] final class PreparedRows(batch: SerializedBatch) extends StagedRows {
  private lazy val tombstones = batch.ranges.foldLeft(RangeTombstones.none) {
    case (all, (begin, end)) => all.added(begin, end)
  }

  override def lookup(key: Array[Byte]): StagedLookup = {
    val part = partOf(key)
    val found = if (part < 0) scala.None
    else {
      val reader = batch.part(part)
      reader.find(key).map(PreparedRows.write(reader, _))
    }
    found.getOrElse(
      if (tombstones.covers(key)) StagedLookup.Deleted else StagedLookup.NotStaged
    )
  }

  override def scan(begin: Option[Array[Byte]], end: Option[Array[Byte]]): StagedCursor = {
    val first = math.max(begin.fold(0)(partOf), 0)
    val writes = (first until batch.parts).iterator
      .takeWhile(part => end.forall(Bytes.order.lt(batch.firstKey(part), _)))
      .map(batch.part)
      .flatMap { part =>
        val until = end.fold(part.length)(part.firstFrom)
        (begin.fold(0)(part.firstFrom) until until).iterator
          .map(i => (part.key(i), PreparedRows.write(part, i)))
      }
    new LayeredCursor(Vector(new IteratorLayer(writes)), tombstones)
  }

  override def retain(): Boolean = batch.retain()
  override def release(): Unit = batch.release()

  /** Returns the last part that begins at or before `key`, -1 where none does. */
  private def partOf(key: Array[Byte]): Int = {
    var low = 0
    var high = batch.parts - 1
    while (low <= high) {
      val middle = (low + high) >>> 1
      if (Bytes.order.lteq(batch.firstKey(middle), key)) low = middle + 1 else high = middle - 1
    }
    high
  }
}

private object PreparedRows {
  def write(reader: BatchReader, i: Int): StagedLookup = reader.record(i) match {
    case BatchRecord.Put(value) => StagedLookup.Value(value)
    // Under a range that the version deleted, operands begin a row.
    case BatchRecord.Merge(operand) => StagedLookup.Operands(operand)
    case BatchRecord.Delete => StagedLookup.Deleted
  }
}
