package statemark.transaction

import statemark.engine.{BaseRows, HeapBatch, RowCursor, SerializedBatch}

/** The base, with the keys that were written to it last kept at hand: batches often write the same keys, and whether
  * these are there need not be looked up then (ADR 4). Kept only where memory has room, and where it pays: not where
  * operators read what they write, and not where they write other keys each time.
  *
  * ''Thread:'' as the base; `written` and `forget` under the lock of the store.
  *
  * @param memory in which they are counted; None for memory without a limit
  */
private[statemark] final class RecentRows(base: BaseRows, memory: Option[UncommittedMemory#Member])
    extends BaseRows {
  import RecentRows._

  @volatile private var last = Option.empty[HeapBatch]
  @volatile private var isAsked = true
  @volatile private var versionsToPass = 0

  /** Records that `batch` has been written to the base. */
  def written(batch: SerializedBatch): Unit = {
    forget()
    if (versionsToPass > 0) versionsToPass -= 1
    else if (isAsked) keep(batch)
    isAsked = false
  }

  private def keep(batch: SerializedBatch): Unit = batch match {
    case heap: HeapBatch =>
      val keys = heap.keys
      if (memory.forall(_.keep(keys.heapBytes))) last = Some(keys)
    case _ => ()
  }

  def forget(): Unit = {
    last = None
    memory.foreach(_.forget())
  }

  override def exist(keys: IndexedSeq[Array[Byte]], rowCount: Long): Array[Boolean] = {
    if (keys.nonEmpty) isAsked = true
    last.filter(_.parts > 0) match {
      case None => base.exist(keys, rowCount)
      case Some(batch) => exist(keys, rowCount, batch)
    }
  }

  private def exist(keys: IndexedSeq[Array[Byte]], rowCount: Long, batch: HeapBatch) = {
    val reader = batch.part(0)
    val found = new Array[Boolean](keys.length)
    val unknown = Array.newBuilder[Int]
    var at = 0
    for (i <- keys.indices) {
      at = reader.firstFrom(keys(i), at)
      if (reader.isAt(at, keys(i))) found(i) = reader.leavesRow(at)
      else unknown += i
    }
    val others = unknown.result()
    if (others.length > keys.length - keys.length / FewestNamed) versionsToPass = Pause
    if (others.nonEmpty) {
      val rest = base.exist(others.toIndexedSeq.map(keys), rowCount)
      for (i <- others.indices) found(others(i)) = rest(i)
    }
    found
  }

  override def get(key: Array[Byte]): Option[Array[Byte]] = base.get(key)

  override def scan(begin: Option[Array[Byte]], end: Option[Array[Byte]]): RowCursor =
    base.scan(begin, end)

  override def rest(): Unit = base.rest()
}

private object RecentRows {

  /** The least share of keys, as one in so many, that the version before must have written. Below it the versions
    * after are not kept.
    */
  private val FewestNamed = 16

  /** The number of versions that are not kept. Then one is kept again, as queries change. */
  private val Pause = 16
}
