package statemark.common

/** Time as the caller provides it, so that tests decide what time it is. */
trait Clock {

  /** Nanoseconds of a clock that never goes back; only differences mean anything. */
  def nanos(): Long

  /** Milliseconds since the epoch. */
  def epochMs(): Long
}

object Clock {

  /** The machine's clocks: the one place that reads them. */
  val system: Clock = new Clock {
    override def nanos(): Long = System.nanoTime()
    override def epochMs(): Long = System.currentTimeMillis()
  }

  /** Runs `body`; its result and the milliseconds it took. */
  def timedMs[A](clock: Clock)(body: => A): (A, Long) = {
    val start = clock.nanos()
    val result = body
    (result, (clock.nanos() - start) / 1000000L)
  }
}
