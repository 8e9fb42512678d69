package statemark.transaction

import statemark.engine.{BaseRows, BatchRecord, FileBatch, HeapBatch, RowCounts}
import statemark.staging.{
  RangeTombstones,
  SpilledCursor,
  SpilledWrite,
  SpilledWrites,
  StagedEntry,
  TransactionBuffer
}

/** Writes out the version of a transaction that has spilled, a part at a time. Merges are resolved against the base,
  * so that the file can be applied again after a crash.
  *
  * ''Thread:'' the owner of the transaction.
  *
  * @param base rows under the transaction
  * @param counts the row counts of the base
  */
private[transaction] final class SpilledBatch(
    base: BaseRows,
    counts: RowCounts,
    mergeDelimiter: Array[Byte]
) {
  import SpilledBatch._

  /** @param spilled all writes of the transaction
    * @param counter is told of them, where rows are tracked
    * @throws statemark.common.ScratchFullException where the disk does not take the file
    */
  def write(
      spilled: SpilledWrites,
      tombstones: RangeTombstones,
      counter: RowCounter,
      staging: Staging,
      version: Long
  ): FileBatch = staging.write(version, tombstones.ranges) { batch =>
    val cursor = spilled.scan(None, None)
    try {
      var chunk = nextChunk(cursor)
      while (chunk.nonEmpty) {
        if (counts.isTracked) count(chunk, tombstones, counter, spilled.writes)
        val rows = merged(chunk).iterator
        chunk.foreach { case (key, write) =>
          write.op match {
            case StagedEntry.Put => batch.put(key, write.value, write.value.length)
            case StagedEntry.Delete => batch.delete(key)
            case _ =>
              val row = rows.next()
              batch.put(key, row, row.length)
          }
        }
        chunk = nextChunk(cursor)
      }
    } finally cursor.close()
  }

  private def nextChunk(cursor: SpilledCursor): Vector[(Array[Byte], SpilledWrite)] = {
    val chunk = Vector.newBuilder[(Array[Byte], SpilledWrite)]
    var bytes = 0L
    while (bytes < ChunkBytes && cursor.headKey.isDefined) {
      val write = cursor.write
      val key = cursor.headKey.get
      chunk += ((key, write))
      bytes += key.length + write.value.length + RecordOverhead
      cursor.advance()
    }
    chunk.result()
  }

  private def count(
      chunk: Vector[(Array[Byte], SpilledWrite)],
      tombstones: RangeTombstones,
      counter: RowCounter,
      writes: Long
  ): Unit = {
    val unknown = chunk.collect { case (key, w) if w.inBase == StagedEntry.Unknown => key }
    // So many rows lie beside the keys of this chunk, if they are spread as all keys are.
    val share = (counts.keys + counts.internalKeys) * chunk.length / math.max(writes, 1L)
    val found =
      if (counts.isZero) Iterator.continually(false) else base.exist(unknown, share).iterator
    chunk.foreach { case (key, write) =>
      val isInBase =
        if (write.inBase == StagedEntry.Unknown) found.next()
        else write.inBase == StagedEntry.Present
      counter.written(key, write.op != StagedEntry.Delete, isInBase && !tombstones.covers(key))
    }
  }

  /** Returns the rows that merges make. None of them is under a tombstone: there, operands begin a row. */
  private def merged(chunk: Vector[(Array[Byte], SpilledWrite)]): Seq[Array[Byte]] = {
    val merges = chunk.filter(_._2.op == StagedEntry.Merge)
    base.getAll(merges.map(_._1)).zip(merges).map { case (row, (_, write)) =>
      TransactionBuffer.merged(row, write.value, mergeDelimiter)
    }
  }
}

private[statemark] object SpilledBatch {

  /** Moves a prepared version to disk.
    * @param base the rows that it was made on
    */
  def spill(
      batch: HeapBatch,
      base: BaseRows,
      mergeDelimiter: Array[Byte],
      staging: Staging,
      version: Long
  ): FileBatch = staging.write(version, batch.ranges) { out =>
    for (p <- 0 until batch.parts; part = batch.part(p); i <- 0 until part.length) {
      val key = part.key(i)
      part.record(i) match {
        case BatchRecord.Put(value) => out.put(key, value, value.length)
        case BatchRecord.Delete => out.delete(key)
        case BatchRecord.Merge(operand) =>
          val row = TransactionBuffer.merged(base.get(key), operand, mergeDelimiter)
          out.put(key, row, row.length)
      }
    }
  }

  private val ChunkBytes = 1024L * 1024
  private val RecordOverhead = 100L
}
