package statemark.spark.cluster

import org.apache.spark.{SparkEnv, TaskContext}
import org.apache.spark.sql.execution.streaming.state.StateStoreId
import statemark.engine.{StoreState, VersionId}
import statemark.spark.checkpoint.{FileProofs, StoreAddress}
import statemark.spark.errors.StaleTaskException
import statemark.spark.process.JvmState

/** Tells whether the version that a store has prepared is the attempt that counts: another executor may have
  * written the same version.
  *
  * ''Thread:'' [[isPrepared]] from any, the rest the owner of the store.
  */
private[spark] sealed trait AttemptCheck {

  /** A task asks for `at`, to build on it.
    * @throws StaleTaskException where the query has gone on without the task
    */
  def begin(at: VersionId): Unit

  /** This store has prepared a version. */
  def prepared(version: StoreState): Unit

  /** Whether what it has prepared as `at` counts. */
  def isPrepared(at: VersionId): Boolean

  /** Tells whether another executor may have committed the version already that this store is about to commit: each
    * action of a `foreachBatch` makes every version again.
    */
  def isShared: Boolean
}

private[spark] object AttemptCheck {

  /** @param isSole whether no other executor writes, or the id of a version tells
    * @param proofs for where files are compared
    */
  def of(
      address: StoreAddress,
      id: StateStoreId,
      isSole: Boolean,
      proofs: => Option[FileProofs]
  ): AttemptCheck =
    if (isSole) Sole
    else JvmState.askDriver().fold[AttemptCheck](new ByFile(proofs))(new ByDriver(address, id, _))

  /** Whether the files of versions are compared, so that their fingerprints are needed. */
  def comparesFiles(isSole: Boolean): Boolean = !isSole && JvmState.askDriver().isEmpty

  /** Nobody else writes, or the id of the version tells. */
  private object Sole extends AttemptCheck {
    override def begin(at: VersionId): Unit = ()
    override def prepared(version: StoreState): Unit = ()
    override def isPrepared(at: VersionId): Boolean = true
    override def isShared: Boolean = false
  }

  /** Without the plugin: the changelog in the checkpoint location is still the one that was written here. */
  private final class ByFile(compared: => Option[FileProofs]) extends AttemptCheck {
    @volatile private var known: Option[StoreState] = None

    override def begin(at: VersionId): Unit = ()

    override def isShared: Boolean = true

    override def prepared(version: StoreState): Unit = known = Some(version)

    override def isPrepared(at: VersionId): Boolean = {
      for {
        version <- known if version.at == at
        fingerprint <- version.fingerprint
        proofs <- compared
      } yield proofs.stands(at.version, fingerprint)
    }.contains(true)
  }

  /** The driver knows every attempt before it writes, so that nothing is asked of the checkpoint location. */
  private final class ByDriver(address: StoreAddress, id: StateStoreId, ask: AnyRef => AnyRef)
      extends AttemptCheck {
    private val runId = address.runId.toString
    private val executor = SparkEnv.get.executorId
    private val store = s"${address.operator}-${address.partition}-${address.name}"

    // Never changes again: the driver refuses attempts that begin on an older version.
    @volatile private var known: Option[(Long, Any)] = None
    @volatile private var isShared_ = false

    override def isShared: Boolean = isShared_

    override def begin(at: VersionId): Unit = if (isTask) {
      ask(AttemptBegun(runId, store, at.version, executor)) match {
        case Right((writer, isShared: Boolean)) =>
          known = Some(at.version -> writer)
          isShared_ = isShared
        case Left(newest: Long) => throw new StaleTaskException(id.toString, at.version, newest)
        case answer => throw new IllegalStateException(s"The driver answers $answer.")
      }
    }

    override def prepared(version: StoreState): Unit = ()

    override def isPrepared(at: VersionId): Boolean =
      known.collect { case (version, writer) if version == at.version => writer }
        .getOrElse(ask(WriterOf(runId, store, at.version))) == Some(executor)

    /** Only tasks of a query write. */
    private def isTask: Boolean =
      Option(TaskContext.get()).exists(_.getLocalProperty("streaming.sql.batchId") != null)
  }
}
