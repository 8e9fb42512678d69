package statemark.common

import java.util.concurrent.atomic.AtomicLong
import java.util.concurrent.locks.LockSupport

/** Lets one thread at a time in, and that thread again while it is inside. For calls that are short and that nearly
  * always come from one thread: a thread that comes alone pays one compare-and-swap, and a store when it goes (ADR 18).
  * A thread that has to wait looks again and again, as no thread wakes it.
  *
  * A thread that waits here holds no other lock that a thread inside may want: threads take the gate first.
  *
  * ''Thread:'' any.
  */
final class Gate {
  // The id of the thread inside.
  private val inside = new AtomicLong(Gate.Nobody)

  /** Runs `body` while no other thread is inside; waits for the one that is. */
  def through[A](body: => A): A = {
    val wasInside = enter()
    try body
    finally leave(wasInside)
  }

  /** Enters, where the time for [[through]] is missing; the caller hands what this returns to `leave`.
    * @return whether the thread was inside before
    */
  def enter(): Boolean = {
    val me = Thread.currentThread.getId
    if (inside.compareAndSet(Gate.Nobody, me)) false
    else if (inside.getPlain == me) true
    else {
      await(me)
      false
    }
  }

  def leave(wasInside: Boolean): Unit = if (!wasInside) inside.setRelease(Gate.Nobody)

  /** Waits without regard to interrupts: the thread that asks frees what the thread inside uses. */
  private def await(me: Long): Unit = {
    var wasInterrupted = false
    var looks = 0
    while (!inside.compareAndSet(Gate.Nobody, me)) {
      looks += 1
      if (looks <= Gate.Spins) Thread.onSpinWait()
      else {
        // A thread that is interrupted would not be parked.
        wasInterrupted |= Thread.interrupted()
        LockSupport.parkNanos(Gate.PauseNanos)
      }
    }
    if (wasInterrupted) Thread.currentThread.interrupt()
  }
}

private object Gate {
  // Ids of threads are positive.
  val Nobody = 0L
  val Spins = 200
  val PauseNanos = 50L * 1000
}
