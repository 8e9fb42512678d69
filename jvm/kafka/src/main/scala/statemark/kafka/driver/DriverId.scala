package statemark.kafka.driver

import org.apache.kafka.clients.admin.Admin
import scala.util.Try
import statemark.common.Clock
import statemark.kafka.clients.{KafkaClients, TopicChecks, TransactionEndings}

/** The use of the driver's transactional id. Brokers drop an id that nobody uses for `transactional.id.expiration.ms`, 7 days
  * by default; what is sent with it then is refused. ''Thread:'' the driver's.
  */
private[kafka] final class DriverId(
    context: SinkContext,
    clients: KafkaClients,
    admin: Admin,
    clock: Clock
) {
  private val endings = new TransactionEndings(clients, context.settings)
  private var usedNanos = 0L

  /** Notes that the id is in use. */
  def use(): Unit = usedNanos = clock.nanos()

  /** Tells whether the brokers have dropped the id. Where they do not say, it counts as dropped after half of their limit, or
    * after a day where that is not known either.
    */
  def isForgotten: Boolean = {
    val idleMs = (clock.nanos() - usedNanos) / 1000000L
    endings.isForgotten(context.driverId.text, idleMs).getOrElse(idleMs > mostIdleMs)
  }

  private def mostIdleMs: Long =
    Try(TopicChecks.brokerConfig(admin)(TopicChecks.IdExpiration).toLong / 2)
      .getOrElse(DriverId.MostIdleMs)
}

private object DriverId {
  val MostIdleMs: Long = 24L * 60 * 60 * 1000
}
