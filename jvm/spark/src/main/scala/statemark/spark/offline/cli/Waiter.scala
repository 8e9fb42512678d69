package statemark.spark.offline.cli

import java.util.concurrent.{CountDownLatch, TimeUnit}

/** Lets time pass, as the caller provides it, so that tests wait for nothing. */
trait Waiter {
  def pause(ms: Long): Unit
}

object Waiter {
  val system: Waiter = ms => new CountDownLatch(1).await(ms, TimeUnit.MILLISECONDS): Unit
}
