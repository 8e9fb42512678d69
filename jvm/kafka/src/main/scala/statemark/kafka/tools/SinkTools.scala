package statemark.kafka.tools

import org.apache.kafka.clients.admin.Admin
import statemark.common.Clock
import statemark.kafka.clients.{KafkaClients, TopicLookup}
import statemark.kafka.conf.{SinkException, SinkIdentity, SinkSettings}
import statemark.kafka.decision.{Outcome, RecoveryReport}
import statemark.kafka.driver.{BatchCoordinator, CheckpointMarker, SinkContext}
import statemark.kafka.executor.CommitOrders
import statemark.kafka.log.{CommitState, IdentityRecord, TopicCommitLog}

/** What brokers know of sinks.
  * @param sinks in the order of their names
  * @param open transactions of these, and all that hold readers back of their topics and of the commit topic
  * @param notes what could not be looked at, a line each
  */
final case class StatusReport(
    commitTopic: String,
    sinks: Vector[SinkStatus],
    open: Vector[OpenTransaction],
    notes: Vector[String]
) {

  /** Open transactions of one of the sinks. */
  def openOf(identity: SinkIdentity): Vector[OpenTransaction] =
    open.filter(_.sink.contains(identity))

  /** All others. */
  def openOfOthers: Vector[OpenTransaction] =
    open.filterNot(_.sink.exists(s => sinks.exists(_.identity == s)))
}

/** `statemark topic status|finish|forget`: looks at sinks from outside, completes and removes what they have decided.
  *
  * ''Thread:'' one at a time.
  */
final class SinkTools private (settings: SinkSettings, clients: KafkaClients)
    extends AutoCloseable {

  private val admin: Admin = asking("Kafka cannot be reached")(clients.admin())

  /** Looks, and changes nothing. It waits for no open transaction: what stands behind one is not there yet.
    * @param name of the sinks wanted: `<app id>/<sink>`, or an app id; None for all
    * @param prefix of their transactional ids; None for any
    * @throws SinkException where the commit topic cannot be read, or has no such sink
    */
  def status(name: Option[String], prefix: Option[String] = None): StatusReport =
    asking("The commit topic cannot be read") {
      if (TopicLookup.patiently(admin, settings.commitTopic).isEmpty) throw absent
      val transactions = new OpenTransactions(admin)
      val found =
        read(identity => name.forall(SinkTools.isNamed(identity, _))) { (identity, state) =>
          val isOfPrefix = prefix.forall(p => state.identity.forall(_.prefix == p))
          identity -> Option.when(isOfPrefix)(
            SinkStatus.of(identity, state)(transactions.isCommitting)
          )
        }.toMap
      val known =
        if (found.isEmpty) read(_ => true)((identity, _) => identity).toSet else found.keySet
      val wanted = SinkTools.named(settings.commitTopic, known, name)
      val sinks = wanted.flatMap(found(_))
      val topics = sinks.flatMap(_.topics).toSet + settings.commitTopic
      // Of a run that has not begun yet the commit topic knows nothing.
      val isWanted =
        (s: SinkIdentity) => name.isEmpty && prefix.isEmpty || sinks.exists(_.identity == s)
      val open = transactions.find(topics)(isWanted)
      StatusReport(settings.commitTopic, sinks, open.transactions, open.notes)
    }

  /** Reads what the commit topic says of sinks, and keeps what `of` makes of it. */
  private def read[A](isWanted: SinkIdentity => Boolean)(of: (SinkIdentity, CommitState) => A) =
    new TopicCommitLog(clients, admin, settings, Clock.system)
      .readAll(isWanted)((identity, state) => Option.unless(state.isEmpty)(of(identity, state)))
      .flatten

  /** The one sink that a name stands for, and its report.
    * @throws SinkException where there is none, or more than one
    */
  def one(name: String): (SinkStatus, StatusReport) = {
    val report = status(Some(name))
    report.sinks match {
      case Vector(only) => (only, report)
      case several =>
        throw new SinkException.RefusedSetting(
          s"$name names ${several.size} sinks",
          s"they are ${several.map(_.identity).mkString(", ")}",
          "Name one of them",
          Map.empty
        )
    }
  }

  /** Takes the sink over, ends its open transactions, and completes what was decided. A driver that runs is fenced.
    * @throws SinkException where that cannot be done: nothing was written twice then
    */
  def finish(sink: SinkStatus): RecoveryReport =
    takingOver(sink)(_.recover())

  /** Takes the sink over, and removes what was decided. A driver that runs is fenced.
    * @throws SinkException.LostRows where rows of it that are not given up are lost
    * @param isGivenUp whether rows of the last decision that readers do not have are given up; they are completed otherwise
    * @param isWhole whether the sink itself is removed as well: a query whose checkpoint knows it fails then
    */
  def forget(sink: SinkStatus, isGivenUp: Boolean, isWhole: Boolean): RecoveryReport =
    takingOver(sink) { coordinator =>
      val report = if (isGivenUp) coordinator.seize() else coordinator.recover()
      if (!isGivenUp && report.outcome == Outcome.Lost) throw new SinkException.LostRows(
        s"What ${sink.identity} has decided is not removed",
        "rows of its last decision are not in the log any more, and the next run writes them again",
        "Let the query run, or add --force to give the rows up",
        Map("commitTopic" -> settings.commitTopic)
      )
      if (isWhole) coordinator.forget() else coordinator.forgetDecisions()
      report
    }

  override def close(): Unit = admin.close()

  private def takingOver[A](sink: SinkStatus)(body: BatchCoordinator => A): A = {
    val record = sink.record.getOrElse(throw unreadable(sink))
    asking(s"Sink ${sink.identity} cannot be taken over") {
      val coordinator = BatchCoordinator.open(
        contextOf(sink.identity, record),
        CommitOrders.none,
        CheckpointMarker.none,
        None
      )
      try body(coordinator)
      finally coordinator.close()
    }
  }

  /** As its last run had it, so that what the topic says of that stays. */
  private def contextOf(identity: SinkIdentity, record: IdentityRecord) = SinkContext(
    identity,
    settings.copy(
      sink = identity.sink,
      topic = record.topics.headOption,
      prefix = record.prefix,
      // What is decided is decided, however long the cleaner leaves it there.
      allowsShortCompactionLag = true
    ),
    record.queryId,
    record.queryName
  )

  private def unreadable(sink: SinkStatus) = new SinkException.WrongHistory(
    s"Sink ${sink.identity} cannot be taken over",
    sink.next match {
      case NextStart.Fails(why) => SinkException.sentence(why)
      case _ => "nothing says who writes for it"
    },
    "Use the release of Statemark that wrote its records",
    Map("commitTopic" -> settings.commitTopic)
  )

  private def absent = new SinkException.UnfitCluster(
    s"Topic ${settings.commitTopic} is not there",
    "no sink has written to these brokers, or its option 'commitTopic' names another one",
    "Name the commit topic, or the brokers, that the query writes to",
    Map("commitTopic" -> settings.commitTopic, "bootstrap.servers" -> settings.bootstrapServers)
  )

  private def asking[A](problem: String)(body: => A): A =
    BrokerAnswers.asking(settings, problem)(body)
}

