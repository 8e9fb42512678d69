package statemark.spark.process

import java.util.concurrent._
import java.util.concurrent.atomic.AtomicInteger

/** Threads that do not keep a JVM alive. */
object BackgroundThreads {

  /** One thread for what all stores of the JVM do in the background: flushes, collection of directories that nobody
    * uses, memory that is given back.
    */
  lazy val background: ScheduledExecutorService = scheduler("statemark-background")

  /** Up to `threads` threads, fewer when there is nothing to do. */
  def pool(name: String, threads: Int): ExecutorService = {
    val queue = new LinkedBlockingQueue[Runnable]
    val pool = new ThreadPoolExecutor(threads, threads, 30, TimeUnit.SECONDS, queue, factory(name))
    pool.allowCoreThreadTimeOut(true)
    pool
  }

  /** One thread that runs what is due. */
  def scheduler(name: String): ScheduledExecutorService = {
    val scheduler = new ScheduledThreadPoolExecutor(1, factory(name))
    scheduler.setRemoveOnCancelPolicy(true)
    scheduler
  }

  private def factory(name: String): ThreadFactory = {
    val count = new AtomicInteger
    task => {
      val thread = new Thread(task, s"$name-${count.incrementAndGet()}")
      thread.setDaemon(true)
      thread
    }
  }
}
