package statemark.spark

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state._
import statemark.spark.metrics.InstanceMetrics
import statemark.spark.model.{DelegatingProvider, DelegatingStore}

/** Spark's acceptance suite for state store providers, on ours. */
class StatemarkStateStoreSuite extends ProviderSuiteBase[ReadableAfterCommit]

/** Statemark, with two liberties that Spark 4.0's suite takes and no operator does: it reads from a
  * store after its commit, which is served from the version that was committed, and asks a store for
  * metrics before, which are none.
  */
class ReadableAfterCommit extends DelegatingProvider(new StatemarkStateStoreProvider) {
  override protected def wrap(store: StateStore): DelegatingStore =
    new ReadableRocksDBStateStore(
      store,
      () => getStore(store.version + 1, store.getStateStoreCheckpointInfo().stateStoreCkptId)
    )
}

private class ReadableRocksDBStateStore(store: StateStore, reopen: () => StateStore)
    extends DelegatingStore(store) {
  private lazy val committed = reopen()
  private def readable: ReadStateStore = if (hasCommitted) committed else inner

  override def get(key: UnsafeRow, family: String): UnsafeRow = readable.get(key, family)
  override def iterator(family: String): StateStoreIterator[UnsafeRowPair] =
    readable.iterator(family)
  override def prefixScan(prefix: UnsafeRow, family: String): StateStoreIterator[UnsafeRowPair] =
    readable.prefixScan(prefix, family)
  override def valuesIterator(key: UnsafeRow, family: String): Iterator[UnsafeRow] =
    readable.valuesIterator(key, family)
  override def metrics: StateStoreMetrics =
    if (hasCommitted) super.metrics else InstanceMetrics.none
}
