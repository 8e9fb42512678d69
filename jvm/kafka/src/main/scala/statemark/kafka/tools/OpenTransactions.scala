package statemark.kafka.tools

import org.apache.kafka.clients.admin.{
  Admin,
  ListOffsetsOptions,
  ListTransactionsOptions,
  OffsetSpec,
  TransactionDescription,
  TransactionListing,
  TransactionState
}
import org.apache.kafka.common.{IsolationLevel, TopicPartition}
import scala.jdk.CollectionConverters._
import scala.jdk.OptionConverters._
import scala.util.control.NonFatal
import statemark.kafka.clients.{KafkaFailures, TopicLookup}
import statemark.kafka.conf.{SinkException, SinkIdentity, SinkTransactionalId}

/** A transaction that is open.
  * @param transactionalId None where the brokers do not say whose the producer is: the user may not see it, or its
  *   transaction is left over
  * @param sink where the id is one of this sink's
  * @param sinceMs when it began
  * @param timeoutMs how long the brokers leave it open
  * @param isEnding whether its outcome is decided, and readers hear of it soon
  * @param held partitions whose readers wait for it; of those that were looked at
  */
final case class OpenTransaction(
    producerId: Long,
    transactionalId: Option[String],
    sink: Option[SinkIdentity],
    sinceMs: Option[Long],
    timeoutMs: Option[Long],
    isEnding: Boolean,
    held: Vector[HeldPartition]
)

/** A partition in which a transaction is open.
  * @param since the offset of its first row
  * @param stable the last stable offset: readers at `read_committed` get no further
  */
final case class HeldPartition(topicPartition: TopicPartition, since: Long, stable: Long, end: Long)

/** Finds open transactions. ''Thread:'' one at a time. */
private[kafka] final class OpenTransactions(admin: Admin) {
  import OpenTransactions.Found

  /** The transactional ids that are in use, or why they are not known. */
  lazy val listed: Either[String, Vector[TransactionListing]] =
    try {
      val states = Set(
        TransactionState.ONGOING,
        TransactionState.PREPARE_COMMIT,
        TransactionState.PREPARE_ABORT
      )
      val options = new ListTransactionsOptions().filterStates(states.asJava)
      Right(admin.listTransactions(options).all().get().asScala.toVector)
    } catch {
      case NonFatal(e) =>
        Left(s"Transactions cannot be listed: ${KafkaFailures.unwrapped(e).getMessage}")
    }

  /** Whether the brokers have a commit of the id that readers have not heard of yet. */
  def isCommitting(transactionalId: String): Boolean = listed.exists(_.exists(l =>
    l.transactionalId == transactionalId && l.state == TransactionState.PREPARE_COMMIT
  ))

  /** Open transactions of sinks, and all that hold readers of the topics back.
    * @param topics besides those in which sinks have transactions open
    * @param isOurs whether a sink is asked for
    */
  def find(topics: Set[String])(isOurs: SinkIdentity => Boolean): Found = {
    val ids = listed.getOrElse(Vector.empty)
    val ours = ids.filter(l => sinkOf(l.transactionalId).exists(isOurs))
    val described = describe(ours.map(_.transactionalId))
    val all = topics ++ described.values.flatMap(_.topicPartitions.asScala.map(_.topic))
    val (held, notes) = heldIn(all)
    val byProducer = ids.map(l => l.producerId -> l).toMap
    val others = describe(
      held.keys.flatMap(byProducer.get).map(_.transactionalId).filterNot(described.contains)
        .toVector
    )
    val known = described ++ others
    val producers = (held.keySet ++ ours.map(_.producerId)).toVector.sorted
    Found(
      producers.map { producer =>
        val listing = byProducer.get(producer)
        val description = listing.flatMap(l => known.get(l.transactionalId))
        OpenTransaction(
          producer,
          listing.map(_.transactionalId),
          listing.flatMap(l => sinkOf(l.transactionalId)),
          description.flatMap(_.transactionStartTimeMs.toScala),
          description.map(_.transactionTimeoutMs),
          listing.exists(_.state != TransactionState.ONGOING),
          held.getOrElse(producer, Vector.empty)
            .sortBy(h => (h.topicPartition.topic, h.topicPartition.partition))
        )
      },
      notes ++ listed.left.toOption
    )
  }

  private def sinkOf(transactionalId: String): Option[SinkIdentity] =
    SinkTransactionalId.parse(transactionalId).map(_.identity)

  /** Those that are not over by now. */
  private def describe(ids: Vector[String]): Map[String, TransactionDescription] = {
    val asked = if (ids.isEmpty) None else Some(admin.describeTransactions(ids.asJava))
    asked.toVector.flatMap { answer =>
      ids.flatMap { id =>
        try Some(id -> answer.description(id).get())
        catch { case NonFatal(_) => None }
      }
    }.toMap
  }

  /** Partitions of the topics whose readers wait, by the producer that they wait for; and what was not looked at. */
  private def heldIn(topics: Set[String]): (Map[Long, Vector[HeldPartition]], Vector[String]) = {
    val looked = topics.toVector.sorted.map(partitionsOf)
    val places = looked.collect { case Right(of) => of }.flatten
    val stable = ends(places, IsolationLevel.READ_COMMITTED)
    val log = ends(places, IsolationLevel.READ_UNCOMMITTED)
    val waiting = places.filter(place => stable(place) < log(place))
    val asked = if (waiting.isEmpty) None else Some(admin.describeProducers(waiting.asJava))
    val answers = waiting.flatMap { place =>
      asked.map { answer =>
        try Right(answer.partitionResult(place).get().activeProducers.asScala.toVector.flatMap { p =>
            p.currentTransactionStartOffset.toScala.filter(_ >= 0).map { since =>
              p.producerId -> HeldPartition(place, since, stable(place), log(place))
            }
          })
        catch {
          case NonFatal(e) =>
            val reason = KafkaFailures.unwrapped(e).getMessage
            Left(
              s"Readers of $place wait at ${stable(place)} for a transaction of an unknown producer: $reason"
            )
        }
      }
    }
    val found = answers.collect { case Right(of) => of }.flatten
    val notes = looked.collect { case Left(note) => note } ++ answers.collect { case Left(n) => n }
    (found.groupMap(_._1)(_._2), notes)
  }

  /** Its partitions, none where it is not there, or why the user may not see them. */
  private def partitionsOf(topic: String): Either[String, Vector[TopicPartition]] =
    try Right(TopicLookup.ask(admin, Seq(topic)).get(topic).toVector.flatMap(
        _.partitions.asScala.map(p => new TopicPartition(topic, p.partition))
      ))
    catch { case e: SinkException.UnfitCluster => Left(s"topic $topic: ${e.problem}") }

  private def ends(
      places: Vector[TopicPartition],
      isolation: IsolationLevel
  ): Map[TopicPartition, Long] =
    if (places.isEmpty) Map.empty
    else TopicLookup.again(KafkaFailures.isBehind) {
      val asked = admin.listOffsets(
        places.map(_ -> OffsetSpec.latest()).toMap.asJava,
        new ListOffsetsOptions(isolation)
      )
      places.map(place => place -> asked.partitionResult(place).get().offset).toMap
    }
}

private[kafka] object OpenTransactions {

  /** @param notes what was not looked at, a line each */
  final case class Found(transactions: Vector[OpenTransaction], notes: Vector[String])
}
