package statemark.spark.memory

import java.lang.management.ManagementFactory
import java.util.concurrent.atomic.AtomicBoolean
import java.util.concurrent.TimeUnit.MILLISECONDS
import javax.management.{JMException, JMRuntimeException, ObjectName}
import org.slf4j.LoggerFactory
import statemark.common.Clock
import statemark.spark.process.BackgroundThreads

/** Gives native memory that was freed back to the operating system, soon after stores were written.
  *
  * What RocksDB takes for a version, and for a flush, it frees again; but glibc keeps it for the threads that took it,
  * so that a process comes to hold what each of them once had (docs/adr/0015).
  *
  * @param trim asks the allocator to give back what it can; false where it cannot be asked
  * @param later runs something in so many milliseconds
  */
private[spark] final class FreedMemory(
    trim: () => Boolean,
    later: (Long, Runnable) => Unit,
    clock: Clock
) {
  import FreedMemory._

  private val isDue = new AtomicBoolean
  @volatile private var delayMs = LeastDelayMs

  /** A store was written or closed. From any thread. */
  def noted(): Unit =
    if (isDue.compareAndSet(false, true)) later(delayMs, () => run())

  /** Where it takes long it comes rarely, and where it cannot be done, never again. */
  private def run(): Unit = {
    val (isDone, ms) = Clock.timedMs(clock)(trim())
    if (isDone) {
      delayMs = math.max(LeastDelayMs, ms * DelayPerMs)
      isDue.set(false)
    }
  }
}

private[spark] object FreedMemory {
  val LeastDelayMs = 250L

  /** One part in so many of a thread's time. */
  val DelayPerMs = 50L

  private val log = LoggerFactory.getLogger(classOf[FreedMemory])
  private val commands = new ObjectName("com.sun.management:type=DiagnosticCommand")

  /** Of this process. */
  lazy val shared: FreedMemory = new FreedMemory(
    () => trimByJvm(),
    (ms, run) => BackgroundThreads.background.schedule(run, ms, MILLISECONDS): Unit,
    Clock.system
  )

  /** ''Source:'' JDK 17 `jcmd System.trim_native_heap`, glibc `malloc_trim`. */
  def trimByJvm(): Boolean =
    try {
      val server = ManagementFactory.getPlatformMBeanServer
      val none = Array.empty[AnyRef]
      val answer = server.invoke(commands, "systemTrimNativeHeap", none, Array.empty[String])
      log.debug(s"$answer")
      true
    } catch {
      case e @ (_: JMException | _: JMRuntimeException | _: SecurityException) =>
        log.info(s"This JVM gives no freed native memory back to the system ($e); it holds more.")
        false
    }
}
