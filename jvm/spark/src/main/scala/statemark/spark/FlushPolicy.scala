package statemark.spark

import java.util.concurrent.{ScheduledExecutorService, TimeUnit}
import java.util.concurrent.atomic.AtomicBoolean
import org.slf4j.LoggerFactory
import scala.util.control.NonFatal

/** Decides when a base store goes to disk. Every stop of an executor is a crash for what RocksDB keeps
  * in memory, so the version on disk trails the confirmed one by at most [[FlushPolicy.MaxVersions]]
  * or [[FlushPolicy.MaxSeconds]]; what is lost is replayed from changelogs.
  *
  * Flushes that we plan carry the proof of the version. One that RocksDB begins by itself, because a
  * memtable is full, does not; so ours come first, at half that size.
  *
  * ''Thread:'' `noted` on the owner's; flushes run beside it.
  */
final class FlushPolicy(context: ProviderContext, scheduler: ScheduledExecutorService) {
  private lazy val log = LoggerFactory.getLogger(classOf[FlushPolicy])
  private val isTimed = new AtomicBoolean(false)

  /** The base has moved, or was loaded. */
  def noted(generation: Generation): Unit = if (generation.home.isDurable) {
    val store = generation.store
    val behind = store.base.version - store.flushed
    if (behind >= FlushPolicy.MaxVersions || store.unflushedBytes >= maxBytes)
      scheduler.execute(() => flush(generation))
    else if (behind > 0 && isTimed.compareAndSet(false, true)) {
      val later: Runnable = () => {
        isTimed.set(false)
        flush(generation)
      }
      scheduler.schedule(later, FlushPolicy.MaxSeconds, TimeUnit.SECONDS): Unit
    }
  }

  /** Several may be due by the time that the first one runs: it does the work of all. */
  private def flush(generation: Generation): Unit =
    try
      if (generation.store.base.version > generation.store.flushed) {
        generation.store.flush(context.proofOf, waits = false)
        generation.home.note(generation.store.flushed)
      }
    catch {
      case NonFatal(e) =>
        log.warn(
          s"${context.storeId} could not be flushed; a restart replays more until it can be.",
          e
        )
    }

  private def maxBytes: Long = {
    val configured = context.options.writeBufferBytes
    (if (configured > 0) configured else FlushPolicy.RocksDBsWriteBuffer) / 2
  }
}

object FlushPolicy {
  val MaxVersions = 5L
  val MaxSeconds = 30L

  private val RocksDBsWriteBuffer = 64L * 1024 * 1024

  /** One thread for all stores of the JVM. */
  lazy val scheduler: ScheduledExecutorService = Daemons.scheduler("statemark-flush")
}
