package statemark.kafka.conf

import java.util.Locale
import org.apache.kafka.clients.producer.ProducerConfig
import scala.jdk.CollectionConverters._
import scala.util.Try

/** What the user says of a sink: options of `format("statemark-kafka")`. It travels to the executors.
  *
  * @param kafka options `kafka.…` without that prefix, checked by [[ProducerRules]]
  * @param sink option `sinkName`; by default the topic, else `out`
  * @param topic option `topic`: where every row goes; None where rows have a column of that name
  * @param commitTopic option `commitTopic`
  * @param commitTopicReplication option `commitTopicReplicationFactor`, for a commit topic that is made; -1 is the brokers'
  * @param prefix option `transactionalIdPrefix`
  * @param onLostRows option `onLostRows`
  * @param allowsShortCompactionLag option `allowShortCompactionLag`: write to a compacted topic whose
  *   `min.compaction.lag.ms` is below an hour
  * @param producersPerExecutor option `producersPerExecutor`: how many producers, and open transactions, an executor has.
  *   In local mode there is one
  * @param refusedRowsTopic option `refusedRowsTopic`: where rows go that their topic can never take; None where such a row
  *   fails the query
  * @param openSinks option `openSinks`: how many sinks of a query's batch writes keep their clients open for the next one
  * @param kafkaConsumerGroup option `kafkaConsumerGroup`: the group to which each decision commits where the query's
  *   sources end
  */
final case class SinkSettings(
    kafka: Map[String, String],
    sink: String,
    topic: Option[String],
    commitTopic: String,
    commitTopicReplication: Short,
    prefix: String,
    onLostRows: OnLostRows,
    allowsShortCompactionLag: Boolean,
    producersPerExecutor: Int,
    refusedRowsTopic: Option[String],
    openSinks: Int,
    kafkaConsumerGroup: Option[String] = None
) {

  def bootstrapServers: String = kafka(SinkSettings.BootstrapServers)

  /** How long a broker leaves a transaction open. */
  def transactionTimeoutMs: Long = kafka("transaction.timeout.ms").toLong

  /** How long the producer tries to send a row; its own default is two minutes. */
  def deliveryTimeoutMs: Long =
    kafka.get("delivery.timeout.ms").flatMap(_.trim.toLongOption).getOrElse(2L * 60 * 1000)

  /** The most bytes that a row may have before compression: those of a request, of which Kafka's default is a megabyte,
    * and of the producer's memory.
    */
  def mostRowBytes: Long = math.min(
    kafka.get("max.request.size").fold(1L << 20)(_.trim.toLong),
    kafka.get("buffer.memory").flatMap(_.trim.toLongOption).getOrElse(32L << 20)
  )

  /** The size up to which the producer puts rows of a partition together, in bytes; its own default is 16 KiB. */
  def batchBytes: Long =
    kafka.get("batch.size").flatMap(_.trim.toLongOption).getOrElse(16L << 10)

  /** Without values: they may hold passwords. */
  override def toString: String =
    s"SinkSettings($sink, topic ${topic.getOrElse("of each row")}, commit topic $commitTopic, " +
      s"kafka options ${kafka.keys.toSeq.sorted.mkString(", ")})"
}

/** What a sink does where a decision names rows that the log does not have any more, while other rows of the batch are
  * with the readers.
  */
sealed abstract class OnLostRows(val name: String)

object OnLostRows {

  /** It fails: somebody has to say that the rows may differ. */
  case object Fail extends OnLostRows("fail")

  /** The missing partitions are written again, by a rerun whose rows may differ from those that were decided. */
  case object Rerun extends OnLostRows("rerun")

  val all: Seq[OnLostRows] = Seq(Fail, Rerun)
}

object SinkSettings {
  val BootstrapServers: String = "bootstrap.servers"
  val DefaultCommitTopic: String = "statemark-commits"

  /** The option that names a consumer group. */
  val ConsumerGroup: String = "kafkaConsumerGroup"
  private val KafkaPrefix = "kafka."
  private val MostProducers = 64
  private val DefaultOpenSinks = 16
  private val MostOpenSinks = 1000

  /** The bytes that a request, and a batch of the commit topic, have to take: those of a part of a decision, its key
    * included.
    */
  private[kafka] val LeastRequestBytes = 512 << 10

  /** File systems take 255 bytes, of which Hadoop's checksums of local files need five. */
  private val MostNameBytes = 250

  /** Of names that become parts of ids and records, whose length Kafka limits. */
  private val MostCharacters = 1000

