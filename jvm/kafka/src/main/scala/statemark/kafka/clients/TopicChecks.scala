package statemark.kafka.clients

import java.util.Collections
import java.util.concurrent.ExecutionException
import org.apache.kafka.clients.admin.{Admin, TopicDescription}
import org.apache.kafka.common.acl.AclOperation
import org.apache.kafka.common.config.ConfigResource
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException
import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal
import statemark.kafka.conf.{SinkException, SinkSettings}

/** What a sink has to know of an output topic.
  * @param mayBeCompacted whether the cleaner may remove rows of aborted transactions; true where the topic's settings
  *   may not be read
  * @param notes lines for the log: what could not be checked, what to know
  * @param partitions how many it has; 0 where it is not there yet
  */
private[kafka] final case class TopicFacts(
    mayBeCompacted: Boolean,
    notes: Vector[String],
    partitions: Int = 0
)

/** What rows a topic can take.
  * @param mostBytes of a batch with one row; no limit is known where the topic's settings may not be read
  */
private[kafka] final case class TopicLimits(
    partitions: Int,
    mostBytes: Long,
    needsKey: Boolean,
    times: TimeLimits
)

/** The times that rows of a topic may have.
  * @param pastMs by how much a row's time may lie before the time at which a broker takes it; no limit where the topic
  *   gives rows that time
  * @param futureMs by how much it may lie behind
  */
private[kafka] final case class TimeLimits(pastMs: Long, futureMs: Long) {

  /** Tells whether a row of that time is taken. */
  def take(rowMs: Long, nowMs: => Long): Boolean = isNone || {
    val age = nowMs - rowMs
    age <= pastMs && -age <= futureMs
  }

  private def isNone = this == TimeLimits.none
}

private[kafka] object TimeLimits {
  val none: TimeLimits = TimeLimits(Long.MaxValue, Long.MaxValue)

  /** Brokers before 3.6 have one setting for both directions. */
  def of(topic: Map[String, String]): TimeLimits =
    if (topic.get("message.timestamp.type").contains("LogAppendTime")) none
    else {
      def limit(name: String) = topic.get(name).flatMap(_.toLongOption).filter(_ < Long.MaxValue)
      val both = limit("message.timestamp.difference.max.ms")
      def ms(direction: String) =
        limit(s"message.timestamp.$direction.max.ms").orElse(both).getOrElse(Long.MaxValue)
      TimeLimits(ms("before"), ms("after"))
    }
}

