package statemark.spark.errors

import java.io.IOException
import org.apache.spark.{SparkException, SparkThrowable}
import org.apache.spark.sql.execution.streaming.state.StatemarkBridge
import scala.jdk.CollectionConverters._
import statemark.common.{Causes, CoreKind, Interrupts, StatemarkException}

/** Puts the reason into the messages of failures that end a task of a query.
  *
  * Spark passes on the message of a task's exception that has a condition, and nothing of its causes, and the message of
  * a condition such as `CANNOT_LOAD_STATE_STORE.UNCATEGORIZED` says of no cause what it was. Condition and parameters
  * stay Spark's; after them come three lines: the store, the reason, the remedy.
  *
  * ''Thread:'' any.
  * ''Source:'' Spark 4.2 `DAGScheduler.abortStage`, `SparkThrowableHelper`.
  */
object StoreFailures {

  /** Returns the failure to open a store.
    * @param store the store, as messages name it
    * @param version the version that the task asks for
    */
  def loading(store: String, version: Long, cause: Throwable): Throwable = told(
    cause match {
      case e: OutOfMemoryError => StatemarkBridge.outOfMemory(store, e)
      case e => StatemarkBridge.cannotLoad(e)
    },
    s"$store, to be opened at version $version"
  )

  /** Returns the failure to begin the changelog of a version.
    * @param store the store, as messages name it
    */
  def writingChangelog(store: String, version: Long, cause: Throwable): Throwable =
    told(
      StatemarkBridge.cannotWriteChangelog(version, cause),
      s"$store, whose changelog of version $version was to be written"
    )

  /** Returns the failure to commit a store.
    * @param handle what Spark's condition names
    * @param store the store, as messages name it
    * @param version the version that was to be committed
    */
  def committing(handle: String, store: String, version: Long, cause: Throwable): Throwable =
    told(
      StatemarkBridge.commitFailed(handle, cause),
      s"$store, to be committed as version $version"
    )

  private def told(failure: Throwable, store: String): Throwable = failure match {
    case e: SparkThrowable if Option(e.getCondition).isDefined && !isTold(failure) =>
      val (reason, remedy) = explained(failure)
      val whole = new SparkException(
        s"${failure.getMessage}\n  store: $store\n  reason: $reason\n  remedy: $remedy",
        failure.getCause,
        Option(e.getCondition),
        e.getMessageParameters.asScala.toMap,
        e.getQueryContext
      )
      whole.setStackTrace(failure.getStackTrace)
      failure.getSuppressed.foreach(whole.addSuppressed)
      whole
    case _ => failure
  }

  /** Tells whether a step below has put the reason into the message. */
  private def isTold(failure: Throwable): Boolean = failure.getMessage.contains("\n  remedy: ")

  /** Returns reason and remedy of the first failure of Statemark's among the causes; else what the causes say, and what
    * Spark's condition calls for. Snapshots that a restore has passed over are named as well: the file that ends it may
    * be missing because it was not needed beside them.
    */
  private def explained(failure: Throwable): (String, String) = {
    val causes = Causes.of(failure).toSeq
    val passedOver = causes.flatMap(_.getSuppressed).collect { case e: StoreException => e }
    val (reason, remedy) =
      if (Interrupts.isInterrupt(failure))
        ("the task was interrupted", CoreKind.CallInterrupted.remedy)
      else
        causes.collectFirst { case e: StatemarkException => (e.why, e.remedy) }
          .getOrElse((byCauses(causes), byCondition(causes)))
    (
      (reason +: passedOver.map(_.problem)).mkString(" ").trim,
      (passedOver.map(_.remedy).take(1) :+ remedy).distinct.mkString(" ")
    )
  }

  private def byCauses(causes: Seq[Throwable]): String = causes.drop(1) match {
    case Seq() => "the first line names it"
    case below => below.map(_.toString).distinct.mkString(", caused by ")
  }

  private def byCondition(causes: Seq[Throwable]): String = {
    val conditions = causes.collect { case e: SparkThrowable => Option(e.getCondition) }.flatten
    val known = conditions.map(_.stripPrefix("CANNOT_LOAD_STATE_STORE."))
    known.collectFirst {
      case "CANNOT_READ_STREAMING_STATE_FILE" =>
        "bring the file back from a copy, and do not clear the checkpoint: `statemark verify` shows which batches " +
          "can be restored"
      case "UNRELEASED_THREAD_ERROR" =>
        "look for a task that hangs; where batches take that long, raise " +
          "spark.sql.streaming.stateStore.rocksdb.lockAcquireTimeoutMs"
      case "ROCKSDB_STORE_PROVIDER_OUT_OF_MEMORY" =>
        "give the executor more memory (spark.executor.memory), or the query more partitions; nothing is lost"
      case "INVALID_CHANGE_LOG_READER_VERSION" | "CANNOT_READ_CHECKPOINT" =>
        "run the query on the release of Spark that wrote the checkpoint, or a later one"
      case "INVALID_CHECKPOINT_LINEAGE" | "CANNOT_FIND_BASE_SNAPSHOT_CHECKPOINT" |
          "AUTO_SNAPSHOT_REPAIR_FAILED" | "UNEXPECTED_FILE_SIZE" =>
        "bring the missing or damaged files back from a copy; `statemark verify` shows which they are, and which " +
          "batches can be restored"
    }.getOrElse(
      if (causes.exists(_.isInstanceOf[IOException]))
        "see that what the reason names can be reached, has room, and may be read and written by Spark's user; then " +
          "start the query again. Nothing is lost"
      else
        "do what the reason names, and start the query again; nothing is lost, and `statemark verify` shows whether " +
          "the checkpoint is whole"
    )
  }
}
