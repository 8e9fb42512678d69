package statemark.kafka

import java.util.concurrent.ExecutionException
import org.scalatest.concurrent.{ThreadSignaler, TimeLimits}
import org.scalatest.funsuite.AnyFunSuite
import org.scalatest.time.SpanSugar._
import statemark.kafka.clients.{Clusters, KafkaClients}
import statemark.kafka.conf.{SinkException, SinkSettings}

/** Goal: whoever ends a run does not wait for brokers that are away. */
class KafkaClientsSuite extends AnyFunSuite with TimeLimits {
  private val settings = SinkSettings.of(Map(
    "kafka.bootstrap.servers" -> "127.0.0.1:1",
    "kafka.default.api.timeout.ms" -> "3600000",
    "kafka.request.timeout.ms" -> "3600000"
  ))

  test("an admin client is closed while it waits for an answer") {
    val admin = KafkaClients.of(settings).admin()
    val asked = admin.describeCluster().nodes()
    failAfter(1.minute)(admin.close())(ThreadSignaler)
    intercept[ExecutionException](asked.get())
  }

  test("settings that no client takes are refused where a cluster is asked for its id") {
    val kafka = Map("bootstrap.servers" -> "127.0.0.1:1", "security.protocol" -> "SASL_PLAINTEXT")
    intercept[SinkException.RefusedSetting](Clusters.idOf(kafka))
  }
}
