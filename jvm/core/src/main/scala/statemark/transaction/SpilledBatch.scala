package statemark.transaction

import java.nio.ByteBuffer
import java.util.Arrays
import statemark.engine.{BaseRows, BatchWriter, FileBatch, HeapBatch, RowCounts}
import statemark.staging.{
  RangeTombstones,
  SpilledCursor,
  SpilledWrite,
  SpilledWrites,
  StagedTable,
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

  /** @param held heap bytes that the transaction holds beside the part that is written
    * @param spilled all writes of the transaction
    * @param counter is told of them, where rows are tracked
    * @throws statemark.common.ScratchFullException where the disk does not take the file
    */
  def write(
      held: Long,
      spilled: SpilledWrites,
      tombstones: RangeTombstones,
      counter: RowCounter,
      staging: Staging,
      version: Long
  ): FileBatch = staging.write(version, tombstones.ranges) { batch =>
    val cursor = spilled.scan(None, None)
    try {
      var chunk = nextChunk(cursor, staging)
      while (chunk.nonEmpty) {
        val chunkHeld = held + chunk.iterator.map(bytesOf).sum
        staging.memory.holdsOpen(chunkHeld): Unit
        if (counts.isTracked) count(chunk, tombstones, counter, spilled.writes)
        chunk.foreach { case (key, write) =>
          write.op match {
            case StagedTable.Put => batch.put(key, write.value)
            case StagedTable.Delete => batch.delete(key)
            case _ =>
              // None of them is under a tombstone: there, operands begin a row.
              val row = staging.merged(base, key, write.value, mergeDelimiter, chunkHeld)
              batch.put(key, row)
          }
        }
        chunk = nextChunk(cursor, staging)
      }
    } finally cursor.close()
  }

  private def nextChunk(
      cursor: SpilledCursor,
      staging: Staging
  ): Vector[(Array[Byte], SpilledWrite)] = {
    val chunk = Vector.newBuilder[(Array[Byte], SpilledWrite)]
    var bytes = 0L
    while (bytes < staging.segmentBytes && cursor.headKey.isDefined) {
      val write = (cursor.headKey.get, cursor.write)
      chunk += write
      bytes += bytesOf(write)
      cursor.advance()
    }
    chunk.result()
  }

  private def bytesOf(write: (Array[Byte], SpilledWrite)): Long =
    write._1.length + write._2.value.length + RecordOverhead

  private def count(
      chunk: Vector[(Array[Byte], SpilledWrite)],
      tombstones: RangeTombstones,
      counter: RowCounter,
      writes: Long
  ): Unit = {
    val unknown = chunk.collect { case (key, w) if w.inBase == StagedTable.Unknown => key }
    // So many rows lie beside the keys of this chunk, if they are spread as all keys are.
    val share = (counts.keys + counts.internalKeys) * chunk.length / math.max(writes, 1L)
    val found =
      if (counts.isZero) Iterator.continually(false) else base.exist(unknown, share).iterator
    chunk.foreach { case (key, write) =>
      val isInBase =
        if (write.inBase == StagedTable.Unknown) found.next()
        else write.inBase == StagedTable.Present
      counter.written(key, write.op != StagedTable.Delete, isInBase && !tombstones.covers(key))
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
    batch.foreachRecord { (tag, in, key, keyLength, value, valueLength) =>
      lazy val bytes = ByteBuffer.wrap(in)
      tag match {
        case BatchWriter.Put => out.record(tag, bytes, key, keyLength, bytes, value, valueLength)
        case BatchWriter.Delete => out.record(tag, bytes, key, keyLength, bytes, value, -1)
        case BatchWriter.Merge =>
          val name = Arrays.copyOfRange(in, key, key + keyLength)
          val operand = Arrays.copyOfRange(in, value, value + valueLength)
          out.put(name, TransactionBuffer.merged(base.get(name), operand, mergeDelimiter))
        case _ => () // the ranges are there
      }
    }
  }

  private val RecordOverhead = 100L
}