  /** Reads options as Spark hands them over; their names are not case-sensitive.
    * @throws SinkException.RefusedSetting where one is missing, or has a value that is not allowed
    */
  def of(options: Map[String, String]): SinkSettings = {
    val lower = options.map { case (name, value) => name.toLowerCase(Locale.ROOT) -> value }
    def option(name: String): Option[String] = lower.get(name.toLowerCase(Locale.ROOT))
    val kafka = kafkaOptions(options)
    OptionNames.check(options.keySet)
    if (!kafka.contains(BootstrapServers)) throw refused(
      s"$KafkaPrefix$BootstrapServers",
      "",
      "the sink has to know a broker",
      "host:port of one broker or more"
    )
    requireAddresses(kafka(BootstrapServers))
    val topics = Seq("topic", "commitTopic", "refusedRowsTopic").flatMap { name =>
      val set = option(name).orElse(Option.when(name == "commitTopic")(DefaultCommitTopic))
      set.map(value => name -> topicName(name, value))
    }
    topics.combinations(2).find(two => two.head._2 == two.last._2).foreach { two =>
      // Whoever has left the other one as it is has set this one.
      val (wrong, other) =
        if (option(two.last._1).isDefined) (two.last, two.head) else (two.head, two.last)
      val unset = if (option(other._1).isDefined) "" else ", by default"
      throw refused(
        wrong._1,
        wrong._2,
        s"option '${other._1}' names the same topic$unset",
        "a topic of its own"
      )
    }
    val prefix = nonEmpty(
      "transactionalIdPrefix",
      option("transactionalIdPrefix").getOrElse(SinkTransactionalId.DefaultPrefix)
    )
    if (ClientOptions.isLookedUp(kafka, prefix)) throw refused(
      "transactionalIdPrefix",
      prefix,
      "a provider of option 'kafka.config.providers' would make another one of it",
      "any text without '${'"
    )
    val applied = ProducerRules.applied(kafka)
    ClientOptions.requireReaders(kafka, ProducerRules.has)
    val sink = nonEmpty("sinkName", option("sinkName").orElse(option("topic")).getOrElse("out"))
    requireFileName(sink)
    val settings = SinkSettings(
      applied,
      sink = sink,
      topic = option("topic").map(nonEmpty("topic", _)),
      commitTopic = nonEmpty("commitTopic", option("commitTopic").getOrElse(DefaultCommitTopic)),
      commitTopicReplication =
        choice("commitTopicReplicationFactor", option("commitTopicReplicationFactor"), -1: Short)(
          text => text.toShortOption.filter(n => n == -1 || n > 0)
        )("-1, or 1 and more"),
      prefix = prefix,
      onLostRows = choice("onLostRows", option("onLostRows"), OnLostRows.Fail: OnLostRows)(text =>
        OnLostRows.all.find(_.name == text.toLowerCase(Locale.ROOT))
      )(OnLostRows.all.map(_.name).mkString(", ")),
      allowsShortCompactionLag =
        choice("allowShortCompactionLag", option("allowShortCompactionLag"), false)(
          _.toLowerCase(Locale.ROOT).toBooleanOption
        )("true, false"),
      producersPerExecutor = choice("producersPerExecutor", option("producersPerExecutor"), 1)(
        _.toIntOption.filter(n => n >= 1 && n <= MostProducers)
      )(s"1 to $MostProducers"),
      refusedRowsTopic = option("refusedRowsTopic").map(nonEmpty("refusedRowsTopic", _)),
      openSinks = choice("openSinks", option("openSinks"), DefaultOpenSinks)(
        _.toIntOption.filter(n => n >= 0 && n <= MostOpenSinks)
      )(s"0 to $MostOpenSinks"),
      kafkaConsumerGroup = option(ConsumerGroup).map(nonEmpty(ConsumerGroup, _))
    )
    requireRoomForDecisions(settings)
    settings
  }

  /** A checkpoint has a file of that name. */
  private def requireFileName(sink: String): Unit = {
    val bytes = SinkTransactionalId.escaped(sink).length
    if (bytes > MostNameBytes) throw refused(
      "sinkName",
      s"${sink.take(100)}…",
      s"with each byte but letters, digits, '-' and '_' as three it has $bytes bytes, and a file in the checkpoint " +
        "is called so; where the option is not set, the topic is the name",
      s"a name of $MostNameBytes such bytes at most"
    )
  }

  private def requireRoomForDecisions(settings: SinkSettings): Unit =
    if (settings.mostRowBytes < LeastRequestBytes) {
      val isRequest =
        settings.kafka.get("max.request.size").exists(_.toLong == settings.mostRowBytes)
      val name = if (isRequest) "max.request.size" else "buffer.memory"
      throw refused(
        s"$KafkaPrefix$name",
        settings.mostRowBytes.toString,
        "a decision is written in records of up to half a megabyte",
        s"$LeastRequestBytes and more; larger rows are refused by the topic's max.message.bytes"
      )
    }

