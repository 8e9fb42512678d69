package statemark.kafka.clients

import java.nio.ByteBuffer
import java.nio.charset.StandardCharsets.UTF_8
import java.util.HexFormat
import java.util.concurrent.{CompletionException, ExecutionException}
import org.apache.kafka.clients.producer.{ProducerRecord, RecordMetadata}
import org.apache.kafka.common.errors._
import scala.annotation.tailrec
import scala.util.Try
import scala.util.control.NonFatal
import statemark.common.Causes
import statemark.kafka.conf.{ClientOptions, SinkException, SinkKind, SinkSettings}

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

  /** Of two failures the one that says what happened: the first, but where that only names a row beside it. */
  def firstOf(known: Option[Throwable], next: Throwable): Throwable =
    known.filterNot { first =>
      ClientErrors.meaningOf(first) == Meaning.Neighbour &&
      ClientErrors.meaningOf(next).kind == SinkKind.UnsendableRow
    }.getOrElse(next)

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
      case e =>
        val (said, meaning) = ClientErrors.specific(e).getOrElse((e, Meaning.Unknown))
        meant(meaning, s"$what ${meaning.predicate}", textOf(said), values, e)
    }

  /** A failure of that meaning.
    * @param said Kafka's own text
    */
  def meant(
      meaning: Meaning,
      problem: String,
      said: String,
      values: Map[String, String],
      cause: Throwable
  ): SinkException = {
    val reason = Seq(meaning.because, said).filter(_.nonEmpty).mkString(": ")
    meaning.kind match {
      case SinkKind.UnfitCluster =>
        new SinkException.UnfitCluster(problem, reason, meaning.remedy, values, Some(cause))
      case SinkKind.RefusedSetting =>
        new SinkException.RefusedSetting(problem, reason, meaning.remedy, values, Some(cause))
      case SinkKind.UnsendableRow =>
        new SinkException.UnsendableRow(problem, reason, meaning.remedy, values, Some(cause))
      case SinkKind.BrokenLog =>
        new SinkException.BrokenLog(problem, reason, meaning.remedy, values, Some(cause))
      case _ => new SinkException.FailedWrite(problem, reason, meaning.remedy, values, Some(cause))
    }
  }

  /** What an exception says, without the full stop that ours puts behind it. */
  def textOf(failure: Throwable): String =
    SinkException.sentence(Option(failure.getMessage).getOrElse(failure.toString))

  /** Makes a client, which Kafka's library refuses with an exception that says only that it did.
    * @throws SinkException where the options do not do
    */
  def making[A](settings: SinkSettings)(make: => A): A =
    try make
    catch {
      case e: SinkException => throw e
      // Where a plugin fails, the client may fail as it closes itself, and throw that.
      case NonFatal(e) if !isInterrupt(e) => throw ofMaking(e, settings)
    }

  private def ofMaking(failure: Throwable, settings: SinkSettings): SinkException = {
    val problem = "Kafka's client cannot be made"
    val values = Map("kafka.bootstrap.servers" -> settings.bootstrapServers)
    val said = Causes.of(failure).toSeq.last
    textOf(said) match {
      case text if text.contains("No resolvable bootstrap urls") =>
        new SinkException.Unavailable(
          problem,
          "no address of option 'kafka.bootstrap.servers' has a name that can be looked up on this machine",
          "Start the query again where the names can be looked up (DNS) by then; correct the option where they are wrong",
          values,
          Some(failure)
        )
      // It may be a part of a password that was not put into quotes.
      case text if text.endsWith("in JAAS config") =>
        new SinkException.RefusedSetting(
          problem,
          "option 'kafka.sasl.jaas.config' cannot be read",
          "Write it as Kafka's documents do: a class, `required`, then name=\"value\" for each, then a semicolon",
          values
        )
      case text =>
        val plugins = ClientOptions.namedPlugins(settings.kafka)
        val options =
          (Seq(
            "kafka.bootstrap.servers",
            "kafka.security.protocol",
            "kafka.sasl.…",
            "kafka.ssl.…"
          ) ++ plugins).distinct.mkString(", ")
        val where = said match {
          case _: java.nio.file.NoSuchFileException => s"the file $text is not there"
          case _ => text
        }
        new SinkException.RefusedSetting(
          problem,
          where,
          s"Correct the options $options: files have to be there on the driver and on every executor",
          values,
          Some(failure)
        )
    }
  }

  /** Where a row was to go, and which it is. */
  def valuesOf(
      record: ProducerRecord[Array[Byte], Array[Byte]],
      metadata: Option[RecordMetadata] = None
  ): Map[String, String] = {
    val key = Option(record.key).map(shown)
    val topic =
      if (SinkSettings.isTopicName(record.topic)) record.topic
      else shown(record.topic.getBytes(UTF_8))
    val bytes = Seq(record.key, record.value).flatMap(Option(_)).map(_.length).sum
    Map("topic" -> topic, "bytes" -> bytes.toString) ++ key.map("key" -> _) ++
      Option(record.timestamp).map("timestamp" -> _.toString) ++
      Option(record.partition).map(_.intValue).orElse(metadata.map(_.partition).filter(_ >= 0))
        .map("partition" -> _.toString)
  }

  /** Returns the first bytes of a row's text as one line, or as hex where they are no text that can be seen. */
  private def shown(bytes: Array[Byte]): String = {
    // A character is not cut in two.
    val end =
      if (bytes.length <= ShownBytes) bytes.length
      else (ShownBytes - 3 to ShownBytes).findLast(at => (bytes(at) & 0xc0) != 0x80)
        .getOrElse(ShownBytes)
    val part = bytes.take(end)
    val text = Try(UTF_8.newDecoder.decode(ByteBuffer.wrap(part)).toString).toOption
    val more = if (end < bytes.length) "…" else ""
    text.filterNot(_.exists(isUnseen)).getOrElse(s"0x${HexFormat.of.formatHex(part)}") + more
  }

  /** Tells whether a terminal does something else with a character than to show it. */
  private def isUnseen(char: Char): Boolean = Unseen(Character.getType(char).toByte)

  private val Unseen = Set(
    Character.CONTROL,
    Character.FORMAT,
    Character.LINE_SEPARATOR,
    Character.PARAGRAPH_SEPARATOR
  )

  private val ShownBytes = 100
}
