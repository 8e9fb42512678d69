package statemark.transaction

import java.io.File
import java.util.concurrent.atomic.AtomicInteger
import statemark.engine.{BaseRows, BatchWriter, EngineOptions, FileBatch, ScratchStore}
import statemark.staging.{SpilledWrites, TransactionBuffer}

/** The place for staged writes of a store that memory has no room for.
  *
  * ''Thread:'' the owner of the store.
  *
  * @param directory its own, in the base store's directory: RocksDB leaves it alone
  */
private[statemark] final class Staging(
    val directory: File,
    options: EngineOptions,
    val memory: UncommittedMemory#Member,
    val observer: CommitObserver
) {
  private def newFile(name: Int => String): File =
    new File(directory, name(Staging.created.incrementAndGet()))

  /** Makes the spilled writes of one transaction, which closes them. */
  def newScratch(): SpilledWrites =
    new SpilledWrites(new ScratchStore(newFile(n => s"scratch-$n"), options))

  /** Writes of one version. */
  def write(version: Long, ranges: Vector[(Array[Byte], Array[Byte])])(
      rows: BatchWriter => Unit
  ): FileBatch =
    FileBatch.write(newFile(n => s"$version-$n.batch"), segmentBytes, ranges)(rows)

  /** Returns the row that operands make. The row of the base is read alone, as it may be long, and counted with `held`
    * bytes until the next one.
    */
  def merged(
      base: BaseRows,
      key: Array[Byte],
      operands: Array[Byte],
      delimiter: Array[Byte],
      held: Long
  ): Array[Byte] = {
    val row = base.get(key)
    memory.holdsOpen(held + 2L * row.fold(0)(_.length)): Unit
    TransactionBuffer.merged(row, operands, delimiter)
  }

  /** Returns the size of a segment, a small part of the limit: a segment is on the heap while it is written and
    * read, and so are the spilled writes that go into it.
    */
  def segmentBytes: Int =
    math.min(Staging.MaxSegmentBytes, math.max(memory.ownLimit / 8, Staging.MinSegmentBytes)).toInt
}

private object Staging {

  /** A name is given once in a process: a reader of an old file never meets the bytes of a new one, nor deletes it, and
    * there may be one when the directory of a store is opened again.
    */
  private val created = new AtomicInteger
  private val MaxSegmentBytes = 256L * 1024
  private val MinSegmentBytes = 256L
}
