package statemark.kafka.driver

import org.apache.kafka.common.KafkaException
import org.apache.kafka.common.errors._
import scala.util.control.NonFatal
import statemark.common.{Causes, Clock, StatemarkException}
import statemark.kafka.clients.{
  ClientErrors,
  KafkaClients,
  KafkaFailures,
  RefusedRecord,
  TransactionEndings
}
import statemark.kafka.conf.{SinkException, SinkKind}

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

  /** Where the record was to go that was not taken, if that is the failure. */
  private def placeOf(failure: Throwable): Map[String, String] =
    Causes.of(failure).collectFirst { case e: RefusedRecord => e.values }.getOrElse(Map.empty)

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
  def of(failure: Throwable, problem: String, context: SinkContext): Throwable =
    common(failure, problem, context) {
      case e: RefusedRecord => unavailable(problem, "it was not committed", e, context)
      // The client refuses to commit what has failed before.
      case e: KafkaException if e.getClass == classOf[KafkaException] && e.getCause != null =>
        unavailable(problem, "it was not committed", e, context)
      case e => unavailable(problem, "nobody knows whether it was committed", e, context)
    }

  /** Of anything else that a recovery asks of the brokers. */
  def ofRecovery(failure: Throwable, context: SinkContext): Throwable =
    KafkaFailures.unwrapped(failure) match {
      case e: TimeoutException =>
        new SinkException.Unavailable(
          s"The brokers at ${context.settings.bootstrapServers} gave no answer in time",
          s"the sink asked for what an earlier run has left: ${KafkaFailures.textOf(e)}",
          "Is kafka.bootstrap.servers right, and are all brokers up? Start the query again",
          Map("sink" -> context.identity.toString),
          Some(e)
        )
      case e =>
        val because = "the brokers did not do what was asked of them"
        common(e, NotTakenOver, context)(unavailable(NotTakenOver, because, _, context))
    }

  /** Of a question about the group of option `kafkaConsumerGroup`, which comes before a decision. */
  def ofGroup(failure: Throwable, group: String, context: SinkContext): Throwable = {
    val problem = s"Consumer group $group cannot be looked at"
    common(failure, problem, context) { e =>
      new SinkException.Unavailable(
        problem,
        s"nothing of the batch is decided yet, and the brokers did not say: ${KafkaFailures.textOf(e)}",
        "Are there as many of them up as offsets.topic.replication.factor says? A single broker needs 1 there. Start " +
          "the query again",
        valuesOf(context),
        Some(e)
      )
    }
  }

  /** What has one meaning in all steps of the driver's.
    * @param passing the exception for a failure that may be over at the next try
    */
  private def common(failure: Throwable, problem: String, context: SinkContext)(
      passing: Throwable => Throwable
  ): Throwable = {
    val values = valuesOf(context) ++ placeOf(failure)
    failure match {
      case e: StatemarkException => e
      case e if KafkaFailures.isInterrupt(e) => e
      case e if KafkaFailures.isFenced(e) =>
        new SinkException.Superseded(
          "a later driver has initialized the sink's id, and only that one decides now",
          values,
          Some(e)
        )
      case e =>
        ClientErrors.specific(e).filterNot(_._2.kind.isRetryable) match {
          case Some((said, meaning)) if meaning.kind == SinkKind.UnsendableRow =>
            refused(problem, said, values, e)
          case Some((said, meaning)) =>
            KafkaFailures.meant(meaning, problem, KafkaFailures.textOf(said), values, e)
          case None => passing(e)
        }
    }
  }

  /** Of a record of the sink's own, or of a row that a topic has taken before: it was not committed. */
  private def refused(
      problem: String,
      said: Throwable,
      values: Map[String, String],
      cause: Throwable
  ) = new SinkException.UnfitCluster(
    problem,
    "it was not committed, as a topic does not take any more what it took before, or takes less than the sink " +
      s"needs: ${KafkaFailures.textOf(said)}",
    "Set the topic's max.message.bytes, message.timestamp.before.max.ms, message.timestamp.after.max.ms and " +
      "cleanup.policy back, or raise kafka.max.request.size, and start the query again: nothing is lost, or " +
      "written twice",
    values,
    Some(cause)
  )

  private def unavailable(
      problem: String,
      because: String,
      failure: Throwable,
      context: SinkContext
  ) = {
    // What wraps a failure says only that there is one.
    val said =
      ClientErrors.specific(failure).fold(Option(failure.getCause).getOrElse(failure))(_._1)
    new SinkException.Unavailable(
      problem,
      s"$because: ${KafkaFailures.textOf(said)}",
      "Start the query again: it finds out, and nothing is written twice",
      valuesOf(context) ++ placeOf(failure),
      Some(failure)
    )
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
      case e: StatemarkException => e
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
