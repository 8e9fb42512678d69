package statemark.kafka.clients

import java.util.concurrent.{ScheduledThreadPoolExecutor, ThreadFactory, TimeUnit}
import java.util.concurrent.atomic.AtomicInteger

/** Calls back after a while. Tests hand in one that they move by hand. */
trait Timer {

  /** Runs `body` on a thread of the timer's, once, unless it is cancelled before. What it throws is lost. */
  def after(ms: Long)(body: => Unit): Timer.Cancel
}

object Timer {
  trait Cancel {
    def cancel(): Unit
  }

  /** Two daemon threads for all sinks of the process. */
  lazy val system: Timer = new Timer {
    private val count = new AtomicInteger
    private val threads: ThreadFactory = (work: Runnable) => {
      val thread = new Thread(work, s"statemark-kafka-timer-${count.incrementAndGet()}")
      thread.setDaemon(true)
      thread
    }
    private val executor = new ScheduledThreadPoolExecutor(2, threads)
    executor.setRemoveOnCancelPolicy(true)

    override def after(ms: Long)(body: => Unit): Cancel = {
      val task = executor.schedule((() => body): Runnable, ms, TimeUnit.MILLISECONDS)
      () => task.cancel(false): Unit
    }
  }
}
