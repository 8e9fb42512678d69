package statemark.spark.model

import org.apache.hadoop.conf.Configuration
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.types.StructType
import statemark.spark.Line
import statemark.spark.provider.{ProviderBase, StoreBase}

/** A provider that passes everything on; what a subclass overrides is where it misbehaves. */
class DelegatingProvider(inner: DelegatingProvider.Inner)
    extends ProviderBase {

  /** Wraps a store that the inner provider handed out. */
  protected def wrap(store: StateStore): DelegatingStore = new DelegatingStore(store)

  override def init(
      stateStoreId: StateStoreId,
      keySchema: StructType,
      valueSchema: StructType,
      keyStateEncoderSpec: KeyStateEncoderSpec,
      useColumnFamilies: Boolean,
      storeConfs: StateStoreConf,
      hadoopConf: Configuration,
      useMultipleValuesPerKey: Boolean,
      stateSchemaProvider: Option[StateSchemaProvider]
  ): Unit = inner.init(
    stateStoreId,
    keySchema,
    valueSchema,
    keyStateEncoderSpec,
    useColumnFamilies,
    storeConfs,
    hadoopConf,
    useMultipleValuesPerKey,
    stateSchemaProvider
  )

  override def stateStoreId: StateStoreId = inner.stateStoreId
  override def close(): Unit = inner.close()
  override def doMaintenance(): Unit = inner.doMaintenance()
  override def doSnapshotMaintenance(): Unit =
    throw new UnsupportedOperationException("no history asks for one half")
  override def doCleanupMaintenance(): Unit =
    throw new UnsupportedOperationException("no history asks for one half")

  override def getStore(
      version: Long,
      id: Option[String],
      forceSnapshotOnCommit: Boolean,
      loadEmpty: Boolean
  ): StateStore = wrap(Line.getStore(inner, version, id, forceSnapshotOnCommit, loadEmpty))

  override def replayStateFromSnapshot(
      snapshotVersion: Long,
      endVersion: Long,
      readOnly: Boolean,
      snapshotId: Option[String],
      endId: Option[String]
  ): StateStore =
    Line.replay(inner, snapshotVersion, endVersion, readOnly, snapshotId, endId) match {
      case store: StateStore => wrap(store)
      case other => throw new IllegalStateException(s"$other is no StateStore")
    }

  override def getStateStoreChangeDataReader(
      startVersion: Long,
      endVersion: Long,
      family: Option[String],
      endId: Option[String]
  ): StateStoreChangeDataReader =
    throw new UnsupportedOperationException("no history reads changes")

  override def getReadStore(version: Long, id: Option[String]): ReadStateStore =
    inner.getReadStore(version, id) match {
      case store: StateStore => wrap(store)
      case store => store
    }

  override def upgradeReadStoreToWriteStore(
      readStore: ReadStateStore,
      version: Long,
      id: Option[String],
      forceSnapshotOnCommit: Boolean
  ): StateStore = readStore match {
    case wrapped: DelegatingStore =>
      Line.upgrade(inner, wrapped.inner, version, id, forceSnapshotOnCommit): Unit
      wrapped
    case other => Line.upgrade(inner, other, version, id, forceSnapshotOnCommit)
  }
}

class DelegatingStore(val inner: StateStore) extends StoreBase {
  override def id: StateStoreId = inner.id
  override def version: Long = inner.version

  override def get(key: UnsafeRow, family: String): UnsafeRow = inner.get(key, family)
  override def multiGet(keys: Array[UnsafeRow], family: String): Iterator[UnsafeRow] =
    Line.multiGet(inner, keys, family)
  override def keyExists(key: UnsafeRow, family: String): Boolean =
    Line.keyExists(inner, key, family)
  override def valuesIterator(key: UnsafeRow, family: String): Iterator[UnsafeRow] =
    inner.valuesIterator(key, family)

  override def iterator(family: String): StateStoreIterator[UnsafeRowPair] = inner.iterator(family)
  override def iteratorWithMultiValues(family: String): StateStoreIterator[UnsafeRowPair] =
    Line.iteratorWithMultiValues(inner, family)
  override def prefixScan(prefix: UnsafeRow, family: String): StateStoreIterator[UnsafeRowPair] =
    inner.prefixScan(prefix, family)
  override def prefixScanWithMultiValues(
      prefix: UnsafeRow,
      family: String
  ): StateStoreIterator[UnsafeRowPair] = Line.prefixScanWithMultiValues(inner, prefix, family)
  override def rangeScan(
      start: Option[UnsafeRow],
      end: Option[UnsafeRow],
      family: String
  ): StateStoreIterator[UnsafeRowPair] = Line.rangeScan(inner, start, end, family)
  override def rangeScanWithMultiValues(
      start: Option[UnsafeRow],
      end: Option[UnsafeRow],
      family: String
  ): StateStoreIterator[UnsafeRowPair] = Line.rangeScanWithMultiValues(inner, start, end, family)

  override def put(key: UnsafeRow, value: UnsafeRow, family: String): Unit =
    inner.put(key, value, family)
  override def putList(key: UnsafeRow, values: Array[UnsafeRow], family: String): Unit =
    Line.putList(inner, key, values, family)
  override def merge(key: UnsafeRow, value: UnsafeRow, family: String): Unit =
    inner.merge(key, value, family)
  override def mergeList(key: UnsafeRow, values: Array[UnsafeRow], family: String): Unit =
    Line.mergeList(inner, key, values, family)
  override def remove(key: UnsafeRow, family: String): Unit = inner.remove(key, family)
  override def deleteRange(begin: UnsafeRow, end: UnsafeRow, family: String): Unit =
    Line.deleteRange(inner, begin, end, family)

  override def createColFamilyIfAbsent(
      family: String,
      keySchema: StructType,
      valueSchema: StructType,
      keyStateEncoderSpec: KeyStateEncoderSpec,
      useMultipleValuesPerKey: Boolean,
      isInternal: Boolean
  ): Unit = inner.createColFamilyIfAbsent(
    family,
    keySchema,
    valueSchema,
    keyStateEncoderSpec,
    useMultipleValuesPerKey,
    isInternal
  )
  override def removeColFamilyIfExists(family: String): Boolean =
    inner.removeColFamilyIfExists(family)
  override def allColumnFamilyNames: Set[String] = Line.familyNames(inner)

  override def commit(): Long = inner.commit()
  override def abort(): Unit = inner.abort()
  override def release(): Unit = Line.release(inner)
  override def metrics: StateStoreMetrics = inner.metrics
  override def getStateStoreCheckpointInfo(): StateStoreCheckpointInfo =
    inner.getStateStoreCheckpointInfo()
  override def hasCommitted: Boolean = inner.hasCommitted
}

object DelegatingProvider {
  type Inner = StateStoreProvider with SupportsFineGrainedReplay
}
