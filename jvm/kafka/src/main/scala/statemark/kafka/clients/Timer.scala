package statemark.kafka.clients

import java.util.concurrent.{Executors, ScheduledThreadPoolExecutor, ThreadFactory, TimeUnit}
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

  /** For all sinks of the process, on daemon threads. What one has to wait for holds no other back. */
  lazy val system: Timer = new Timer {
    private val count = new AtomicInteger
    private val threads: ThreadFactory = (work: Runnable) => {
      val thread = new Thread(work, s"statemark-kafka-timer-${count.incrementAndGet()}")
      thread.setDaemon(true)
      thread
    }
    private val clock = new ScheduledThreadPoolExecutor(1, threads)
    clock.setRemoveOnCancelPolicy(true)
    private val bodies = Executors.newCachedThreadPool(threads)

    override def after(ms: Long)(body: => Unit): Cancel = {
      val run: Runnable = () => bodies.execute(() => body)
      val task = clock.schedule(run, ms, TimeUnit.MILLISECONDS)
      () => task.cancel(false): Unit
    }
  }
}
