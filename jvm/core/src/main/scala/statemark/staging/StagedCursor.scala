package statemark.staging

import statemark.common.Bytes

/** Staged writes of a key range in key order.
  *
  * ''Thread:'' one.
  */
private[statemark] trait StagedCursor extends AutoCloseable {

  /** Returns the key that it stands at; None at its end. */
  def headKey: Option[Array[Byte]]

  /** Returns the key and write that it stands at; None at its end. */
  def head: Option[(Array[Byte], StagedLookup)]

  def advance(): Unit

  /** Returns the ranges whose rows of the base are deleted. */
  def tombstones: RangeTombstones
}

/** Where a scan finds staged writes. */
private[statemark] trait StagedScans {

  /** Opens a scan of the writes in `[begin, end)`; one thread uses the cursor. */
  def scan(begin: Option[Array[Byte]], end: Option[Array[Byte]]): StagedCursor
}

/** A range without a staged write. */
private[statemark] object NothingStaged extends StagedCursor {
  override def headKey: Option[Array[Byte]] = None
  override def head: Option[(Array[Byte], StagedLookup)] = None
  override def advance(): Unit = ()
  override def tombstones: RangeTombstones = RangeTombstones.none
  override def close(): Unit = ()
}

/** A part of what is staged, in key order. */
private[statemark] trait StagedLayer extends AutoCloseable {
  def headKey: Option[Array[Byte]]
  def head: Option[(Array[Byte], StagedLookup)]
  def advance(): Unit
}

/** Staged writes in key order, out of several layers: of those that have a key, the first decides.
  *
  * ''Thread:'' one.
  */
private[statemark] class LayeredCursor(
    initial: Vector[StagedLayer],
    val tombstones: RangeTombstones
) extends StagedCursor {
  // Values are not held here: a scan may be left as it is for long.
  protected var layers: Vector[StagedLayer] = initial
  private var isClosed = false

  override def headKey: Option[Array[Byte]] = smallest.flatMap(_.headKey)

  override def head: Option[(Array[Byte], StagedLookup)] = smallest.flatMap(_.head)

  override def advance(): Unit =
    if (layers.length == 1) layers(0).advance()
    else
      headKey.foreach { key =>
        layers.foreach(l => if (l.headKey.exists(Bytes.order.equiv(_, key))) l.advance())
      }

  private def smallest: Option[StagedLayer] =
    if (layers.length == 1) Some(layers(0))
    else layers.filter(_.headKey.isDefined).minByOption(_.headKey.get)(Bytes.order)

  override def close(): Unit = if (!isClosed) {
    isClosed = true
    layers.foreach(_.close())
  }
}

/** Writes in key order. */
private[statemark] class IteratorLayer(writes: Iterator[(Array[Byte], StagedLookup)])
    extends StagedLayer {
  private var current = writes.nextOption()

  override def headKey: Option[Array[Byte]] = current.map(_._1)
  override def head: Option[(Array[Byte], StagedLookup)] = current
  override def advance(): Unit = current = writes.nextOption()
  override def close(): Unit = ()
}
