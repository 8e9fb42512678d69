package statemark.spark.local

import java.io.File
import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.atomic.AtomicLong
import scala.jdk.CollectionConverters._
import statemark.common.Clock
import statemark.spark.process.{BackgroundThreads, JvmState, JvmValue}

/** The disk use of the roots in which this process's stores lie, for gauges. Homes are walked in the background, once a
  * minute at most.
  *
  * ''Thread:'' any.
  */
private[spark] final class LocalDisk(clock: Clock) {
  private val roots = ConcurrentHashMap.newKeySet[File]()
  private val lastNanos = new AtomicLong(clock.nanos() - LocalDisk.EveryNanos)
  @volatile private var bytes = LocalDisk.Unknown

  /** Notes that a store lies below `root`. */
  def uses(root: File): Unit = roots.add(root): Unit

  /** Returns the bytes of all homes below the roots, of other processes as well, as of the last walk; -1 before it. */
  def usedBytes: Long = {
    val last = lastNanos.get
    val now = clock.nanos()
    if (!roots.isEmpty && now - last >= LocalDisk.EveryNanos && lastNanos.compareAndSet(last, now))
      BackgroundThreads.background.execute(() => bytes = walked)
    bytes
  }

  /** Returns the free bytes of the root that has the fewest; -1 where no store lies below one. */
  def freeBytes: Long = roots.asScala.map(_.getUsableSpace).minOption.getOrElse(LocalDisk.Unknown)

  private def walked: Long =
    roots.asScala.toSeq.map(root =>
      StoreDirectory.all(root).map(DiskUse.of).foldLeft(DiskUse.none)(_ ++ _).bytes
    ).sum
}

private[spark] object LocalDisk {

  /** The disk use of this process. */
  val shared: JvmValue[LocalDisk] = JvmState.value(new LocalDisk(Clock.system))

  private val Unknown = -1L
  private val EveryNanos = 60L * 1000 * 1000 * 1000
}
