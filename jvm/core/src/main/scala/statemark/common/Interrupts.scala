package statemark.common

import java.io.InterruptedIOException
import java.nio.channels.ClosedByInterruptException
import java.util.concurrent.Future
import java.util.concurrent.locks.LockSupport
import scala.annotation.tailrec

/** Interrupts of threads: Spark interrupts tasks that it kills, as it does when a query stops. A file whose read is
  * interrupted is not damaged, and a disk whose write is interrupted is not full: no store or snapshot is given up
  * for it. An interrupt is an `InterruptedException`, which handlers of `NonFatal` failures leave alone, wherever
  * code decides about damage.
  */
object Interrupts {

  /** Runs `body`, whose calls report an interrupt by several exceptions.
    * @throws InterruptedException where one of them was; whether the thread is interrupted still is as `body` left it
    */
  def apart[A](body: => A): A =
    try body
    catch { case e: Exception if isInterrupt(e) => throw exceptionOf(e) }

  /** Tells whether an interrupt is among a failure and its causes. */
  def isInterrupt(failure: Throwable): Boolean = Causes.of(failure).exists {
    case _: InterruptedException | _: ClosedByInterruptException => true
    // Classes below it are timeouts.
    case e: InterruptedIOException => e.getClass == classOf[InterruptedIOException]
    case _ => false
  }

  /** Returns the interrupt that a failure reports, as Java knows it. */
  def exceptionOf(failure: Throwable): InterruptedException = failure match {
    case e: InterruptedException => e
    case e =>
      val interrupt = new InterruptedException(s"The thread was interrupted: $e")
      interrupt.initCause(e): Unit
      interrupt
  }

  /** Waits so long, whether the thread is interrupted or not; if so, it is interrupted afterwards, too. */
  def pause(nanos: Long, clock: Clock = Clock.system): Unit = {
    val end = clock.nanos() + nanos
    @tailrec def await(left: Long, wasInterrupted: Boolean): Boolean =
      if (left <= 0) wasInterrupted
      else {
        LockSupport.parkNanos(left) // returns at once where the thread is interrupted
        val isInterrupted = Thread.interrupted()
        await(end - clock.nanos(), wasInterrupted || isInterrupted)
      }
    if (await(nanos, wasInterrupted = false)) Thread.currentThread.interrupt()
  }

  /** Returns the result of a future as its `get` has it, whether the thread is interrupted or not; if so, it is
    * interrupted afterwards, too.
    */
  def resultOf[A](future: Future[A]): A = {
    @tailrec def await(wasInterrupted: Boolean): Boolean = {
      val isDone =
        try {
          future.get(): Unit
          true
        } catch {
          case _: InterruptedException => false
          case _: Exception => true
        }
      if (isDone) wasInterrupted else await(wasInterrupted = true)
    }
    if (await(wasInterrupted = false)) Thread.currentThread.interrupt()
    future.get() // a future that is done throws its failure here, and no interrupt
  }
}
