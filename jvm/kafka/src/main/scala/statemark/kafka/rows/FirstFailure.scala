package statemark.kafka.rows

import java.util.concurrent.atomic.AtomicReference
import statemark.kafka.clients.KafkaFailures

/** The failure of a transaction that says what happened: of several the first, as those after it say only that the producer
  * has failed before. Attempts whose rows went into the transaction share it. ''Thread:'' any.
  */
private[kafka] final class FirstFailure {
  private val first = new AtomicReference[Option[Throwable]](None)

  def add(failure: Throwable): Unit =
    first.updateAndGet(known => Some(KafkaFailures.firstOf(known, failure))): Unit

  def get: Option[Throwable] = first.get
}

private[kafka] object FirstFailure {
  def of(failure: Throwable): FirstFailure = {
    val made = new FirstFailure
    made.add(failure)
    made
  }
}
