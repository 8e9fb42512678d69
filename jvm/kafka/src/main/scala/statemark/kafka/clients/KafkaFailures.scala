package statemark.kafka.clients

import java.nio.charset.StandardCharsets.UTF_8
import java.util.concurrent.{CompletionException, ExecutionException}
import org.apache.kafka.clients.producer.ProducerRecord
import org.apache.kafka.common.InvalidRecordException
import org.apache.kafka.common.errors._
import scala.annotation.tailrec
import statemark.common.Causes
import statemark.kafka.conf.SinkException

/** What failures of Kafka's clients mean here, and calls that an interrupt must not end. */
private[kafka] object KafkaFailures {

  /** Whether the brokers say that the producer's id has gone to somebody else: another run, or the broker itself, which
    * ended a transaction after its timeout. The client's text names the first in both cases.
    */
  def isFenced(failure: Throwable): Boolean = Causes.of(failure).exists {
    case _: ProducerFencedException | _: InvalidProducerEpochException => true
    case _ => false
  }

  /** Whether somebody else has ended a transaction, as the client says it: clients from 4.0 on name its state where the
    * broker has ended it.
    */
  def isEnded(failure: Throwable): Boolean =
    isFenced(failure) || Causes.of(failure).exists(_.isInstanceOf[InvalidTxnStateException])

  /** Tells whether the brokers have dropped the transactional id, as nobody has used it for long: nothing of the transaction
    * was taken.
    */
  def isForgotten(failure: Throwable): Boolean =
    Causes.of(failure).exists(_.isInstanceOf[InvalidPidMappingException])

  def isInterrupt(failure: Throwable): Boolean = Causes.of(failure).exists {
    case _: InterruptException | _: InterruptedException => true
    case _ => false
  }

  def isTimeout(failure: Throwable): Boolean =
    Causes.of(failure).exists(_.isInstanceOf[TimeoutException])

  /** Whether a broker does not know yet what others know. */
  def isBehind(failure: Throwable): Boolean =
    Causes.of(failure).exists(_.isInstanceOf[InvalidMetadataException])

  def isDenied(failure: Throwable): Boolean =
    Causes.of(failure).exists(_.isInstanceOf[AuthorizationException])

  /** Whether the brokers do not let the user in, or are not who they should be. */
  def isNotLoggedIn(failure: Throwable): Boolean =
    Causes.of(failure).exists(_.isInstanceOf[AuthenticationException])

  /** The failure of a login: without the options, which hold passwords. */
  def ofLogin(failure: Throwable, problem: String, values: Map[String, String]): SinkException =
    new SinkException.UnfitCluster(
      problem,
      s"client and brokers do not accept each other's credentials: ${failure.getMessage}",
      "Check the options kafka.security.protocol, kafka.sasl.… and kafka.ssl.…",
      values,
      Some(failure)
    )

  /** What a future of the admin client failed with. */
  def unwrapped(failure: Throwable): Throwable = failure match {
    case e @ (_: ExecutionException | _: CompletionException) => Option(e.getCause).getOrElse(e)
    case e => e
  }

  /** Runs `body`, whose calls wait, to its end although the thread is interrupted, as that of a killed task is: a
    * transaction that a task leaves open would hold every reader back. `body` has to bear being begun again. The thread
    * is interrupted afterwards, if it was before or in between.
    */
  def uninterrupted[A](body: => A): A = {
    var isInterrupted = Thread.interrupted()
    @tailrec def attempt(left: Int): A = {
      val result =
        try Right(body)
        catch { case e: Throwable if left > 0 && isInterrupt(e) => Left(e) }
      result match {
        case Right(value) => value
        case Left(_) =>
          Thread.interrupted(): Unit
          isInterrupted = true
          attempt(left - 1)
      }
    }
    try attempt(MostInterrupts)
    finally if (isInterrupted) Thread.currentThread.interrupt()
  }

  private val MostInterrupts = 10

  /** The failure of a row, or of a call for an attempt, for whoever reads the query's error. */
  def ofAttempt(failure: Throwable, what: String, values: Map[String, String]): SinkException =
    failure match {
      case e: SinkException => e
      case e if isDenied(e) =>
        new SinkException.UnfitCluster(
          s"$what is not allowed",
          e.getMessage,
          "Let the user write to the output topic and the commit topic, and use the transactional " +
            "ids of the sink's prefix",
          values,
          Some(e)
        )
      case e if isNotLoggedIn(e) => ofLogin(e, s"$what failed", values)
      case e: RecordTooLargeException =>
        new SinkException.UnsendableRow(
          s"$what failed: the row is too large",
          SinkException.sentence(e.getMessage),
          s"Raise kafka.max.request.size and the topic's max.message.bytes, or $Elsewhere",
          values,
          Some(e)
        )
      case e if isWithoutPlace(e) =>
        ofWrite(
          s"$what failed: the row's topic, or its partition, is not there",
          SinkException.sentence(e.getMessage),
          (if (String.valueOf(e.getMessage).startsWith("Partition"))
             s"Partitions are counted from 0: name one that the topic has, or $Elsewhere"
           else s"Are all brokers up? Make the topic, or $Elsewhere"),
          values,
          e
        )
      case e =>
        ofWrite(
          s"$what failed",
          SinkException.sentence(Option(e.getMessage).getOrElse(e.toString)),
          "See the cause",
          values,
          e
        )
    }

  private def ofWrite(
      problem: String,
      reason: String,
      remedy: String,
      values: Map[String, String],
      cause: Throwable
  ): SinkException = cause match {
    case _: InvalidTopicException | _: InvalidTimestampException | _: InvalidRecordException |
        _: SerializationException =>
      new SinkException.UnsendableRow(problem, reason, remedy, values, Some(cause))
    case _ => new SinkException.FailedWrite(problem, reason, remedy, values, Some(cause))
  }

  private val Elsewhere =
    "leave such rows out, or name a topic for them in option 'refusedRowsTopic'"

  /** Whether a row's topic or partition does not exist. The producer waits for it, and then speaks of a timeout. */
  private def isWithoutPlace(failure: Throwable): Boolean = failure match {
    case _: InvalidTopicException | _: UnknownTopicOrPartitionException => true
    case e: TimeoutException => String.valueOf(e.getMessage).contains("present in metadata")
    case _ => false
  }

  /** Where a row was to go, and which it is. */
  def valuesOf(record: ProducerRecord[Array[Byte], Array[Byte]]): Map[String, String] = {
    val key = Option(record.key).map(key => new String(key.take(ShownBytes), UTF_8))
    val bytes = Seq(record.key, record.value).flatMap(Option(_)).map(_.length).sum
    Map("topic" -> record.topic, "bytes" -> bytes.toString) ++ key.map("key" -> _) ++
      Option(record.partition).map("partition" -> _.toString)
  }

  private val ShownBytes = 100
}