object SinkTools {

  /** How long a client waits for brokers where somebody waits for it: Kafka's own default is a minute. */
  val Timeouts: Map[String, String] =
    Map("request.timeout.ms" -> "15000", "default.api.timeout.ms" -> "20000")

  private val MostNamed = 20

  /** @param settings those of any sink with this commit topic on these brokers */
  def open(settings: SinkSettings): SinkTools = new SinkTools(settings, KafkaClients.of(settings))

  /** Tells whether a name may stand for a sink. */
  private[tools] def isNamed(identity: SinkIdentity, name: String): Boolean =
    identity.toString == name || identity.appId == name

  /** The sinks that a name stands for, in the order of their names.
    * @throws SinkException where there is none
    */
  private[kafka] def named(
      commitTopic: String,
      all: Set[SinkIdentity],
      name: Option[String]
  ): Vector[SinkIdentity] = {
    val sorted = all.toVector.sortBy(i => (i.appId, i.sink))
    name.fold(sorted) { text =>
      val exact = sorted.filter(_.toString == text)
      val found = if (exact.nonEmpty) exact else sorted.filter(_.appId == text)
      if (found.nonEmpty) found
      else {
        val some = sorted.take(MostNamed).mkString(", ")
        val more = if (sorted.size > MostNamed) s" and ${sorted.size - MostNamed} more" else ""
        throw new SinkException.RefusedSetting(
          s"No sink $text is known",
          if (sorted.isEmpty) "the commit topic knows none" else s"there are $some$more",
          "Name one as <query id or txnAppId>/<sink name>, or the commit topic that knows it",
          Map("commitTopic" -> commitTopic)
        )
      }
    }
  }
}
