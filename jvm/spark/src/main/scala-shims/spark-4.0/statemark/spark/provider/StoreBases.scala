package statemark.spark.provider

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state._

/** Spark's interfaces as Statemark implements them on every line: what a line lacks is declared here,
  * what only one line has is answered here.
  */
trait StoreBase extends OlderStore {
  def putList(key: UnsafeRow, values: Array[UnsafeRow], colFamilyName: String): Unit
  def mergeList(key: UnsafeRow, values: Array[UnsafeRow], colFamilyName: String): Unit
  def release(): Unit
}

/** Spark 4.0 opens a store twice in one task where an operator reads before it writes: the second time
  * for writing, while it goes on to read from the first. Later lines upgrade the first one; here that
  * is done for them, so that both share one transaction.
  */
trait ProviderBase extends StateStoreProvider with SupportsFineGrainedReplay {
  @volatile private var lastRead: Option[ReadHandle] = None

  /** How a store is handed out for reading. */
  protected def handOut(store: StatemarkRocksDBStateStore): ReadStateStore = {
    val handle = new ReadHandle(store)
    lastRead = Some(handle)
    handle
  }

  override def getStore(version: Long, uniqueId: Option[String]): StateStore =
    lastRead.filter(_.isUpgradable(version)) match {
      case Some(handle) =>
        upgradeReadStoreToWriteStore(
          handle.store,
          version,
          uniqueId,
          forceSnapshotOnCommit = false
        )
      case None => getStore(version, uniqueId, forceSnapshotOnCommit = false, loadEmpty = false)
    }

  override def replayStateFromSnapshot(snapshotVersion: Long, endVersion: Long): StateStore =
    replayStateFromSnapshot(snapshotVersion, endVersion, readOnly = false, None, None)

  override def replayReadStateFromSnapshot(
      snapshotVersion: Long,
      endVersion: Long
  ): ReadStateStore =
    replayReadStateFromSnapshot(snapshotVersion, endVersion, None, None)

  override def getStateStoreChangeDataReader(
      startVersion: Long,
      endVersion: Long,
      colFamilyNameOpt: Option[String]
  ): StateStoreChangeDataReader =
    getStateStoreChangeDataReader(startVersion, endVersion, colFamilyNameOpt, None)

  def getStore(
      version: Long,
      uniqueId: Option[String],
      forceSnapshotOnCommit: Boolean,
      loadEmpty: Boolean
  ): StateStore
  def upgradeReadStoreToWriteStore(
      readStore: ReadStateStore,
      version: Long,
      uniqueId: Option[String],
      forceSnapshotOnCommit: Boolean
  ): StateStore
  def replayStateFromSnapshot(
      snapshotVersion: Long,
      endVersion: Long,
      readOnly: Boolean,
      snapshotVersionStateStoreCkptId: Option[String],
      endVersionStateStoreCkptId: Option[String]
  ): StateStore
  def replayReadStateFromSnapshot(
      snapshotVersion: Long,
      endVersion: Long,
      snapshotVersionStateStoreCkptId: Option[String],
      endVersionStateStoreCkptId: Option[String]
  ): ReadStateStore = new WrappedReadStateStore(replayStateFromSnapshot(
    snapshotVersion,
    endVersion,
    readOnly = true,
    snapshotVersionStateStoreCkptId,
    endVersionStateStoreCkptId
  ))
  def getStateStoreChangeDataReader(
      startVersion: Long,
      endVersion: Long,
      colFamilyNameOpt: Option[String],
      endVersionStateStoreCkptId: Option[String]
  ): StateStoreChangeDataReader

  /** The two halves of `doMaintenance`, of which Spark 4.3 has threads of their own. */
  def doSnapshotMaintenance(): Unit
  def doCleanupMaintenance(): Unit
}

/** A store as an operator reads it. Once the store is upgraded, its end is the writer's matter: Spark
  * aborts what it reads from after every task, also after the commit.
  */
private final class ReadHandle(val store: StatemarkRocksDBStateStore)
    extends WrappedReadStateStore(store) {
  private val opener = Thread.currentThread

  /** Whether the task that asks for `version` is the one that reads it. */
  def isUpgradable(version: Long): Boolean =
    (Thread.currentThread eq opener) && store.isReadOnly && store.isUpdating &&
      store.version == version

  override def abort(): Unit = if (store.isReadOnly) store.abort()
}
