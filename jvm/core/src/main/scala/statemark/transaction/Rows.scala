package statemark.transaction

import statemark.common.Bytes
import statemark.engine.ColumnFamilies

/** Rows of a store as one reader sees them: the owner of a transaction, or who reads beside it.
  *
  * ''Thread:'' as each implementation says. ''Source:'' KIP-892, `ReadOnlyKeyValueStore`.
  */
trait Rows {

  /** Returns the column families that there are. */
  def families: ColumnFamilies

  /** Returns the row of `key`; the array is the caller's. */
  def get(key: Array[Byte]): Option[Array[Byte]]

  /** Returns the rows of `keys` in their order, each as it is when the iterator comes to it: they may be long, and a
    * caller that needs one at a time holds one.
    */
  def getAll(keys: Seq[Array[Byte]]): Iterator[Option[Array[Byte]]] = keys.iterator.map(get)

  /** Opens a scan of `[begin, end)` in key order, of the rows as they are now; the caller closes it. */
  def range(begin: Option[Array[Byte]], end: Option[Array[Byte]]): RowScan

  /** Opens a scan of the rows whose key starts with `prefix`, as [[range]]. */
  def prefix(prefix: Array[Byte]): RowScan = range(Some(prefix), Bytes.prefixEnd(prefix))

  /** Opens a scan as [[prefix]], but in any order, and for a reader that looks at few keys: key and value are there until
    * the next row.
    */
  def unordered(prefix: Array[Byte]): RowScan = this.prefix(prefix)
}

/** Rows in key order; stands before the first. Callers do not change the arrays, which others may have.
  *
  * ''Thread:'' one at a time.
  */
trait RowScan extends AutoCloseable {

  /** Moves to the next row; false at the end. */
  def next(): Boolean
  def key: Array[Byte]
  def value: Array[Byte]
}
