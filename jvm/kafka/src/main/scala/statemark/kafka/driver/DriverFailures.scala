package statemark.kafka.driver

import org.apache.kafka.common.errors._
import scala.util.control.NonFatal
import statemark.common.{Causes, Clock}
import statemark.kafka.clients.{KafkaClients, KafkaFailures, TransactionEndings}
import statemark.kafka.conf.SinkException

/** Runs what the driver asks of the brokers, and says what a failure of it means.
  *
  * The client says "another producer" also where the brokers have ended a transaction that was open for too long, as they
  * do when they come back after an outage. They can have done so only where the driver has waited for that long itself;
  * they are asked then.
  */
private[kafka] final class DriverFailures(
    context: SinkContext,
    clients: KafkaClients,
    clock: Clock
) {
  private val endings = new TransactionEndings(clients, context.settings)

  /** Runs a step of a batch that the driver decides or completes.
    * @throws SinkException with `problem`
    */
  def deciding[A](problem: String)(body: => A): A = explaining(body) { (e, isEnded) =>
    if (isEnded) DriverFailures.ofTimeout(e, problem, context)
    else DriverFailures.of(e, problem, context)
  }

  /** Runs a step of a recovery. */
  def recovering[A](body: => A): A = explaining(body) { (e, isEnded) =>
    if (isEnded) DriverFailures.ofTimeout(e, DriverFailures.NotTakenOver, context)
    else DriverFailures.ofRecovery(e, context)
  }

  private def explaining[A](body: => A)(meaning: (Throwable, Boolean) => Throwable): A = {
    val begun = clock.nanos()
    try body
    catch {
      case NonFatal(e) =>
        val ms = (clock.nanos() - begun) / 1000000L
        throw meaning(
          e,
          isEnded(e) && ms > context.settings.transactionTimeoutMs &&
            endings.isAborted(context.driverId.text)
        )
    }
  }

  // What has its meaning already is left as it is.
  private def isEnded(e: Throwable) = !e.isInstanceOf[SinkException] && KafkaFailures.isEnded(e)
}

private[kafka] object DriverFailures {
  private val NotTakenOver = "The sink cannot be taken over"

  private def valuesOf(context: SinkContext) =
    Map("sink" -> context.identity.toString, "transactionalId" -> context.driverId.text)

  private def ofTimeout(failure: Throwable, problem: String, context: SinkContext) =
    new SinkException.Unavailable(
      problem,
      s"the brokers ended the driver's transaction after ${context.settings.transactionTimeoutMs} ms: " +
        "it was paused, or they were away, for longer",
      "Start the query again: it finds out what was committed, and nothing is written twice",
      valuesOf(context),
      Some(failure)
    )

  /** Of a transaction of the driver's. */
  def of(failure: Throwable, problem: String, context: SinkContext): Throwable = {
    val values = valuesOf(context)
    failure match {
      case e: SinkException => e
      case e if KafkaFailures.isInterrupt(e) => e
      case e if KafkaFailures.isFenced(e) =>
        new SinkException.Superseded(
          "a later driver has initialized the sink's id, and only that one decides now",
          values,
          Some(e)
        )
      case e if KafkaFailures.isDenied(e) || KafkaFailures.isNotLoggedIn(e) =>
        KafkaFailures.ofAttempt(e, problem, values)
      case e =>
        new SinkException.Unavailable(
          problem,
          s"nobody knows whether it was committed: ${SinkException.sentence(e.getMessage)}",
          "Start the query again: it finds out, and nothing is written twice",
          values,
          Some(e)
        )
    }
  }

  /** Of anything else that a recovery asks of the brokers. */
  def ofRecovery(failure: Throwable, context: SinkContext): Throwable =
    KafkaFailures.unwrapped(failure) match {
      case e: TimeoutException =>
        new SinkException.Unavailable(
          NotTakenOver,
          s"the brokers gave no answer: ${SinkException.sentence(e.getMessage)}",
          "Is kafka.bootstrap.servers right, and are all brokers up? Start the query again",
          Map(
            "sink" -> context.identity.toString,
            "kafka.bootstrap.servers" -> context.settings.bootstrapServers
          ),
          Some(e)
        )
      case e => of(e, NotTakenOver, context)
    }

  // The producer wraps what it does not expect, without its cause.
  private def isAboveMost(failure: Throwable) = Causes.of(failure).exists { e =>
    e.isInstanceOf[InvalidTxnTimeoutException] ||
    Option(e.getMessage).exists(_.contains("transaction.max.timeout.ms"))
  }

  /** Of `initTransactions`. */
  def ofInitialization(failure: Throwable, context: SinkContext): Throwable = {
    val values = Map("transactionalId" -> context.driverId.text)
    def unfit(reason: String, remedy: String) = new SinkException.UnfitCluster(
      "Transactions cannot be initialized",
      reason,
      remedy,
      values,
      Some(failure)
    )
    failure match {
      case _: UnsupportedVersionException =>
        unfit(
          "the brokers have no transactions",
          "Use Kafka 0.11 or later, or Spark's own sink, which may write rows twice"
        )
      case e if isAboveMost(e) =>
        unfit(
          "kafka.transaction.timeout.ms is above the brokers' transaction.max.timeout.ms",
          s"Lower it from ${context.settings.transactionTimeoutMs}"
        )
      case e if KafkaFailures.isDenied(e) =>
        unfit(
          String.valueOf(e.getMessage),
          "Grant WRITE and DESCRIBE on transactional ids that begin with " +
            s"'${context.settings.prefix}.'"
        )
      case e if KafkaFailures.isNotLoggedIn(e) =>
        KafkaFailures.ofLogin(e, "Transactions cannot be initialized", values)
      case e: TimeoutException =>
        new SinkException.Unavailable(
          "Transactions cannot be initialized",
          s"the brokers gave no answer: ${SinkException.sentence(e.getMessage)}",
          "Is each of them up, and are there as many as transaction.state.log.replication.factor " +
            "says? A single broker needs 1 there",
          values,
          Some(e)
        )
      case e => of(e, "Transactions cannot be initialized", context)
    }
  }
}