  /** Options `kafka.…`, as the documentation of Kafka's clients writes them: Spark's own sink and source have them too. */
  private[kafka] def kafkaOptions(options: Map[String, String]): Map[String, String] =
    options.collect {
      case (name, value) if name.toLowerCase(Locale.ROOT).startsWith(KafkaPrefix) =>
        ClientOptions.spelt(name.drop(KafkaPrefix.length)) -> value
    }

  /** Properties of Kafka's clients out of a file that other tools read as well: without those that only they need. One that
    * is misspelt stays, to be refused.
    */
  private[kafka] def ofFile(properties: Map[String, String]): Map[String, String] = {
    val spelt = properties.map { case (name, value) => ClientOptions.spelt(name) -> value }
    val others = ClientOptions.unread(spelt)
      .filter(name => OptionNames.nearest(s"$KafkaPrefix$name").isEmpty)
    spelt -- others -- ProducerRules.ofReaders
  }

  private[kafka] def refused(name: String, value: String, reason: String, allowed: String) =
    new SinkException.RefusedSetting(
      s"Option '$name' is refused",
      reason,
      s"Allowed: $allowed",
      Map("option" -> name, "value" -> value)
    )

  private def requireAddresses(value: String): Unit =
    value.split(',').map(_.trim).filter(_.nonEmpty).find(address =>
      !address.matches(".+:[0-9]+")
    ).foreach { address =>
      throw refused(
        s"$KafkaPrefix$BootstrapServers",
        value,
        s"'$address' is not host:port",
        "host:port of one broker or more"
      )
    }

  /** Whether Kafka can have a topic of that name. */
  private[kafka] def isTopicName(name: String): Boolean =
    name.matches("[a-zA-Z0-9._-]{1,249}") && name != "." && name != ".."

  private def topicName(option: String, value: String): String = {
    val name = nonEmpty(option, value)
    if (isTopicName(name)) name
    else throw refused(
      option,
      value,
      "Kafka has no topic of such a name",
      "1 to 249 letters, digits, '.', '_' and '-'"
    )
  }

  /** Returns the value of an option that names something.
    * @throws SinkException.RefusedSetting where it is empty, or too long
    */
  private[kafka] def nonEmpty(name: String, value: String): String =
    if (value.trim.isEmpty)
      throw refused(name, value, "it must not be empty", "any text but blanks")
    else if (value.length > MostCharacters) throw refused(
      name,
      s"${value.take(100)}…",
      s"it has ${value.length} characters",
      s"$MostCharacters characters at most"
    )
    else value.trim

  private def choice[A](name: String, value: Option[String], default: A)(
      read: String => Option[A]
  )(allowed: String): A = value.fold(default) { text =>
    Try(read(text.trim)).toOption.flatten
      .getOrElse(throw refused(name, text, "its value has no meaning here", allowed))
  }
}

/** The settings of Kafka's clients that this sink depends on (KIP-185): each is set, and another value in the user's
  * options is refused by name. Kafka itself switches idempotence off for some of them, with a line in a log.
  */
object ProducerRules {

  private final case class Rule(
      name: String,
      set: Option[String],
      isAllowed: String => Boolean,
      allowed: String,
      reason: String
  )

  private val ByteArrays = "org.apache.kafka.common.serialization.ByteArraySerializer"
  private val FromByteArrays = "org.apache.kafka.common.serialization.ByteArrayDeserializer"

  private def never(name: String, reason: String, instead: String) =
    Rule(name, None, _ => false, instead, reason)

  private def only(name: String, value: String, reason: String) =
    Rule(name, None, _.trim.equalsIgnoreCase(value), s"no value, $value", reason)

  private val ofProducer: Seq[Rule] = Seq(
    Rule(
      "enable.idempotence",
      Some("true"),
      _.trim.equalsIgnoreCase("true"),
      "true",
      "without it a retry may write a row twice"
    ),
    Rule(
      "acks",
      Some("all"),
      value => Set("all", "-1")(value.trim),
      "all, -1",
      "a row that one broker alone has may be lost with it"
    ),
    Rule(
      "retries",
      Some(Int.MaxValue.toString),
      _.trim.toIntOption.exists(_ > 0),
      "1 and more; delivery.timeout.ms says how long to try",
      "a producer without retries is not idempotent"
    ),
    Rule(
      "max.in.flight.requests.per.connection",
      Some("5"),
      _.trim.toIntOption.exists(n => n >= 1 && n <= 5),
      "1 to 5",
      "a broker remembers five requests of a producer, and cannot see that a sixth is a repeat"
    ),
    Rule(
      "transaction.timeout.ms",
      Some("900000"),
      _.trim.toIntOption.exists(_ >= 1000),
      "1000 and more",
      "it is the time in milliseconds that a transaction may stay open"
    ),
    Rule(
      "max.request.size",
      None,
      _.trim.toIntOption.exists(_ > 0),
      "1 and more",
      "it is the number of bytes that a request may have"
    ),
    only("key.serializer", ByteArrays, "rows are bytes already"),
    only("value.serializer", ByteArrays, "rows are bytes already"),
    never(
      "transactional.id",
      "the sink gives each executor an id of its own",
      "no value; option 'transactionalIdPrefix' is what the ids begin with"
    ),
    never(
      "interceptor.classes",
      "an interceptor may change rows after their hashes were taken",
      "no value; change rows in the query"
    ),
    never(
      "transaction.two.phase.commit.enable",
      "the sink decides batches by itself",
      "no value"
    )
  )

