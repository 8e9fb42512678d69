package statemark.kafka

import org.apache.kafka.clients.producer.Partitioner
import org.apache.kafka.common.config.ConfigDef
import org.scalatest.funsuite.AnyFunSuite
import scala.jdk.CollectionConverters._
import statemark.kafka.conf.{
  ClientOptions,
  ProducerRules,
  SinkException,
  SinkIdentity,
  SinkSettings
}
import statemark.kafka.executor.WriterSpec
import statemark.kafka.log.RecordCodec
import statemark.kafka.sim.{EchoProvider, ModuloPartitioner, NotingReporter}

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
    assert(settings.openSinks == 16)
    assert(settings.kafkaConsumerGroup.isEmpty)
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
    refused("openSinks" -> "-1")
    refused("openSinks" -> "1001")
    refused("kafkaConsumerGroup" -> " ")
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
    val taken = refused("topic" -> "statemark-commits")
    assert(taken.values("option") == "topic")
    assert(taken.reason == "option 'commitTopic' names the same topic, by default")
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
    val others = Seq("includeHeaders", "CHECKPOINTLOCATION", "queryName")
    SinkSettings.of(least ++ others.map(_ -> "x"))
  }

  test("values that only consumers and admin clients read are refused before the query starts") {
    assert(refused("kafka.fetch.max.bytes" -> "much").values("value") == "much")
    assert(refused("kafka.default.api.timeout.ms" -> "soon").values("value") == "soon")
  }

  test("a time for delivery that is shorter than a try is refused before the query starts") {
    val name = "kafka.delivery.timeout.ms"
    assert(refused(name -> "10000").values == Map("option" -> name, "value" -> "10000"))
    refused(name -> "1500", "kafka.request.timeout.ms" -> "1000", "kafka.linger.ms" -> "501")
    val right = Map("kafka.request.timeout.ms" -> "1000", "kafka.linger.ms" -> "500")
    SinkSettings.of(least ++ right + (name -> "1500"))
  }

  test("requests that could not take a decision are refused before the query starts") {
    val name = "kafka.max.request.size"
    assert(refused(name -> "1500").values == Map("option" -> name, "value" -> "1500"))
    assert(refused("kafka.buffer.memory" -> "1500").values("option") == "kafka.buffer.memory")
    assert(RecordCodec.PartBytes + 20000 < 524288)
    SinkSettings.of(least + (name -> "524288"))
  }

  test("names of which no file can be called are refused before anything is noted") {
    // A byte that is escaped takes three.
    for (name <- Seq("s" * 251, "ä" * 42, "a." * 63))
      assert(refused("sinkName" -> name).values("option") == "sinkName")
    assert(refused("topic" -> "a." * 70).remedy.contains("250"))
    for (name <- Seq("s" * 250, "ä" * 41)) SinkSettings.of(least + ("sinkName" -> name))
  }

  test("an option that nothing would read is refused by name") {
    val e = refused("kafka.Modulo.Only" -> "2")
    assert(e.problem == "Option 'kafka.Modulo.Only' is unknown")
    assert(e.values == Map("option" -> "kafka.Modulo.Only") && e.reason.contains("Kafka "))
    // Kafka's own plugins have no options of their own.
    val round = classOf[org.apache.kafka.clients.producer.RoundRobinPartitioner].getName
    val ofKafka = refused("kafka.partitioner.class" -> round, "kafka.modulo.only" -> "2")
    assert(ofKafka.values == Map("option" -> "kafka.modulo.only"))
    assert(ofKafka.reason.contains("'kafka.partitioner.class'") && ofKafka.reason.endsWith(
      "Kafka's own classes read no options of their own"
    ))
    assert(!ofKafka.remedy.contains("partitioner.class"), "it was given")
    val provider = "kafka.config.providers.vault.class" -> classOf[EchoProvider].getName
    assert(refused(provider).reason.contains("does not name its provider"))
    assert(refused("kafka.config.providers" -> "other", provider).problem.contains("vault"))
    SinkSettings.of(least ++ Map("kafka.config.providers" -> "other, vault", provider))
  }

  test("a plugin's own options are left as they are written; others are spelt as Kafka does") {
    val settings = SinkSettings.of(least ++ Map(
      "KAFKA.Partitioner.Class" -> classOf[ModuloPartitioner].getName,
      "kafka.modulo.Only" -> "2",
      "Kafka.config.Providers" -> "Own",
      "kafka.Config.providers.Own.class" -> classOf[EchoProvider].getName,
      "kafka.config.providers.Own.param.Greeting" -> "hello "
    ))
    assert(Set(
      "partitioner.class",
      "modulo.Only",
      "config.providers",
      "config.providers.Own.class",
      "config.providers.Own.param.Greeting"
    ).subsetOf(settings.kafka.keySet))
  }

  test("a class that its option cannot have is refused by name before the query starts") {
    val reporters = s"${classOf[NotingReporter].getName}, java.lang.String"
    for (
      (name, value, says) <- Seq(
        (
          "partitioner.class",
          "java.lang.String",
          "no org.apache.kafka.clients.producer.Partitioner"
        ),
        ("partitioner.class", classOf[Partitioner].getName, "constructor"),
        ("metric.reporters", reporters, "no org.apache.kafka.common.metrics.MetricsReporter"),
        ("metric.reporters", "com.example.Nowhere", "com.example.Nowhere is not on the class path"),
        ("security.providers", "java.lang.String", "SecurityProviderCreator"),
        ("ssl.engine.factory.class", "java.lang.String", "SslEngineFactory"),
        ("sasl.login.class", "java.lang.String", "Login"),
        ("sasl.login.callback.handler.class", "java.lang.String", "AuthenticateCallbackHandler")
      )
    ) {
      val e = refused(s"kafka.$name" -> value)
      assert(e.values == Map("option" -> s"kafka.$name", "value" -> value), e)
      assert(e.reason.contains(says), e)
    }
    val provider = "kafka.config.providers.own.class"
    val e = refused("kafka.config.providers" -> "own", provider -> "java.lang.String")
    assert(e.values("option") == provider && e.reason.contains("ConfigProvider"), e)
  }

  test("each plugin of Kafka's clients is passed on, or refused") {
    val lists = Set("interceptor.classes", "metric.reporters", "partition.assignment.strategy")
    val plugins = ClientOptions.definitions.flatMap(_.configKeys.asScala.values).collect {
      case key if key.`type` == ConfigDef.Type.CLASS || lists(key.name) => key.name
    }.toSet ++ Set("config.providers", "security.providers")
    assert(plugins.contains("partitioner.class") && lists.subsetOf(plugins))
    assert(plugins.filterNot(ClientOptions.passedPlugins).filterNot(ProducerRules.has).isEmpty)
  }

  test("how the sink reads cannot be changed by an option for consumers") {
    for (
      (name, value) <- Seq(
        "isolation.level" -> "read_uncommitted",
        "auto.offset.reset" -> "earliest",
        "enable.auto.commit" -> "true",
        "check.crcs" -> "false",
        "group.id" -> "mine",
        "partition.assignment.strategy" -> "com.example.Mine",
        "value.deserializer" -> "org.apache.kafka.common.serialization.StringDeserializer"
      )
    ) assert(refused(s"kafka.$name" -> value).values("option") == s"kafka.$name")
    SinkSettings.of(least + ("kafka.isolation.level" -> "read_committed"))
  }

  test("no provider can make another transactional id of the prefix") {
    val providers = "kafka.config.providers" -> "env"
    val prefix = "transactionalIdPrefix" -> s"$${env::X}"
    assert(refused(providers, prefix).values("option") == "transactionalIdPrefix")
    SinkSettings.of(least + prefix)
  }

  test("a file of properties may have what other tools need") {
    val file = Map(
      "group.id" -> "theirs",
      "schema.registry.url" -> "http://registry",
      "Security.Protocol" -> "PLAINTEXT"
    )
    assert(SinkSettings.ofFile(file) == Map("security.protocol" -> "PLAINTEXT"))
    assert(SinkSettings.ofFile(Map("liner.ms" -> "1")).contains("liner.ms"), "it is misspelt")
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
