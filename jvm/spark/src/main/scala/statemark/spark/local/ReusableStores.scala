package statemark.spark.local

import java.io.File
import java.util.concurrent.ConcurrentHashMap
import org.apache.hadoop.fs.FileSystem
import org.apache.hadoop.util.ShutdownHookManager
import org.slf4j.LoggerFactory
import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal
import statemark.spark.process.BackgroundThreads

/** Durable stores that are open in this JVM, by the parent of their homes. A query that is stopped and
  * started in one session meets the stores of its earlier run here: Spark unloads them a minute later.
  *
  * ''Thread:'' any.
  */
object ReusableStores {
  private val log = LoggerFactory.getLogger(getClass)
  private val open = new ConcurrentHashMap[File, Set[ReusableStore]]()
  private val FlushAtOnce = 8

  // At an orderly end of the process stores are closed, so that no confirmed version has to be replayed.
  // Early, as there is little time: before the hook that closes Hadoop's file systems.
  ShutdownHookManager.get().addShutdownHook(
    () => flushAll(),
    FileSystem.SHUTDOWN_HOOK_PRIORITY + 10
  )

  private[spark] def flushAll(): Unit = {
    val flushes = BackgroundThreads.pool("statemark-flush-at-exit", FlushAtOnce)
    open.values.asScala.toSeq.flatten.map(store =>
      flushes.submit[Unit](() => store.flush())
    ).foreach {
      flush =>
        try flush.get()
        catch {
          case NonFatal(e) => log.info("A store is left as of its last flush.", e)
        }
    }
  }

  def of(parent: File): Set[ReusableStore] = open.getOrDefault(parent, Set.empty)

  /** Returns how many stores are open. */
  def count: Int = open.values.stream.mapToInt(_.size).sum

  def add(parent: File, store: ReusableStore): Unit =
    open.merge(parent, Set(store), _ ++ _): Unit

  /** @return whether another stays that [[isReplaced replaces]] it: of two that end at once, one is left */
  def remove(parent: File, store: ReusableStore): Boolean = {
    val remaining = open.computeIfPresent(
      parent,
      (_, stores) => Option(stores - store).filter(_.nonEmpty).orNull
    )
    Option(remaining).exists(_.exists(_.replaces(store)))
  }

  /** Tells whether a later process has no use for a store, as another one that leads as far will be left to it. */
  def isReplaced(parent: File, store: ReusableStore): Boolean = of(parent).exists(_.replaces(store))
}

/** A store that is open, and outlives this process. */
final class ReusableStore(generation: LoadedStore) {
  import generation.store

  /** Tells whether the store is left to a later process when it is closed: one that a reader made is not. */
  @volatile var isKept: Boolean = !generation.home.isFresh

  private[spark] def replaces(other: ReusableStore): Boolean =
    other != this && isKept && flushed >= other.flushed

  /** Version on disk. */
  def flushed: Long = store.flushed

  /** Makes its base durable. */
  def flush(): Unit = {
    store.flush()
    generation.home.note(store.flushed)
  }

  /** Returns a durable copy of its base in `target`; false where it is closed. */
  def copyTo(target: StoreDirectory): Boolean = {
    flush()
    val isCopied = store.copyTo(target.base)
    if (isCopied) target.note(store.flushed)
    isCopied
  }
}