  private val withoutGroup =
    Seq("group.id", "group.instance.id", "group.protocol", "partition.assignment.strategy").map(
      never(_, "the sink reads without a group", "no value")
    )

  // The sink reads its decisions, and rows that it copies.
  private val ofConsumer: Seq[Rule] = withoutGroup ++ Seq(
    only("isolation.level", "read_committed", "decisions that were taken back would count"),
    only("auto.offset.reset", "none", "rows that are lost would be passed over in silence"),
    only("enable.auto.commit", "false", "the sink reads without a group"),
    only("check.crcs", "true", "rows that a disk has damaged would be copied"),
    only("key.deserializer", FromByteArrays, "rows are bytes"),
    only("value.deserializer", FromByteArrays, "rows are bytes")
  )

  private val rules: Seq[Rule] = ofProducer ++ ofConsumer

  /** Tells whether an option may have certain values only. */
  private[kafka] def has(name: String): Boolean = rules.exists(_.name == name)

  /** Options that say how somebody reads, as a file of client properties may have them for other tools. */
  private[kafka] val ofReaders: Set[String] = ofConsumer.map(_.name).toSet

  /** Options that switch idempotence off, each with its value: what a sink of somebody else's may have. */
  def withoutIdempotence(kafka: Map[String, String]): Seq[(String, String)] =
    rules.filter(rule => ofIdempotence(rule.name)).flatMap { rule =>
      kafka.get(rule.name).filterNot(rule.isAllowed).map(rule.name -> _)
    }

  private val ofIdempotence =
    Set("enable.idempotence", "acks", "retries", "max.in.flight.requests.per.connection")

  /** The options with what has to be set.
    * @throws SinkException.RefusedSetting naming the option, its value and what is allowed
    */
  def applied(kafka: Map[String, String]): Map[String, String] = {
    val all = set(kafka)
    // Kafka itself says so as the first client is made, when the query runs already.
    val serializers = Seq("key.serializer", "value.serializer").map(_ -> ByteArrays)
    val deserializers = Seq("key.deserializer", "value.deserializer").map(_ -> FromByteArrays)
    val checked = (all ++ serializers ++ deserializers).asJava
    ClientOptions.definitions.flatMap(_.validateAll(checked).asScala).sortBy(_._1)
      .find { case (name, of) => all.contains(name) && !of.errorMessages.isEmpty }
      .foreach { case (name, of) =>
        throw SinkSettings.refused(
          s"kafka.$name",
          if (isSecret(name)) "hidden" else all(name),
          SinkException.sentence(of.errorMessages.asScala.mkString("; ")),
          "what Kafka's documentation of its clients says"
        )
      }
    requireDeliveryTime(all)
    all
  }

  /** The producer refuses it as it is made, when the query runs already. */
  private def requireDeliveryTime(kafka: Map[String, String]): Unit = {
    val defaults = ProducerConfig.configDef.defaultValues
    def ms(name: String): Long =
      kafka.get(name).getOrElse(defaults.get(name).toString).trim.toLong
    val least = math.min(Int.MaxValue.toLong, ms("linger.ms") + ms("request.timeout.ms"))
    if (ms("delivery.timeout.ms") < least && kafka.contains("delivery.timeout.ms"))
      throw SinkSettings.refused(
        "kafka.delivery.timeout.ms",
        kafka("delivery.timeout.ms"),
        "it is shorter than one try to send a row",
        s"$least and more, which is kafka.linger.ms and kafka.request.timeout.ms together"
      )
  }

  private def isSecret(name: String): Boolean =
    Seq("password", "jaas", "secret", "key").exists(name.contains)

  private def set(kafka: Map[String, String]): Map[String, String] =
    rules.foldLeft(kafka) { (settings, rule) =>
      settings.get(rule.name) match {
        case Some(value) if !rule.isAllowed(value) =>
          throw SinkSettings.refused(s"kafka.${rule.name}", value, rule.reason, rule.allowed)
        case Some(value) => settings + (rule.name -> value.trim)
        case None => settings ++ rule.set.map(rule.name -> _)
      }
    }
}
