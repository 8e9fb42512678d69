package statemark.kafka.conf

import java.nio.charset.StandardCharsets.UTF_8
import org.apache.kafka.common.utils.Utils

/** Whose output it is: what one sink of one query writes, over all runs. A decision, a token and a fence count for one
  * identity only.
  *
  * @param appId the query id, or `txnAppId` of a batch write
  * @param sink option `sinkName`; several sinks of one query need different ones
  */
final case class SinkIdentity(appId: String, sink: String) {
  require(appId.nonEmpty && sink.nonEmpty, s"appId '$appId' and sink '$sink' must not be empty")

  /** The partition of the commit topic that holds the identity's records, for ever: partitions that are added to the
    * topic later hold nothing (K6).
    */
  def commitPartition: Int =
    Utils.toPositive(Utils.murmur2(s"$appId\n$sink".getBytes(UTF_8))) %
      SinkIdentity.CommitPartitions

  override def toString: String = s"$appId/$sink"
}

object SinkIdentity {

  /** Partitions of a commit topic that hold identities, for ever (K6). */
  val CommitPartitions: Int = 16
}

/** A transactional id that this sink gives: `<prefix>.<app id>.<sink>.driver`, `….e<executor id>`, or `….e<executor
  * id>:<number>` for a further producer of an executor (option `producersPerExecutor`), each part escaped so that it
  * holds neither dot nor colon. Ids are compared in their parts and never by prefix: `orders.` begins `orders.dlq` as well
  * (K12).
  */
final case class SinkTransactionalId(
    prefix: String,
    identity: SinkIdentity,
    owner: SinkTransactionalId.Owner
) {
  import SinkTransactionalId._

  /** The id as Kafka has it. */
  def text: String = {
    val last = owner match {
      case DriverOwner => "driver"
      case ExecutorOwner(id, 0) => s"e${escaped(id)}"
      case ExecutorOwner(id, number) => s"e${escaped(id)}:$number"
    }
    s"$prefix.${escaped(identity.appId)}.${escaped(identity.sink)}.$last"
  }
}

object SinkTransactionalId {

  val DefaultPrefix: String = "statemark"

  sealed trait Owner
  case object DriverOwner extends Owner

  /** @param number of the producer in its executor, from 0 */
  final case class ExecutorOwner(executorId: String, number: Int = 0) extends Owner

  def driver(prefix: String, identity: SinkIdentity): SinkTransactionalId =
    SinkTransactionalId(prefix, identity, DriverOwner)

  def executor(
      prefix: String,
      identity: SinkIdentity,
      executorId: String,
      number: Int = 0
  ): SinkTransactionalId =
    SinkTransactionalId(prefix, identity, ExecutorOwner(executorId, number))

  /** The parts of an id that [[SinkTransactionalId.text]] made; None for any other text. A prefix may hold dots, so the
    * parts are counted from the end.
    */
  def parse(text: String): Option[SinkTransactionalId] = text.split("\\.", -1).toSeq match {
    case prefix :+ appId :+ sink :+ owner if prefix.exists(_.nonEmpty) =>
      for {
        app <- unescaped(appId)
        name <- unescaped(sink)
        who <- ownerOf(owner)
      } yield SinkTransactionalId(prefix.mkString("."), SinkIdentity(app, name), who)
    case _ => None
  }

  private def ownerOf(text: String): Option[Owner] =
    if (text == "driver") Some(DriverOwner)
    else if (text.startsWith("e")) text.drop(1).split(":", -1) match {
      case Array(id) => unescaped(id).map(ExecutorOwner(_))
      case Array(id, number) =>
        for {
          executor <- unescaped(id)
          // Another spelling of the same number is not an id of ours.
          at <- number.toIntOption.filter(n => n > 0 && n.toString == number)
        } yield ExecutorOwner(executor, at)
      case _ => None
    }
    else None

  private def isPlain(byte: Byte): Boolean =
    byte >= 'a' && byte <= 'z' || byte >= 'A' && byte <= 'Z' || byte >= '0' && byte <= '9' ||
      byte == '-' || byte == '_'

  /** Letters, digits, `-` and `_` as they are, any other byte of the UTF-8 text as `%` and two hex digits. */
  private[kafka] def escaped(part: String): String =
    part.getBytes(UTF_8).map(b => if (isPlain(b)) b.toChar.toString else f"%%$b%02X").mkString

  private[kafka] def unescaped(part: String): Option[String] = {
    val bytes = Array.newBuilder[Byte]
    var at = 0
    var isRight = part.nonEmpty
    while (isRight && at < part.length) {
      val hex = part.slice(at + 1, at + 3)
      if (part(at) == '%' && hex.length == 2 && hex.forall(c => Character.digit(c, 16) >= 0)) {
        bytes += Integer.parseInt(hex, 16).toByte
        at += 3
      } else if (part(at) < 128 && isPlain(part(at).toByte)) {
        bytes += part(at).toByte
        at += 1
      } else isRight = false
    }
    // Another spelling of the same part, such as %2d, is not an id of ours.
    Option(new String(bytes.result(), UTF_8)).filter(text => isRight && escaped(text) == part)
  }
}
