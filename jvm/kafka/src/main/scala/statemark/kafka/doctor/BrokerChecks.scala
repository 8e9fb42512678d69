package statemark.kafka.doctor

import org.apache.kafka.clients.admin.Admin
import org.apache.kafka.common.utils.AppInfoParser
import scala.jdk.CollectionConverters._
import scala.util.Try
import scala.util.control.NonFatal
import statemark.kafka.clients.{KafkaFailures, TopicChecks}
import statemark.kafka.conf.SinkSettings
import statemark.kafka.tools.NextStart

/** What clients and brokers can do. */
private[doctor] final class BrokerChecks(admin: Admin, settings: SinkSettings) {
  import BrokerChecks._

  /** The settings of a broker, or why they are not known. */
  private lazy val config: Either[String, Map[String, String]] =
    try Right(TopicChecks.brokerConfig(admin))
    catch { case NonFatal(e) => Left(KafkaFailures.unwrapped(e).getMessage) }

  def clients: Check = {
    val version = AppInfoParser.getVersion
    val major = version.takeWhile(_.isDigit).toIntOption
    if (major.exists(_ < LeastMajor)) Check.problem(
      Clients,
      s"Kafka's client library is $version, which cannot fence an executor that is gone",
      s"Use org.apache.kafka:kafka-clients $LeastMajor.0 or later"
    )
    else Check.ok(Clients, s"Kafka's client library is $version")
  }

  def brokers: Check = {
    val nodes = admin.describeCluster().nodes().get().asScala.toVector.sortBy(_.id)
    val where = nodes.map(n => s"${n.host}:${n.port}").mkString(", ")
    val count = NextStart.counted(nodes.size.toLong, "broker")
    Check.ok(Brokers, s"$count of ${release.getOrElse("an unknown release")}: $where")
  }

  /** What the brokers allow a transaction. */
  def timeout: Seq[Check] = config match {
    case Left(why) => Seq(Check.warning(
        Timeout,
        s"The settings of the brokers were not checked: $why",
        "Grant DESCRIBE_CONFIGS on the cluster, or look at transaction.max.timeout.ms, " +
          s"${TopicChecks.IdExpiration}, transaction.state.log.replication.factor and transaction.state.log.min.isr there"
      ))
    case Right(found) =>
      found.get(MostTimeout).flatMap(_.toLongOption).toSeq.map { most =>
        if (most < settings.transactionTimeoutMs) Check.problem(
          Timeout,
          s"$MostTimeout=$most of the brokers is below kafka.transaction.timeout.ms=" +
            s"${settings.transactionTimeoutMs}: no transaction begins",
          s"Set option kafka.transaction.timeout.ms to $most or less, or raise $MostTimeout"
        )
        else Check.ok(
          Timeout,
          s"$MostTimeout=$most, kafka.transaction.timeout.ms=${settings.transactionTimeoutMs}"
        )
      }
  }

  /** How long the brokers remember the id of a sink that idles. */
  def idleIds: Seq[Check] = config.toOption.flatMap(_.get(TopicChecks.IdExpiration))
    .flatMap(_.toLongOption).toSeq.map { ms =>
      val text = s"${TopicChecks.IdExpiration}=$ms"
      if (ms < LeastExpirationMs) Check.warning(
        IdleIds,
        s"$text of the brokers is short: a task whose first row comes later than that after the " +
          "batch before fails once, and runs again",
        s"Set ${TopicChecks.IdExpiration} to $LeastExpirationMs or more"
      )
      else Check.ok(IdleIds, text)
    }

  /** The brokers' own log of transactions. */
  def transactionLog: Seq[Check] = {
    val wanted = config.toOption.flatMap(_.get(LogReplication)).flatMap(_.toIntOption)
    Try(TopicChecks.describe(admin, TransactionLog)).fold(
      _ => Seq(notChecked(wanted)),
      {
        case Some(topic) =>
          val of = TopicChecks.configOf(admin, TransactionLog).getOrElse(Map.empty)
          val wrong = Replication.checks(Log, topic, of)
          if (wrong.nonEmpty) wrong
          else Seq(Check.ok(Log, Replication.text(topic, of, Nil)))
        case None => wanted.fold(Seq(notChecked(None)))(ofTheFirst)
      }
    )
  }

  /** Whether that log is there, or may be. */
  def hasTransactionLog: Boolean =
    Try(TopicChecks.describe(admin, TransactionLog)).fold(_ => true, _.isDefined)

  private def ofTheFirst(copies: Int): Seq[Check] = {
    val nodes = admin.describeCluster().nodes().get().size
    if (nodes < copies) Seq(Check.problem(
      Log,
      s"There are $nodes brokers, and $LogReplication=$copies: no transaction can begin",
      s"Start more brokers, or set $LogReplication=$nodes and transaction.state.log.min.isr"
    ))
    else {
      val minInSync = config.toOption.flatMap(_.get("transaction.state.log.min.isr"))
      Replication.few(Log, TransactionLog, copies, minInSync.flatMap(_.toIntOption)).toSeq match {
        case Nil =>
          Seq(Check.ok(Log, s"$TransactionLog is not there yet: it will have $copies copies"))
        case wrong => wrong
      }
    }
  }

  private def notChecked(copies: Option[Int]): Check = Check.warning(
    Log,
    s"$TransactionLog was not checked: the user may not see it" +
      copies.fold("")(n => s"; $LogReplication=$n"),
    s"Grant DESCRIBE and DESCRIBE_CONFIGS on it"
  )

  /** What the brokers are, by the features that they know: they do not say their release. */
  private def release: Option[String] = {
    val level = Try {
      val features = admin.describeFeatures().featureMetadata().get()
      features.supportedFeatures.get("metadata.version").maxVersion.toInt
    }.toOption
    val known = level.flatMap(n => Levels.filter(_._1 <= n).lastOption.map(_._2 -> n)).map {
      case (name, n) => s"Kafka $name${if (n > LastLevel) " or later" else ""}"
    }
    known.orElse(config.toOption.flatMap(_.get("inter.broker.protocol.version"))
      .map(protocol => s"Kafka $protocol or later"))
  }
}

private[doctor] object BrokerChecks {
  val Clients: String = "clients"
  val Brokers: String = "brokers"
  val Timeout: String = "transaction timeout"
  val IdleIds: String = "idle ids"
  val Log: String = "transaction log"

  private val LeastMajor = 3
  private val LeastExpirationMs = 60L * 60 * 1000
  private val MostTimeout = "transaction.max.timeout.ms"
  private val LogReplication = "transaction.state.log.replication.factor"
  private val TransactionLog = "__transaction_state"

  /** The first level of `metadata.version` of each release. */
  private val Levels = Vector(
    1 -> "3.0",
    4 -> "3.3",
    8 -> "3.4",
    9 -> "3.5",
    12 -> "3.6",
    15 -> "3.7",
    20 -> "3.8",
    21 -> "3.9",
    22 -> "4.0",
    26 -> "4.1"
  )
  private val LastLevel = 27
}
