package statemark.kafka.tools

import java.util.concurrent.TimeUnit
import java.util.concurrent.locks.LockSupport
import org.apache.kafka.clients.admin.{Admin, TransactionState}
import org.apache.kafka.common.TopicPartition
import org.apache.kafka.common.errors.TransactionalIdNotFoundException
import scala.annotation.tailrec
import scala.collection.mutable
import scala.jdk.CollectionConverters._
import statemark.common.Clock
import statemark.kafka.clients.{KafkaClients, KafkaFailures}
import statemark.kafka.conf.{SinkException, SinkIdentity, SinkSettings}
import statemark.kafka.decision.{Decision, LastDecision, SourceEnds}
import statemark.kafka.log.{CommitRecord, CommitState, CommitTopic, IdentityRecord, TopicCommitLog}

/** Waits until the output of a sink covers offsets of its query's input. Another application than the query's can ask.
  *
  * ''Thread:'' one at a time.
  *
  * @param name the sink: `<app id>/<sink>`; or an app id, or the id or the name of the query, each also with `/<sink>`
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
    * @param wanted the next offset of each partition of the input, one map for each source of a position
    * @return the batch; or where the sink is after `timeoutMs`, in words behind "it is at"
    * @throws SinkException where the brokers cannot be asked, the name stands for several sinks, or nothing is known of the
    *   input of the sink
    * @throws InterruptedException where the thread is interrupted while it waits
    */
  def await(
      wanted: Vector[Map[TopicPartition, Long]],
      timeoutMs: Long
  ): Either[String, Long] = {
    val deadline = clock.nanos() + TimeUnit.MILLISECONDS.toNanos(timeoutMs.min(OutputWait.MostMs))
    @tailrec def look(): Either[String, Long] = {
      val found = asking(reached(wanted))
      if (found.isRight || clock.nanos() >= deadline) found
      else {
        val pause = if (known.isEmpty) OutputWait.FindNanos else OutputWait.PollNanos
        // Returns at once where the thread is interrupted.
        LockSupport.parkNanos(pause.min(deadline - clock.nanos()))
        if (Thread.interrupted())
          throw new InterruptedException(s"interrupted while it waited for sink $name")
        look()
      }
    }
    look()
  }

  override def close(): Unit = admin.close()

  private def reached(wanted: Vector[Map[TopicPartition, Long]]): Either[String, Long] = {
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
      wanted: Vector[Map[TopicPartition, Long]]
  ): Either[String, Long] = {
    if (decision.ends.nonEmpty && decision.ends.forall(_.topics.isEmpty)) throw unknown(identity)
    val batch = s"batch ${decision.batch}"
    val open = state.unfinished(decision)
    SourceEnds.behind(decision.ends, wanted) match {
      case Some((place, end)) =>
        val read = end.fold(s"nothing of $place")(end => s"$place up to $end")
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

  /** Finds the sink by its own name, for which its partition is enough, or else by its query's. */
  private def find(): Option[SinkIdentity] = {
    val exact = OutputWait.identitiesOf(name).filterNot(log.readCommitted(_).isEmpty)
    val meant = if (exact.nonEmpty) exact else ofQuery()
    if (meant.size > 1) throw new SinkException.RefusedSetting(
      s"$name names ${meant.size} sinks",
      s"they are ${meant.map(_.toString).sorted.mkString(", ")}",
      "Name one of them, as <query id or txnAppId>/<sink name>",
      Map("commitTopic" -> settings.commitTopic)
    )
    meant.headOption
  }

  /** There may be more identities than fit into the heap, so that nothing is kept but names that are meant. */
  private def ofQuery(): Vector[SinkIdentity] = {
    val found = mutable.Set.empty[SinkIdentity]
    def note(record: CommitRecord): Unit = {
      val sink = record.identity.sink
      val names = record match {
        case r: IdentityRecord => Seq(r.identity.appId, r.queryId, r.queryName).filter(_.nonEmpty)
        case r => Seq(r.identity.appId)
      }
      if (names.exists(of => name == of || name == s"$of/$sink")) found += record.identity
      // A query may have had another name before.
      else if (record.isInstanceOf[IdentityRecord]) found -= record.identity
    }
    log.readAll(_ => false, Some((record, _) => note(record)))((_, _) => ()): Unit
    // What is removed from the topic may lie in it still.
    found.toVector.filterNot(log.readCommitted(_).isEmpty)
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

  // The whole commit topic is read for it.
  private val FindNanos = TimeUnit.SECONDS.toNanos(1)

  // A clock of nanoseconds knows no end of all time.
  private val MostMs = TimeUnit.DAYS.toMillis(366)

  /** Returns the sinks that have this name, `<app id>/<sink>`: both parts may have slashes. */
  private def identitiesOf(name: String): Vector[SinkIdentity] =
    name.indices.toVector.filter(at => name(at) == '/' && at > 0 && at < name.length - 1)
      .map(at => SinkIdentity(name.take(at), name.drop(at + 1)))

  /** @param settings those of any sink with this commit topic on these brokers */
  def open(settings: SinkSettings, name: String): OutputWait =
    new OutputWait(settings, KafkaClients.of(settings), Clock.system, name)
}