/** Looks at topics before the sink depends on them, so that it is not found out in a crash. */
private[kafka] object TopicChecks {

  /** Whether a topic is fit for output.
    * @throws SinkException where it is not
    */
  def output(admin: Admin, settings: SinkSettings, topic: String): TopicFacts = {
    val isTarget = settings.refusedRowsTopic.contains(topic)
    val lookup = new TopicLookup(admin, settings.commitTopic, TopicLookup.ForRows)
    lookup.find(Seq(topic))().get(topic) match {
      case None if isTarget => throw absentTarget(topic)
      // Executors would take each row of it for one that can never be sent.
      case None if !mayBeMade(admin, settings) =>
        throw new SinkException.UnfitCluster(
          s"Topic $topic is not there",
          "the brokers make no topics by themselves (auto.create.topics.enable), or do not say so",
          "Make it",
          Map("topic" -> topic)
        )
      case None =>
        TopicFacts(
          mayBeCompacted = true,
          Vector(s"Topic $topic is not there yet: it was not checked")
        )
      case Some(description) =>
        authorized(topic, description, Needed)
        val facts = configOf(admin, topic) match {
          case Left(why) => TopicFacts(mayBeCompacted = true, Vector(why))
          case Right(config) if isTarget && isCompacted(config) => throw compactedTarget(topic)
          case Right(config) => ofConfig(settings, topic, config)
        }
        facts.copy(partitions = description.partitions.size)
    }
  }

  /** Whether the commit topic keeps what is written there.
    * @return lines for the log
    */
  def commitTopic(admin: Admin, settings: SinkSettings): Vector[String] = {
    val topic = settings.commitTopic
    describe(admin, topic).foreach(authorized(topic, _, Needed))
    configOf(admin, topic) match {
      case Left(why) => Vector(why)
      case Right(config) =>
        val policy = config.getOrElse(CleanupPolicy, "")
        if (policy.trim != Compact) throw new SinkException.UnfitCluster(
          "The commit topic would lose decisions",
          s"its $CleanupPolicy is '$policy': old records are deleted, or repeats are kept for ever",
          s"Set $CleanupPolicy=$Compact on it. With another topic in option 'commitTopic', " +
            s"${SinkException.Repeats} by a sink that has written before",
          Map("commitTopic" -> topic, CleanupPolicy -> policy)
        )
        requireRoom(settings, config)
        Vector.empty
    }
  }

  /** A decision is written in parts, and the producer puts records together: the topic has to take both. */
  private def requireRoom(settings: SinkSettings, config: Map[String, String]): Unit = {
    val needed = math.max(SinkSettings.LeastRequestBytes.toLong, settings.batchBytes)
    config.get(MostBytes).flatMap(_.toLongOption).filter(_ < needed).foreach { most =>
      throw new SinkException.UnfitCluster(
        "The commit topic does not take a decision",
        s"its $MostBytes is $most, and a record of a decision, or a batch of the producer's, has up to $needed bytes",
        s"Set $MostBytes of the topic to $needed or more; of a larger kafka.batch.size lower that",
        Map(
          "commitTopic" -> settings.commitTopic,
          MostBytes -> most.toString,
          "kafka.batch.size" -> settings.batchBytes.toString
        )
      )
    }
  }

  /** The topic of option `refusedRowsTopic` is not there. */
  def absentTarget(topic: String): SinkException = new SinkException.RefusedSetting(
    "Rows that cannot be sent would have nowhere to go",
    s"topic $topic is not there",
    "Make it, or name another one in option 'refusedRowsTopic'",
    Map("option" -> "refusedRowsTopic", "value" -> topic)
  )

  private def compactedTarget(topic: String) = new SinkException.RefusedSetting(
    "Rows that cannot be sent would be removed, or not be taken",
    s"topic $topic is compacted: it keeps one row of each key, and takes none without a key",
    s"Set $CleanupPolicy=delete on it, or name another one in option 'refusedRowsTopic'",
    Map("option" -> "refusedRowsTopic", "value" -> topic)
  )

  /** What rows a topic can take. */
  def limits(admin: Admin, description: TopicDescription): TopicLimits = {
    val config = configOf(admin, description.name).toOption
    val most = config.flatMap(_.get(MostBytes)).flatMap(_.toLongOption)
    TopicLimits(
      description.partitions.size,
      most.getOrElse(Long.MaxValue),
      needsKey = config.exists(isCompacted),
      config.fold(TimeLimits.none)(TimeLimits.of)
    )
  }

  /** A topic, if the broker that is asked knows it. */
  def describe(admin: Admin, topic: String): Option[TopicDescription] =
    TopicLookup.ask(admin, Seq(topic)).get(topic)

  /** Whether a topic comes when rows are sent to it; None where the user may not know. */
  def brokersMakeTopics(admin: Admin): Option[Boolean] =
    try brokerConfig(admin).get("auto.create.topics.enable").map(_ == "true")
    catch { case e: ExecutionException if KafkaFailures.isDenied(e) => None }

  private def mayBeMade(admin: Admin, settings: SinkSettings): Boolean =
    brokersMakeTopics(admin).getOrElse(settings.refusedRowsTopic.isEmpty)

  /** The settings of one broker. */
  def brokerConfig(admin: Admin): Map[String, String] = {
    val node = admin.describeCluster().nodes().get().iterator.next()
    configOf(admin, new ConfigResource(ConfigResource.Type.BROKER, node.idString))
  }

  /** Whether the user may write to a topic, as far as the brokers say. */
  def isWritable(topic: TopicDescription): Boolean =
    Option(topic.authorizedOperations).forall(_.contains(AclOperation.WRITE))

  private def ofConfig(
      settings: SinkSettings,
      topic: String,
      config: Map[String, String]
  ): TopicFacts = {
    val lagMs = config.get(CompactionLag).flatMap(_.toLongOption).getOrElse(0L)
    if (isCompacted(config) && lagMs < LeastLagMs && !settings.allowsShortCompactionLag)
      throw new SinkException.RefusedSetting(
        s"Topic $topic is compacted too soon",
        "the cleaner may remove rows of a batch that was decided before a query that died can " +
          "complete it",
        s"Set $CompactionLag=$LeastLagMs or more on the topic, or option " +
          "'allowShortCompactionLag' to true if such a batch may run again",
        Map("topic" -> topic, CompactionLag -> lagMs.toString)
      )
    val mostBytes = config.get(MostBytes).flatMap(_.toLongOption)
    mostBytes.filter(_ < settings.batchBytes).foreach(most =>
      throw new SinkException.RefusedSetting(
        s"Topic $topic takes smaller batches than the producer makes",
        "Kafka's producer cuts a batch that is too large by its own batch.size alone, and so sends " +
          "it again for ever (KAFKA-8350)",
        s"Set kafka.batch.size to $most or less, or $MostBytes of the topic to " +
          s"${settings.batchBytes} or more",
        Map(
          "topic" -> topic,
          MostBytes -> most.toString,
          "kafka.batch.size" -> settings.batchBytes.toString
        )
      )
    )
    val late = config.get("message.timestamp.type").contains("LogAppendTime")
    val notes = Option.when(late)(
      s"Topic $topic has message.timestamp.type=LogAppendTime: rows that are copied after a " +
        "failure get the time of the copy"
    )
    val tooOld = config.get(OldestTimestamp).flatMap(_.toLongOption).filter(_ < Long.MaxValue).map {
      ms =>
        s"Topic $topic has $OldestTimestamp=$ms: rows of a batch that a query decided and died of " +
          "cannot be copied once they are older"
    }
    TopicFacts(isCompacted(config), notes.toVector ++ tooOld)
  }

  private def isCompacted(config: Map[String, String]): Boolean =
    config.getOrElse(CleanupPolicy, "").split(',').map(_.trim).contains(Compact)

  private def authorized(
      topic: String,
      description: TopicDescription,
      needed: Seq[AclOperation]
  ): Unit = Option(description.authorizedOperations).foreach { operations =>
    needed.filterNot(operations.contains).headOption.foreach(missing =>
      throw denied(topic, missing.name, None)
    )
  }

  private[clients] def denied(topic: String, operation: String, cause: Option[Throwable]) =
    new SinkException.UnfitCluster(
      s"The user may not $operation topic $topic",
      "the sink writes rows, and reads them back to complete a batch after a crash",
      s"Grant ${Needed.map(_.name).mkString(", ")} on the topic, and the same on the commit topic",
      Map("topic" -> topic, "missing" -> operation),
      cause
    )

  /** The topic's settings, or why they are not known. */
  private[kafka] def configOf(admin: Admin, topic: String): Either[String, Map[String, String]] =
    try Right(configOf(admin, new ConfigResource(ConfigResource.Type.TOPIC, topic)))
    catch {
      case NonFatal(e) =>
        KafkaFailures.unwrapped(e) match {
          case cause if KafkaFailures.isDenied(cause) =>
            Left(
              s"The settings of topic $topic were not checked: that needs DESCRIBE_CONFIGS on it"
            )
          case _: UnknownTopicOrPartitionException =>
            Left(s"The settings of topic $topic were not checked: it is being made")
          case cause => throw cause
        }
    }

  private def configOf(admin: Admin, of: ConfigResource): Map[String, String] =
    admin.describeConfigs(Collections.singleton(of)).values.get(of).get()
      .entries.asScala.map(entry => entry.name -> String.valueOf(entry.value)).toMap

  /** The setting of brokers after which they drop a transactional id that nobody uses. */
  val IdExpiration: String = "transactional.id.expiration.ms"

  private val Needed = Seq(AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE)
  private val CleanupPolicy = "cleanup.policy"
  private val Compact = "compact"
  private val MostBytes = "max.message.bytes"
  private val OldestTimestamp = "message.timestamp.before.max.ms"
  private val CompactionLag = "min.compaction.lag.ms"
  private val LeastLagMs = 60L * 60 * 1000
}
