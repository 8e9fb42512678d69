package statemark.engine

import org.rocksdb.{ReadOptions, RocksIterator, Slice}

/** A cursor over rows of a base store, in key order.
  *
  * ''Thread:'' one at a time.
  */
trait RowCursor extends AutoCloseable {

  /** Returns the key that it stands at, None at the end. */
  def keyOrEnd(): Option[Array[Byte]]

  /** Returns the value that it stands at, before the end only. */
  def value: Array[Byte]

  def next(): Unit
}

/** The rows of the base, under a transaction. */
private[statemark] trait BaseRows {
  def get(key: Array[Byte]): Option[Array[Byte]]

  /** Returns rows of `keys`, in their order. */
  def getAll(keys: Seq[Array[Byte]]): Seq[Option[Array[Byte]]]

  /** Tells of each of `keys` whether it has a row.
    * @param keys ascending
    * @param rowCount number of rows that there are
    */
  def exist(keys: IndexedSeq[Array[Byte]], rowCount: Long): Array[Boolean]

  /** Returns rows of `[begin, end)` in key order, as they are now. */
  def scan(begin: Option[Array[Byte]], end: Option[Array[Byte]]): RowCursor
}

/** The cursor of who owns the engine; stands before the end at a row where `isValid`. */
final class EngineScan private[engine] (
    iterator: RocksIterator,
    handles: NativeHandles,
    check: () => Unit
) extends RowCursor {
  def isValid: Boolean = {
    val valid = iterator.isValid
    if (!valid) check()
    valid
  }
  def key: Array[Byte] = iterator.key()

  override def keyOrEnd(): Option[Array[Byte]] = if (isValid) Some(key) else None
  override def value: Array[Byte] = iterator.value()
  override def next(): Unit = iterator.next()
  override def close(): Unit = handles.close()
}

private[engine] object EngineScan {

  /** Returns rows of `[begin, end)`.
    * @param options the scan's from now on
    * @param checked asks for the state of the iterator, which throws where it could not read
    */
  def open(
      newIterator: ReadOptions => RocksIterator,
      options: ReadOptions,
      begin: Option[Array[Byte]],
      end: Option[Array[Byte]]
  )(checked: (() => Unit) => Unit): EngineScan = {
    val handles = new NativeHandles
    handles.add(options): Unit
    end.foreach(e => options.setIterateUpperBound(handles.add(new Slice(e))))
    val iterator = handles.add(newIterator(options))
    begin.fold(iterator.seekToFirst())(iterator.seek)
    new EngineScan(iterator, handles, () => checked(() => iterator.status()))
  }
}
