package statemark.spark

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.{checkpointing, runtime}
import org.apache.spark.sql.execution.streaming.state._

/** What tests may ask of this line of Spark, and how. */
object Line {
  type MemoryStream[A] = runtime.MemoryStream[A]
  val MemoryStream: runtime.MemoryStream.type = runtime.MemoryStream
  val runIdKey: String = runtime.StreamExecution.RUN_ID_KEY

  /** Puts checkpoint files in place by a rename, on any file system. */
  val renamingFileManager: Class[_] = classOf[checkpointing.FileSystemBasedCheckpointFileManager]

  /** Several keys at once, ranges, lists of values in scans, names of column families, forced
    * snapshots, empty stores at a version, row checksums, two merge operators.
    */
  val hasStoreOf42: Boolean = true

  /** Lists in one put or merge, upgrades of read stores, checkpoint ids for the state data source,
    * joins in column families.
    */
  val hasStoreOf41: Boolean = true

  def getStore(
      provider: StateStoreProvider,
      version: Long,
      id: Option[String],
      force: Boolean,
      loadEmpty: Boolean = false
  ): StateStore = provider.getStore(version, id, force, loadEmpty)

  /** The write store that goes on with a read store. */
  def upgrade(
      provider: StateStoreProvider,
      store: ReadStateStore,
      version: Long,
      id: Option[String],
      force: Boolean
  ): StateStore = provider.upgradeReadStoreToWriteStore(store, version, id, force)

  def replay(
      provider: SupportsFineGrainedReplay,
      start: Long,
      end: Long,
      readOnly: Boolean,
      startId: Option[String],
      endId: Option[String]
  ): StateStore = provider.replayStateFromSnapshot(start, end, readOnly, startId, endId)

  def changes(
      provider: SupportsFineGrainedReplay,
      start: Long,
      end: Long,
      family: Option[String],
      endId: Option[String]
  ): Iterator[(RecordType.Value, UnsafeRow, UnsafeRow, Long)] =
    provider.getStateStoreChangeDataReader(start, end, family, endId)

  def multiGet(store: ReadStateStore, keys: Array[UnsafeRow], family: String): Iterator[UnsafeRow] =
    store.multiGet(keys, family)

  def keyExists(store: ReadStateStore, key: UnsafeRow, family: String): Boolean =
    store.keyExists(key, family)

  def iteratorWithMultiValues(
      store: ReadStateStore,
      family: String
  ): StateStoreIterator[UnsafeRowPair] = store.iteratorWithMultiValues(family)

  def prefixScanWithMultiValues(
      store: ReadStateStore,
      prefix: UnsafeRow,
      family: String
  ): StateStoreIterator[UnsafeRowPair] = store.prefixScanWithMultiValues(prefix, family)

  def rangeScan(
      store: ReadStateStore,
      start: Option[UnsafeRow],
      end: Option[UnsafeRow],
      family: String
  ): StateStoreIterator[UnsafeRowPair] = store.rangeScan(start, end, family)

  def rangeScanWithMultiValues(
      store: ReadStateStore,
      start: Option[UnsafeRow],
      end: Option[UnsafeRow],
      family: String
  ): StateStoreIterator[UnsafeRowPair] = store.rangeScanWithMultiValues(start, end, family)

  def putList(store: StateStore, key: UnsafeRow, values: Array[UnsafeRow], family: String): Unit =
    store.putList(key, values, family)

  def mergeList(store: StateStore, key: UnsafeRow, values: Array[UnsafeRow], family: String): Unit =
    store.mergeList(key, values, family)

  def deleteRange(store: StateStore, begin: UnsafeRow, end: UnsafeRow, family: String): Unit =
    store.deleteRange(begin, end, family)

  def familyNames(store: ReadStateStore): Set[String] = store.allColumnFamilyNames

  /** Ends a read store without giving up what it loaded. */
  def release(store: ReadStateStore): Unit = store.release()
}
