package statemark.spark.metrics

import java.util.concurrent.atomic.{AtomicReference, LongAccumulator, LongAdder}
import statemark.common.Clock

/** Durations of an event that comes again and again: how many there were, and the rate, mean and maximum of the last
  * half to whole minute, as of Kafka's metrics. Adding one takes no lock, and allocates only where a period begins.
  *
  * ''Thread:'' any.
  * ''Source:'' Kafka's `metrics.sample.window.ms` and `metrics.num.samples`, with their defaults.
  */
private[spark] final class Times(clock: Clock) {
  import Times._

  private val madeNanos = clock.nanos()
  private val all = new LongAdder
  // The period that runs, and the one before it.
  private val periods = new AtomicReference((new Period(0), new Period(-1)))

  /** Adds a duration. */
  def add(nanos: Long): Unit = {
    val period = current._1
    all.increment()
    period.count.increment()
    period.nanos.add(nanos)
    period.max.accumulate(nanos)
  }

  /** Returns how many durations were added. */
  def count: Long = all.sum

  /** Returns how many a second there were lately. */
  def perSecond: Double = {
    val (now, before) = current
    val since = madeNanos + math.max(before.number, 0) * PeriodNanos
    // The first second is taken for a whole one.
    val seconds = math.max(clock.nanos() - since, SecondNanos).toDouble / SecondNanos
    (now.count.sum + before.count.sum) / seconds
  }

  /** Returns the mean of the last ones, in milliseconds; 0 where there were none. */
  def meanMs: Double = {
    val (now, before) = current
    val count = now.count.sum + before.count.sum
    if (count == 0) 0 else (now.nanos.sum + before.nanos.sum).toDouble / count / MsNanos
  }

  /** Returns the longest of the last ones, in milliseconds; 0 where there were none. */
  def maxMs: Double = {
    val (now, before) = current
    math.max(now.max.get, before.max.get).toDouble / MsNanos
  }

  private def current: (Period, Period) = {
    val number = (clock.nanos() - madeNanos) / PeriodNanos
    val last = periods.get
    if (last._1.number >= number) last
    else {
      val before = if (last._1.number == number - 1) last._1 else new Period(number - 1)
      periods.compareAndSet(last, (new Period(number), before)): Unit
      periods.get
    }
  }
}

private object Times {
  private val MsNanos = 1000000L
  private val SecondNanos = 1000 * MsNanos
  private val PeriodNanos = 30 * SecondNanos

  /** The durations of half a minute.
    * @param number the periods before it since the first
    */
  private final class Period(val number: Long) {
    val count = new LongAdder
    val nanos = new LongAdder
    val max = new LongAccumulator((a, b) => math.max(a, b), 0)
  }
}
