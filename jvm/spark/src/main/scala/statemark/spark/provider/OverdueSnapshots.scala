package statemark.spark.provider

import java.util.concurrent.{CompletableFuture, ConcurrentHashMap, TimeUnit, TimeoutException}
import org.slf4j.LoggerFactory
import scala.jdk.CollectionConverters._
import statemark.spark.process.BackgroundThreads

/** A store that may owe a snapshot. */
private[spark] trait OverdueStore {

  /** Takes the snapshot that is overdue, if one is. What fails is logged.
    * @param isEnd whether the application ends
    */
  private[spark] def takeOverdueSnapshot(isEnd: Boolean): Unit
}

/** Takes the snapshots of stores whose processes end before maintenance comes to them: concurrently with the first batch
  * after a load, and when the application ends. Either alone would do where it always came: Spark closes no store when
  * an executor exits, and a process that is killed says nothing.
  *
  * ''Thread:'' any.
  */
private[spark] object OverdueSnapshots {
  private lazy val log = LoggerFactory.getLogger(getClass)
  private val open = ConcurrentHashMap.newKeySet[OverdueStore]()
  private val AtOnce = 4
  private val AtOnceAtEnd = 8

  /** So long the end of an application waits for snapshots. */
  private[spark] val MaxSecondsAtEnd = 10L
  private lazy val loads = BackgroundThreads.pool("statemark-overdue-snapshot", AtOnce)

  /** Has the snapshot of a store that was loaded taken, and remembers the store until it is closed. */
  def loaded(store: OverdueStore): Unit = {
    open.add(store): Unit
    loads.execute(() => store.takeOverdueSnapshot(isEnd = false))
  }

  /** Forgets a store. */
  def closed(store: OverdueStore): Unit = open.remove(store): Unit

  /** Takes the overdue snapshots of all open stores. What takes longer than the bound is taken with the next first batch.
    * On a local master driver and executor call it both: the second waits for the first.
    *
    * @param seconds the bound on the time that this waits for them
    */
  def applicationEnds(seconds: Long = MaxSecondsAtEnd): Unit = synchronized {
    val stores = open.asScala.toSeq.filter(open.remove)
    if (stores.nonEmpty) {
      val pool = BackgroundThreads.pool("statemark-snapshot-at-end", AtOnceAtEnd)
      val all = stores.map { store =>
        CompletableFuture.runAsync(() => store.takeOverdueSnapshot(isEnd = true), pool)
      }
      // None is interrupted: an upload would end before it is known whether its version stands.
      try CompletableFuture.allOf(all: _*).get(seconds, TimeUnit.SECONDS): Unit
      catch {
        case _: TimeoutException =>
          val late = all.count(!_.isDone)
          log.info(s"$late of ${all.size} stores end before their snapshots are uploaded.")
      }
    }
  }
}
