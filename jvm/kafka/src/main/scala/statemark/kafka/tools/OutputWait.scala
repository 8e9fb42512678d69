package statemark.kafka.tools

import java.util.concurrent.TimeUnit
import java.util.concurrent.locks.LockSupport
import org.apache.kafka.clients.admin.{Admin, TransactionState}
import org.apache.kafka.common.TopicPartition
import org.apache.kafka.common.errors.TransactionalIdNotFoundException
import scala.annotation.tailrec
import scala.jdk.CollectionConverters._
import statemark.common.Clock
import statemark.kafka.clients.{KafkaClients, KafkaFailures}
import statemark.kafka.conf.{SinkException, SinkIdentity, SinkSettings}
import statemark.kafka.decision.{Decision, LastDecision, SourceEnds}
import statemark.kafka.log.{CommitState, CommitTopic, TopicCommitLog}

/** Waits until the output of a sink covers offsets of its query's input. Another application than the query's can ask.
  *
  * ''Thread:'' one at a time.
  *
  * @param name the sink: `<app id>/<sink>`, an app id, or the name of the query
  */
final class OutputWait private[kafka] (
    settings: SinkSettings,
    clients: KafkaClients,
    clock: Clock,
    name: String
) extends AutoCloseable {
  private val admin: Admin = asking(clients.admin())
  private val log = new TopicCommitLog(clients, admin, settings, clock)
  private var known = Option.empty[SinkIdentity]

  /** Waits until a batch that has read so far is with the readers, all of it.
    * @param wanted the next offset of each partition of the input
    * @return the batch; or where the sink is after `timeoutMs`, in words behind "it is at"
    * @throws SinkException where the brokers cannot be asked, the name stands for several sinks, or nothing is known of the
    *   input of the sink
    * @throws InterruptedException where the thread is interrupted while it waits
    */
  def await(wanted: Map[TopicPartition, Long], timeoutMs: Long): Either[String, Long] = {
    val deadline = clock.nanos() + TimeUnit.MILLISECONDS.toNanos(timeoutMs.min(OutputWait.MostMs))
    @tailrec def look(): Either[String, Long] = {
      val found = asking(reached(wanted))
      if (found.isRight || clock.nanos() >= deadline) found
      else {
        // Returns at once where the thread is interrupted.
        LockSupport.parkNanos(OutputWait.PollNanos)
        if (Thread.interrupted())
          throw new InterruptedException(s"interrupted while it waited for sink $name")
        look()
      }
    }
    look()
  }

  override def close(): Unit = admin.close()

  private def reached(wanted: Map[TopicPartition, Long]): Either[String, Long] = {
    if (known.isEmpty && CommitTopic.isThere(admin, settings)) known = find()
    known.fold[Either[String, Long]](
      Left(s"no batch, as commit topic ${settings.commitTopic} knows no such sink,")
    ) { identity =>
      val state = log.readCommitted(identity)
      state.last match {
        case LastDecision.Decided(decision) => reached(identity, state, decision, wanted)
        case open: LastDecision.Reopened =>
          Left(s"batch ${open.batch}, of which rows were lost, so that it has to run again,")
        case LastDecision.Nothing => Left("no batch, as none is decided,")
      }
    }
  }

  private def reached(
      identity: SinkIdentity,
      state: CommitState,
      decision: Decision,
      wanted: Map[TopicPartition, Long]
  ): Either[String, Long] = {
    if (decision.ends.nonEmpty && decision.ends.forall(_.topics.isEmpty)) throw unknown(identity)
    val ends = SourceEnds.reached(decision.ends)
    val batch = s"batch ${decision.batch}"
    val short = wanted.toVector.sortBy(_._1.toString).find { case (place, offset) =>
      ends.get(place).forall(_ < offset)
    }
    val open = state.unfinished(decision)
    short match {
      case Some((place, _)) =>
        val read = ends.get(place).fold(s"nothing of $place")(end => s"$place up to $end")
        Left(s"$batch, the last that is decided, which has read $read,")
      case None if open.nonEmpty =>
        Left(s"$batch, of which ${open.size} transactions are not with the readers,")
      case None if isEnding(state, decision) => Left(s"$batch, which is being committed,")
      case None => Right(decision.batch)
    }
  }

  /** Tells whether a partition may lack the mark of a transaction that the brokers have committed. */
  private def isEnding(state: CommitState, decision: Decision): Boolean = {
    val ids =
      decision.transactions.map(_.name.transactionalId).toSet ++ state.identity.map(_.driverId)
    val described = admin.describeTransactions(ids.asJava)
    ids.exists { id =>
      try described.description(id).get().state == TransactionState.PREPARE_COMMIT
      catch {
        // Nobody has used it for days.
        case e: Exception
            if KafkaFailures.unwrapped(e).isInstanceOf[TransactionalIdNotFoundException] =>
          false
      }
    }
  }

  private def find(): Option[SinkIdentity] = {
    val found = log.readAll(_ => true) { (identity, state) =>
      val isMeant =
        SinkTools.isNamed(identity, name) || state.identity.map(_.queryName).exists(of =>
          name == of || name == s"$of/${identity.sink}"
        )
      Option.when(isMeant && !state.isEmpty)(identity)
    }.flatten
    val exact = found.filter(_.toString == name)
    val meant = if (exact.nonEmpty) exact else found
    if (meant.size > 1) throw new SinkException.RefusedSetting(
      s"$name names ${meant.size} sinks",
      s"they are ${meant.map(_.toString).sorted.mkString(", ")}",
      "Name one of them, as <query id or txnAppId>/<sink name>",
      Map("commitTopic" -> settings.commitTopic)
    )
    meant.headOption
  }

  private def unknown(identity: SinkIdentity) = new SinkException.RefusedSetting(
    s"Nobody can wait for the output of sink $identity",
    s"the sources of its query have more than ${SourceEnds.MostPartitions} partitions, of which a decision does not " +
      "say how far they are read",
    "Read fewer partitions in one query, or ask the query itself for its position",
    Map("commitTopic" -> settings.commitTopic)
  )

  private def asking[A](body: => A): A =
    BrokerAnswers.asking(settings, s"What the output of sink $name covers is not known")(body)
}

object OutputWait {
  private val PollNanos = TimeUnit.MILLISECONDS.toNanos(50)

  // A clock of nanoseconds knows no end of all time.
  private val MostMs = TimeUnit.DAYS.toMillis(366)

  /** @param settings those of any sink with this commit topic on these brokers */
  def open(settings: SinkSettings, name: String): OutputWait =
    new OutputWait(settings, KafkaClients.of(settings), Clock.system, name)
}
