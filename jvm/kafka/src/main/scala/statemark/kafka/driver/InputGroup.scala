package statemark.kafka.driver

import java.nio.charset.StandardCharsets.UTF_8
import java.util.{Collections, UUID}
import org.apache.kafka.clients.admin.{Admin, MemberDescription, TopicDescription}
import org.apache.kafka.clients.consumer.OffsetAndMetadata
import org.apache.kafka.common.TopicPartition
import org.apache.kafka.common.acl.AclOperation
import org.apache.kafka.common.errors.GroupIdNotFoundException
import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal
import statemark.kafka.clients.{GroupOffsets, KafkaFailures, TopicLookup}
import statemark.kafka.conf.{SinkException, SinkSettings}
import statemark.kafka.decision.{LastDecision, SourceEnds}

/** The consumer group of option `kafkaConsumerGroup`, to which each decision commits where its sources end. Brokers let
  * anyone commit to a group who is no member of it, so that the sink looks itself whether the group is its own.
  * ''Thread:'' the driver's.
  */
private[kafka] final class InputGroup(context: SinkContext, admin: Admin) {
  private val group = context.settings.kafkaConsumerGroup
  private val mark = InputGroup.markOf(context.identity.toString)

  /** Compares the group and the topics with what a decision commits.
    * @param ends where the sources end
    * @throws SinkException where the group has members, or offsets that are not this sink's, or brokers will not take these
    */
  def requireOwn(ends: Vector[SourceEnds]): Unit = group.foreach { name =>
    try {
      requirePlaces(name, offsetsOf(ends).offsets.keySet)
      // Two questions that are on their way at once.
      val described = admin.describeConsumerGroups(Collections.singleton(name))
      val listed = admin.listConsumerGroupOffsets(name)
      requireEmpty(name, described.describedGroups.get(name).get().members.asScala.toVector)
      requireMarked(name, listed.partitionsToOffsetAndMetadata.get().asScala.toVector)
    } catch {
      case NonFatal(e) =>
        KafkaFailures.unwrapped(e) match {
          case _: GroupIdNotFoundException => () // nobody has used it
          case cause if KafkaFailures.isDenied(cause) =>
            val said = cause match {
              case unfit: SinkException => unfit.problem
              case theirs => theirs.getMessage
            }
            throw denied(name, said, Some(cause))
          case cause: IllegalArgumentException => throw refused(
              name,
              s"it is a group of another kind: ${KafkaFailures.textOf(cause)}",
              InputGroup.Unused
            )
          case cause => throw DriverFailures.ofGroup(cause, name, context)
        }
    }
  }

  /** Returns what the decision of a batch commits to the group; nothing where no source is of this cluster. */
  def offsetsOf(ends: Vector[SourceEnds]): GroupOffsets = group.fold(GroupOffsets.none)(name =>
    GroupOffsets(name, mark, SourceEnds.reached(ends.filter(_.group == name)))
  )

  /** Tells whether a batch without rows is decided, as it moves the group. */
  def isMoved(ends: Vector[SourceEnds], last: LastDecision): Boolean = {
    val offsets = offsetsOf(ends).offsets
    offsets.nonEmpty && (last match {
      case LastDecision.Decided(decision) => offsetsOf(decision.ends).offsets != offsets
      case _ => true
    })
  }

  private def requireEmpty(name: String, members: Vector[MemberDescription]): Unit =
    members.headOption.foreach(first =>
      throw refused(
        name,
        s"it has ${members.size} members, such as ${first.clientId} at ${first.host}, which commit offsets of their own",
        "a group that no consumer joins. Stop the consumers, or name another group"
      )
    )

  private def requireMarked(
      name: String,
      found: Vector[(TopicPartition, OffsetAndMetadata)]
  ): Unit = {
    val others = found.filterNot(_._2.metadata == mark).sortBy(_._1.toString)
    others.headOption.foreach { case (place, offset) =>
      throw refused(
        name,
        s"it has offsets that this sink has not committed: $place at ${offset.offset}" +
          (if (others.size > 1) s" and ${others.size - 1} more" else ""),
        InputGroup.Unused
      )
    }
  }

  /** The producer would try in vain to commit offsets of what is not there, and does not say what it lacks. */
  private def requirePlaces(name: String, places: Set[TopicPartition]): Unit =
    if (places.nonEmpty) {
      val topics = places.groupMap(_.topic)(_.partition)
      def missing(topic: String, of: TopicDescription) =
        topics(topic) -- of.partitions.asScala.map(_.partition)
      val found =
        new TopicLookup(admin, context.settings.commitTopic, TopicLookup.ForRows)
          .find(topics.keys.toVector.sorted)(found =>
            topics.keys.forall(topic => found.get(topic).exists(missing(topic, _).isEmpty))
          )
      def gone(what: String) = refused(
        name,
        s"$what, of which the batch has read, is not there, and brokers take no offsets of it",
        "no value, until a batch does not name it any more"
      )
      topics.keys.toVector.sorted.foreach { topic =>
        found.get(topic) match {
          case None => throw gone(s"topic $topic")
          case Some(description) =>
            missing(topic, description).minOption
              .foreach(number => throw gone(s"partition ${new TopicPartition(topic, number)}"))
            val operations = Option(description.authorizedOperations)
            if (operations.exists(!_.contains(AclOperation.READ)))
              throw denied(name, s"the user may not READ topic $topic", None)
        }
      }
    }

  private def refused(name: String, reason: String, allowed: String) =
    SinkSettings.refused(SinkSettings.ConsumerGroup, name, reason, allowed)

  private def denied(name: String, reason: String, cause: Option[Throwable]) =
    new SinkException.UnfitCluster(
      s"Offsets cannot be committed to group $name",
      SinkException.sentence(reason),
      s"Grant READ on the group, and on the topics of the sources, or leave option '${SinkSettings.ConsumerGroup}' out",
      Map("sink" -> context.identity.toString),
      cause
    )
}

private[kafka] object InputGroup {
  private val MostCharacters = 200
  private val Unused =
    "a group that only this sink commits to. Name another one, or, if nothing needs the offsets, " +
      "remove them with kafka-consumer-groups.sh --delete"

  /** Returns what says of an offset which sink has committed it: brokers keep it with each, so it is short. */
  private[kafka] def markOf(sink: String): String =
    if (sink.length <= MostCharacters) s"statemark $sink"
    else s"statemark ${sink.take(MostCharacters)}… ${UUID.nameUUIDFromBytes(sink.getBytes(UTF_8))}"
}
