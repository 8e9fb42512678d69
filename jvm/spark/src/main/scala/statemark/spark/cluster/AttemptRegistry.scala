package statemark.spark.cluster

import java.util.{LinkedHashMap, Map => JMap}
import scala.collection.mutable
import statemark.spark.process.JvmState

/** An attempt at a batch begins to build on a version of a store.
  *
  * @param store operator, partition and name
  * @param base the version that it builds on
  * @param executor where it runs; attempts of one executor wait for each other, and the last one counts
  */
final case class AttemptBegun(runId: String, store: String, base: Long, executor: String)

/** Asks who wrote a version. */
final case class WriterOf(runId: String, store: String, version: Long)

/** Where attempts have begun to write which version of a store, for the runs of an application. In checkpoint
  * format v1 all attempts at a version write one file, and an executor cannot see the others. Lives in the
  * driver, which hears of an attempt before it writes.
  *
  * Answers are of classes that every JVM of Spark has: what reads them on an executor does not see the plugin's jar.
  */
object AttemptRegistry {

  /** Which executor alone began to write a version; None where several did, or none is known. */
  type Writer = Option[String]

  private final class Store {
    var newest: Long = -1
    // The last two versions that were built on.
    val begun: mutable.Map[Long, Set[String]] = mutable.Map.empty.withDefaultValue(Set.empty)
  }

  /** Runs that ended are known by nobody asking any more. */
  private val MaxRuns = 256
  private val runs = JvmState.ofApplication(
    new LinkedHashMap[String, mutable.Map[String, Store]](16, 0.75f, true) {
      override def removeEldestEntry(
          eldest: JMap.Entry[String, mutable.Map[String, Store]]
      ): Boolean = size > MaxRuns
    }
  )

  /** Who wrote the version that the attempt builds on, and whether an attempt on another executor has begun to build on
    * it before. Left is the version that attempts build on by now, where the run has gone on: what this one writes would
    * replace a file of a batch that is done.
    */
  def begun(attempt: AttemptBegun): Either[Long, (Writer, Boolean)] = synchronized {
    val store = of(attempt.runId, attempt.store)
    if (attempt.base < store.newest) Left(store.newest)
    else {
      store.newest = attempt.base
      store.begun.filterInPlace((base, _) => base >= attempt.base - 1)
      store.begun(attempt.base) += attempt.executor
      Right((writer(store, attempt.base), store.begun(attempt.base).size > 1))
    }
  }

  def writer(asked: WriterOf): Writer =
    synchronized(writer(of(asked.runId, asked.store), asked.version))

  private def writer(store: Store, version: Long): Writer = {
    val executors = store.begun(version - 1)
    executors.headOption.filter(_ => executors.size == 1)
  }

  private def of(runId: String, store: String): Store =
    runs().computeIfAbsent(runId, _ => mutable.Map.empty).getOrElseUpdate(store, new Store)
}
