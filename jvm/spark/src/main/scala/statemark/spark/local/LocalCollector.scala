package statemark.spark.local

import java.io.File
import java.util.concurrent.ConcurrentHashMap
import org.slf4j.LoggerFactory
import scala.collection.mutable
import scala.util.control.NonFatal
import statemark.common.Clock
import statemark.spark.conf.StoreSettings
import statemark.spark.process.{BackgroundThreads, JvmState}

/** Deletes homes that no process uses: of queries that are gone, of partitions that moved. By age, and the
  * oldest first where a root holds more than it may; at once where the query's checkpoint was temporary, as
  * the process that has ended was the only one with a use for it. A home that some process holds, or that is another
  * user's, is left alone.
  */
object LocalCollector {
  private val log = LoggerFactory.getLogger(getClass)
  private val EveryNanos = 3600L * 1000 * 1000 * 1000
  private val lastRun = JvmState.value(new ConcurrentHashMap[File, java.lang.Long]())

  /** Collects in the background, once an hour for each root. */
  def tick(root: File, settings: StoreSettings, clock: Clock): Unit = {
    val now = clock.nanos()
    if (Option(lastRun().get(root)).forall(now - _ >= EveryNanos)) {
      lastRun().put(root, now): Unit
      BackgroundThreads.background.execute { () =>
        try collect(root, settings, clock.epochMs()): Unit
        catch {
          case NonFatal(e) => log.warn(s"$root could not be collected; it is tried again later.", e)
        }
      }
    }
  }

  /** Deletes what is due; what was deleted. */
  def collect(root: File, settings: StoreSettings, nowMs: Long): Seq[File] = {
    val deleted = taken(root, settings, nowMs)(delete(root, _))
    val stores = deleted.map(_.getParentFile).distinct
    (stores ++ stores.map(_.getParentFile).distinct)
      .foreach(_.delete(): Unit) // only where it is empty
    if (deleted.nonEmpty) log.info(s"Deleted stores that nobody uses: ${deleted.mkString(", ")}.")
    deleted
  }

  /** Lists the homes that [[collect]] would delete now. */
  def due(root: File, settings: StoreSettings, nowMs: Long): Seq[File] =
    taken(root, settings, nowMs) { home =>
      // A query that starts meanwhile has to get it.
      LocalDirectory.isOwn(root, home) && !StoreDirectory.isInUse(home)
    }

  /** Homes that are due, of those that `take` gets. */
  private def taken(root: File, settings: StoreSettings, nowMs: Long)(
      take: File => Boolean
  ): Seq[File] = {
    val all = StoreDirectory.all(root).sortBy(StoreDirectory.usedAtMs)
    val old = all.filter { home =>
      StoreDirectory.isTemporary(home) ||
      nowMs - StoreDirectory.usedAtMs(home) > settings.localDirMaxAgeMs
    }.filter(take)
    old ++ settings.localDirMaxBytes.toSeq.flatMap(tooMuch(all.filterNot(old.toSet), _)(take))
  }

  /** Takes homes, the longest unused first, until the others have no more than `maxBytes`. A file goes with the last
    * home that has a link to it.
    */
  private def tooMuch(homes: Seq[File], maxBytes: Long)(take: File => Boolean): Seq[File] = {
    val uses = homes.map(home => home -> DiskUse.of(home))
    val links = mutable.Map.empty[AnyRef, Int].withDefaultValue(0)
    uses.foreach(_._2.files.keys.foreach(links(_) += 1))
    var total = uses.map(_._2).foldLeft(DiskUse.none)(_ ++ _).bytes
    uses.filter { case (home, use) =>
      val isTaken = total > maxBytes && take(home)
      if (isTaken) use.files.foreach { case (file, bytes) =>
        links(file) -= 1
        if (links(file) == 0) total -= bytes
      }
      isTaken
    }.map(_._1)
  }

  /** Deletes a home that no process uses, where it is this user's; returns whether it is gone. It was listed a while ago: a
    * link may have taken the place of a directory since.
    */
  private[spark] def delete(root: File, home: File): Boolean =
    LocalDirectory.isOwn(root, home) && StoreDirectory.tryHold(home).exists(_.delete())
}
