package statemark.staging

/** Staged writes of a key range in key order, as they stood when the scan was opened: those in memory over those
  * that are spilled. Where memory is spilled meanwhile, the scan goes on with what was written of it.
  *
  * ''Thread:'' the owner of the transaction.
  *
  * @param seq the sequence number of the newest write that the scan sees
  * @param closed is told when the scan is closed
  */
final class StagedScan private[statemark] (
    memory: StagedLayer,
    spilled: Option[SpilledCursor],
    end: Option[Array[Byte]],
    private[statemark] val seq: Long,
    tombstones: RangeTombstones,
    closed: StagedScan => Unit
) extends LayeredCursor(memory +: spilled.toVector, tombstones) {

  /** Memory has been spilled as this scan sees it, and nothing later has. Older cursors are of use only where
    * ranges were deleted after they were opened.
    */
  private[statemark] def moveTo(spilled: SpilledWrites): Unit = {
    val at = headKey
    val (useful, useless) = layers.partition {
      case cursor: SpilledCursor => cursor.rangeDeletes != spilled.rangeDeletes
      case _ => false
    }
    useless.foreach(_.close())
    layers = at.map(key => spilled.scanLater(Some(key), end)).toVector ++ useful
  }

  override def close(): Unit = {
    super.close()
    closed(this)
  }
}
