package statemark.spark.local

import java.util.concurrent.atomic.AtomicReference
import java.util.concurrent.{Future, ScheduledExecutorService, TimeUnit}
import org.apache.spark.sql.execution.streaming.state.StateStoreId
import org.slf4j.LoggerFactory
import scala.util.control.NonFatal
import statemark.spark.memory.FreedMemory
import statemark.TransactionalStore

/** Decides when a base store goes to disk: when half of what it has in memory was written again since, and, where
  * its files outlive the process, often. Every stop of an executor is a crash for what RocksDB keeps in memory, so
  * the version on disk trails the confirmed one by at most [[FlushPolicy.MaxVersions]] or
  * [[FlushPolicy.MaxSeconds]]; what is lost is replayed from changelogs.
  *
  * RocksDB begins one by itself where a memtable is full, which may be in the middle of a version; ours come at half
  * that size.
  *
  * ''Thread:'' `noted` on the owner's; flushes run beside it.
  *
  * @param memtableBytes at which RocksDB begins a flush by itself
  * @param generation whose base it is; the next one has a policy of its own, for which no timer runs yet
  */
final class FlushPolicy(
    storeId: StateStoreId,
    memtableBytes: Long,
    generation: LoadedStore,
    scheduler: ScheduledExecutorService
) extends AutoCloseable {
  private lazy val log = LoggerFactory.getLogger(classOf[FlushPolicy])
  private val timed = new AtomicReference(Option.empty[Future[_]])

  /** Looks at a base that has moved, or was loaded. */
  def noted(): Unit = {
    FreedMemory.shared.noted() // of what writing the version took
    val store = generation.store
    val isDurable = generation.home.isDurable
    val behind = store.base.version - store.flushed
    if (
      isHalfReplaced(store) ||
      isDurable &&
      (behind >= FlushPolicy.MaxVersions ||
        store.unflushedBytes >= memtableBytes / 2)
    )
      scheduler.execute(() => flush())
    else if (isDurable && behind > 0 && timed.get.isEmpty) {
      val later: Runnable = () => {
        timed.set(None)
        flush()
      }
      timed.set(Some(scheduler.schedule(later, FlushPolicy.MaxSeconds, TimeUnit.SECONDS)))
    }
  }

  /** Tells whether half of the writes in memory have been overwritten since. Overwritten rows make writes, reads and
    * scans slower until a flush leaves them out (ADR 13).
    */
  private def isHalfReplaced(store: TransactionalStore): Boolean =
    store.unflushedBytes >= FlushPolicy.MinBytes &&
      store.unflushedWrites >= FlushPolicy.WritesPerRow * rowsOf(store)

  private def rowsOf(store: TransactionalStore): Long = {
    val counts = store.base.counts
    if (counts.isTracked) counts.keys + counts.internalKeys else store.unflushedRows
  }

  /** Forgets the flush that is due, which would keep the store on the heap until then. */
  override def close(): Unit = timed.getAndSet(None).foreach(_.cancel(false))

  /** Several may be due by the time that the first one runs: it does the work of all. */
  private def flush(): Unit =
    try
      if (generation.store.base.version > generation.store.flushed) {
        generation.store.flush(waits = false)
        generation.home.note(generation.store.flushed)
      }
    catch {
      case NonFatal(e) =>
        log.warn(
          s"$storeId could not be flushed; a restart replays more until it can be.",
          e
        )
    }
}

object FlushPolicy {
  val MaxVersions = 5L
  val MaxSeconds = 30L

  /** The number of writes in memory for each row at which half of them have been overwritten. */
  val WritesPerRow = 2L
  private val MinBytes = 1L << 20
}
