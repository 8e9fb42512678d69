package statemark.kafka

import org.scalatest.funsuite.AnyFunSuite
import statemark.kafka.conf.{SinkException, SinkIdentity, SinkSettings}
import statemark.kafka.executor.WriterSpec

class SinkSettingsSuite extends AnyFunSuite {
  private val least = Map("kafka.bootstrap.servers" -> "127.0.0.1:1", "topic" -> "orders")

  private def refused(options: (String, String)*): SinkException.RefusedSetting =
    intercept[SinkException.RefusedSetting](SinkSettings.of(least ++ options))

  test("defaults: idempotent, all acknowledged, and the topic names the sink") {
    val settings = SinkSettings.of(least)
    assert(settings.kafka("enable.idempotence") == "true")
    assert(settings.kafka("acks") == "all")
    assert(settings.kafka("retries") == Int.MaxValue.toString)
    assert(settings.kafka("max.in.flight.requests.per.connection") == "5")
    assert(settings.transactionTimeoutMs == 900000)
    assert(settings.sink == "orders" && settings.topic.contains("orders"))
    assert(settings.commitTopic == "statemark-commits" && settings.prefix == "statemark")
    assert(settings.producersPerExecutor == 1 && settings.refusedRowsTopic.isEmpty)
    assert(settings.mostRowBytes == 1048576)
    assert(SinkSettings.of(least - "topic").sink == "out")
  }

  test("options have their own names, whatever their case") {
    val settings = SinkSettings.of(
      least ++ Map("SINKNAME" -> "a", "committopic" -> "c", "TransactionalIdPrefix" -> "p")
    )
    assert(settings.sink == "a" && settings.commitTopic == "c" && settings.prefix == "p")
  }

  for (
    (name, value) <- Seq(
      "enable.idempotence" -> "false",
      "acks" -> "1",
      "acks" -> "0",
      "retries" -> "0",
      "max.in.flight.requests.per.connection" -> "6",
      "transactional.id" -> "mine",
      "interceptor.classes" -> "com.example.Mine",
      "key.serializer" -> "org.apache.kafka.common.serialization.StringSerializer",
      "value.serializer" -> "org.apache.kafka.common.serialization.StringSerializer",
      "transaction.two.phase.commit.enable" -> "true",
      "transaction.timeout.ms" -> "soon"
    )
  ) test(s"KIP-185: kafka.$name=$value is refused by name, value, and what is allowed") {
    val e = refused(s"kafka.$name" -> value)
    assert(e.values == Map("option" -> s"kafka.$name", "value" -> value))
    assert(e.getMessage.contains("Allowed: ") && e.reason.nonEmpty && !e.isRetryable)
  }

  test("transactional.id: the remedy is the prefix") {
    assert(refused("kafka.transactional.id" -> "x").remedy.contains("transactionalIdPrefix"))
  }

  test("values that mean the same are taken") {
    val same = Map(
      "kafka.enable.idempotence" -> "TRUE",
      "kafka.acks" -> "-1",
      "kafka.retries" -> "10",
      "kafka.max.in.flight.requests.per.connection" -> "1",
      "kafka.linger.ms" -> "20"
    )
    assert(SinkSettings.of(least ++ same).kafka("linger.ms") == "20")
  }

  test("values without a meaning are refused") {
    assert(refused("onLostRows" -> "ignore").remedy.contains("fail, rerun"))
    refused("allowShortCompactionLag" -> "perhaps")
    refused("commitTopicReplicationFactor" -> "0")
    refused("sinkName" -> " ")
    refused("sinkName" -> "s" * 1001)
    refused("producersPerExecutor" -> "0")
    refused("producersPerExecutor" -> "65")
    refused("refusedRowsTopic" -> " ")
    refused("kafka.max.request.size" -> "much")
    intercept[SinkException.RefusedSetting](SinkSettings.of(Map("topic" -> "orders")))
  }

  test("values that Kafka's producer does not take are refused before the query starts") {
    for ((name, value) <- Seq("kafka.linger.ms" -> "abc", "kafka.compression.type" -> "zip")) {
      val e = refused(name -> value)
      assert(e.values == Map("option" -> name, "value" -> value) && e.reason.contains(value))
    }
    assert(
      refused("kafka.bootstrap.servers" -> "localhost").reason == "'localhost' is not host:port"
    )
    SinkSettings.of(least + ("kafka.bootstrap.servers" -> "a:1, [::1]:2"))
  }

  test("names that no topic can have, and one topic for two things, are refused") {
    assert(refused("topic" -> "a b").values("option") == "topic")
    refused("commitTopic" -> ("t" * 250))
    assert(refused("commitTopic" -> "orders").reason == "option 'topic' names the same topic")
    refused("refusedRowsTopic" -> "orders")
    refused("refusedRowsTopic" -> "statemark-commits")
  }

  test("options that are misspelt are refused, and the name that is meant is told") {
    for (
      (name, meant) <- Seq(
        "refusedRowTopic" -> "refusedRowsTopic",
        "committopc" -> "commitTopic",
        "kafkaa.acks" -> "kafka.acks",
        "kafka.liner.ms" -> "kafka.linger.ms",
        "txnVersoin" -> "txnVersion"
      )
    ) assert(refused(name -> "1").remedy == s"Perhaps '$meant' is meant")
    val others = Seq("kafka.my.own.plugin", "includeHeaders", "CHECKPOINTLOCATION", "queryName")
    SinkSettings.of(least ++ others.map(_ -> "x"))
  }

  test("settings do not show their values, which may be passwords") {
    val text = SinkSettings.of(least + ("kafka.sasl.jaas.config" -> "secret")).toString
    assert(!text.contains("secret") && text.contains("sasl.jaas.config"))
  }

  test("settings travel to executors") {
    val bytes = new java.io.ByteArrayOutputStream
    val identity = SinkIdentity("q", "out")
    val spec = WriterSpec(
      identity,
      SinkSettings.of(least),
      1,
      Map("id" -> 1),
      0,
      isLocal = false,
      discards = false,
      Some(Set(1))
    )
    new java.io.ObjectOutputStream(bytes).writeObject(spec)
    val in = new java.io.ObjectInputStream(new java.io.ByteArrayInputStream(bytes.toByteArray))
    assert(in.readObject() == spec)
  }
}
