package statemark.spark.model

import scala.collection.mutable
import statemark.spark.Line

import org.apache.spark.sql.execution.streaming.state._

/** A scan that was opened and not yet read to its end: the rows it must still return are those that
  * the store held when it was opened.
  */
final class PendingScan(
    val family: Family,
    iterator: StateStoreIterator[UnsafeRowPair],
    rows: State.Rows,
    multi: Boolean
) {
  private var expected = rows.toList

  /** Reads the rows of up to `count` keys. Between two keys it asks nothing of the iterator, so that
    * rows which iterators of one store share are never looked at after another one has moved.
    */
  def advance(count: Int): Unit = {
    val (now, later) = expected.splitAt(count)
    expected = later
    now.foreach { case (key, values) =>
      (if (multi) values else values.take(1)).foreach(value => expect(Some(key -> value)))
    }
  }

  def finish(): Unit = {
    advance(Int.MaxValue)
    expect(None)
    iterator.close()
  }

  def close(): Unit = iterator.close()

  private def expect(row: Option[(Int, Int)]): Unit = {
    val actual =
      if (!iterator.hasNext) None
      else {
        val pair = iterator.next()
        val (key, value) = (pair.key.copy(), pair.value.copy())
        Some(family.rank(key) -> Family.value(value))
      }
    def show(of: Option[(Int, Int)]) =
      of.fold("the end")(pair => s"${family.show(pair._1)} -> ${pair._2}")
    if (actual != row) throw Disagreement(s"${show(row)} of ${showAll()}", show(actual))
  }

  private def showAll(): String = rows
    .map(row => s"${family.show(row._1)} -> ${row._2.mkString(",")}")
    .mkString("{", ", ", "}")
}

/** The store that a history has open, and what it must contain.
  *
  * @param repeats in a retry that must repeat its first attempt: what is still to be repeated
  */
final class OpenStore(
    val base: Version,
    val reader: ReadStateStore,
    var writer: Option[StateStore],
    var repeats: Option[List[Write]]
) {
  var state: State = base.state
  val writes: mutable.ArrayBuffer[Write] = mutable.ArrayBuffer.empty
  val scans: mutable.Map[Int, PendingScan] = mutable.Map.empty
  var changesFamilies: Boolean = false

  /** After an upgrade both stores serve reads; keys take turns. */
  def readThrough(key: Int): ReadStateStore = if (key % 2 == 0) reader else writer.getOrElse(reader)

  def openScan(family: Family, scan: Scan, multi: Boolean): PendingScan = {
    val store = readThrough(writes.size)
    val name = family.name
    val iterator = (scan, multi) match {
      case (Scan.All, false) => store.iterator(name)
      case (Scan.All, true) => Line.iteratorWithMultiValues(store, name)
      case (Scan.Prefix(key), false) => store.prefixScan(family.prefixRow(key), name)
      case (Scan.Prefix(key), true) =>
        Line.prefixScanWithMultiValues(store, family.prefixRow(key), name)
      case (Scan.Range(from, until), false) =>
        Line.rangeScan(store, from.map(family.row), until.map(family.row), name)
      case (Scan.Range(from, until), true) =>
        Line.rangeScanWithMultiValues(store, from.map(family.row), until.map(family.row), name)
    }
    new PendingScan(family, iterator, state.scan(family, scan), multi)
  }

  /** Applies a write, whose families and keys are real ones, to the store and to the model. */
  def write(write: Write, family: Family): Unit = {
    val store = writer.get
    val name = family.name
    write match {
      case Op.Put(_, key, value) =>
        store.put(family.row(key), Family.valueRow(value), name)
        state = state.put(family, key, Seq(value))
      case Op.PutList(_, key, values) =>
        Line.putList(store, family.row(key), values.map(Family.valueRow).toArray, name)
        state = state.put(family, key, values)
      case Op.Merge(_, key, value) =>
        store.merge(family.row(key), Family.valueRow(value), name)
        state = state.merge(family, key, Seq(value))
      case Op.MergeList(_, key, values) =>
        Line.mergeList(store, family.row(key), values.map(Family.valueRow).toArray, name)
        state = state.merge(family, key, values)
      case Op.Remove(_, key) =>
        store.remove(family.row(key), name)
        state = state.remove(family, key)
      case Op.DeleteRange(_, from, until) =>
        Line.deleteRange(store, family.row(from), family.row(until), name)
        state = state.deleteRange(family, from, until)
      case Op.CreateFamily(_) =>
        changesFamilies ||= !state.isLive(family)
        OpenStore.create(store, family)
        state = state.created(family)
      case Op.RemoveFamily(_) =>
        changesFamilies ||= state.isLive(family)
        Check.same("removed", state.isLive(family), store.removeColFamilyIfExists(name))
        state = state.removed(family)
    }
    writes += write
  }
}

object OpenStore {

  /** Operators do this for every family in every batch. */
  def create(store: StateStore, family: Family): Unit = store.createColFamilyIfAbsent(
    family.name,
    family.kind.schema,
    Family.valueSchema,
    family.kind.spec,
    family.multi,
    family.isInternal
  )
}

object Check {
  def same[A](what: => String, expected: A, actual: A): Unit =
    if (expected != actual) throw Disagreement(s"$what: $expected", s"$actual")
}
