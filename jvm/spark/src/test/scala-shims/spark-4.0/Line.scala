package statemark.spark

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming
import org.apache.spark.sql.execution.streaming.state._

/** What tests may ask of this line of Spark, and how. */
object Line {
  type MemoryStream[A] = streaming.MemoryStream[A]
  val MemoryStream: streaming.MemoryStream.type = streaming.MemoryStream
  val runIdKey: String = streaming.StreamExecution.RUN_ID_KEY

  /** Puts checkpoint files in place by a rename, on any file system. */
  val renamingFileManager: Class[_] = classOf[streaming.FileSystemBasedCheckpointFileManager]

  /** Several keys at once, ranges, lists of values in scans, names of column families, forced
    * snapshots, empty stores at a version, row checksums, two merge operators.
    */
  val hasStoreOf42: Boolean = false

  /** Lists in one put or merge, upgrades of read stores, checkpoint ids for the state data source,
    * joins in column families.
    */
  val hasStoreOf41: Boolean = false

  private def missing =
    new UnsupportedOperationException("This line of Spark has no such call; look before you ask.")

  def getStore(
      provider: StateStoreProvider,
      version: Long,
      id: Option[String],
      force: Boolean,
      loadEmpty: Boolean = false
  ): StateStore = {
    if (force || loadEmpty) throw missing
    provider.getStore(version, id)
  }

  /** The write store that goes on with a read store. */
  def upgrade(
      provider: StateStoreProvider,
      store: ReadStateStore,
      version: Long,
      id: Option[String],
      force: Boolean
  ): StateStore = {
    if (force) throw missing
    // The task that reads opens the store again.
    assert(version == store.version)
    provider.getStore(version, id)
  }

  def replay(
      provider: SupportsFineGrainedReplay,
      start: Long,
      end: Long,
      readOnly: Boolean,
      startId: Option[String],
      endId: Option[String]
  ): ReadStateStore = {
    if (startId.isDefined || endId.isDefined) throw missing
    if (readOnly) provider.replayReadStateFromSnapshot(start, end)
    else provider.replayStateFromSnapshot(start, end)
  }

  def changes(
      provider: SupportsFineGrainedReplay,
      start: Long,
      end: Long,
      family: Option[String],
      endId: Option[String]
  ): Iterator[(RecordType.Value, UnsafeRow, UnsafeRow, Long)] = {
    if (endId.isDefined) throw missing
    provider.getStateStoreChangeDataReader(start, end, family)
  }

  def multiGet(store: ReadStateStore, keys: Array[UnsafeRow], family: String): Iterator[UnsafeRow] =
    throw missing

  def keyExists(store: ReadStateStore, key: UnsafeRow, family: String): Boolean =
    throw missing

  def iteratorWithMultiValues(
      store: ReadStateStore,
      family: String
  ): StateStoreIterator[UnsafeRowPair] = throw missing

  def prefixScanWithMultiValues(
      store: ReadStateStore,
      prefix: UnsafeRow,
      family: String
  ): StateStoreIterator[UnsafeRowPair] = throw missing

  def rangeScan(
      store: ReadStateStore,
      start: Option[UnsafeRow],
      end: Option[UnsafeRow],
      family: String
  ): StateStoreIterator[UnsafeRowPair] = throw missing

  def rangeScanWithMultiValues(
      store: ReadStateStore,
      start: Option[UnsafeRow],
      end: Option[UnsafeRow],
      family: String
  ): StateStoreIterator[UnsafeRowPair] = throw missing

  def putList(store: StateStore, key: UnsafeRow, values: Array[UnsafeRow], family: String): Unit =
    throw missing

  def mergeList(store: StateStore, key: UnsafeRow, values: Array[UnsafeRow], family: String): Unit =
    throw missing

  def deleteRange(store: StateStore, begin: UnsafeRow, end: UnsafeRow, family: String): Unit =
    throw missing

  def familyNames(store: ReadStateStore): Set[String] = throw missing

  /** Ends a read store without giving up what it loaded. */
  def release(store: ReadStateStore): Unit = store.abort()
}
