package statemark.spark.provider

import org.slf4j.LoggerFactory
import statemark.spark.checkpoint.StoreLocation
import statemark.spark.cluster.BatchOffsets
import statemark.spark.errors.OffsetsDifferException
import statemark.TransactionalStore

/** Compares the source offsets that a store holds with those at which the task's batch begins. A store that was loaded
  * from the checkpoint, whose files do not say them, and one whose batch ended at offsets that nobody knew before, take
  * them from there: the version is the one that the query's driver asks for, and its files were proven to be.
  *
  * Upholds I12. ''Thread:'' the owner of the store.
  *
  * @param refuses whether a task is refused where they differ; else it warns
  */
private[spark] final class StartOffsets(location: StoreLocation, refuses: Boolean) {

  /** @throws OffsetsDifferException where the same source stands elsewhere */
  def settle(store: TransactionalStore): Unit = for {
    start <- BatchOffsets.ofTask(location.runId, store.base.version).flatMap(_.start)
  } store.base.position match {
    case None => store.recordPosition(start)
    case Some(held) =>
      val differences = held.differences(start)
      if (differences.nonEmpty) {
        val found = new OffsetsDifferException(
          location.toString,
          store.base.version,
          differences,
          OffsetsDifferException.OfTask
        )
        if (refuses) throw found
        StartOffsets.log.warn(s"${found.problem} The query goes on, as checkOffsets is 'warn'.")
      }
  }
}

private object StartOffsets {
  private val log = LoggerFactory.getLogger(classOf[StartOffsets])
}
