package statemark.transaction

import java.io.File
import statemark.engine.{BatchWriter, EngineOptions, FileBatch, ScratchStore}

/** Where a store puts staged writes that memory has no room for.
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
  // A name is given once: a reader of an old file never meets the bytes of a new one.
  private var created = 0

  private def newFile(name: Int => String): File = {
    created += 1
    new File(directory, name(created))
  }

  /** For one transaction, which closes it. */
  def newScratch(): SpilledWrites =
    new SpilledWrites(new ScratchStore(newFile(n => s"scratch-$n"), options))

  /** Writes of one version. */
  def write(version: Long, ranges: Vector[(Array[Byte], Array[Byte])])(
      rows: BatchWriter => Unit
  ): FileBatch =
    FileBatch.write(newFile(n => s"$version-$n.batch"), segmentBytes, ranges)(rows)

  /** A small part of the limit: a segment is on the heap while it is written and read. */
  private def segmentBytes: Int =
    math.min(Staging.MaxSegmentBytes, math.max(memory.ownLimit / 8, Staging.MinSegmentBytes)).toInt
}

private object Staging {
  private val MaxSegmentBytes = 256L * 1024
  private val MinSegmentBytes = 256L
}
