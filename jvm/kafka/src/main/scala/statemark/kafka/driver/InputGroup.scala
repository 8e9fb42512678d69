package statemark.kafka.driver

import java.nio.charset.StandardCharsets.UTF_8
import java.util.{Collections, UUID}
import org.apache.kafka.clients.admin.Admin
import org.apache.kafka.common.errors.GroupIdNotFoundException
import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal
import statemark.kafka.clients.{GroupOffsets, KafkaFailures}
import statemark.kafka.conf.{SinkException, SinkSettings}
import statemark.kafka.decision.{LastDecision, SourceEnds}

/** The consumer group of option `kafkaConsumerGroup`, to which each decision commits where its sources end. Brokers let
  * anyone commit to a group who is no member of it, so that the sink looks itself whether the group is its own.
  * ''Thread:'' the driver's.
  */
private[kafka] final class InputGroup(context: SinkContext, admin: Admin) {
  private val group = context.settings.kafkaConsumerGroup
  private val mark = InputGroup.markOf(context.identity.toString)

  /** @throws SinkException where the group has members, or offsets that are not this sink's */
  def requireOwn(): Unit = group.foreach { name =>
    try {
      // Two questions that are on their way at once.
      val described = admin.describeConsumerGroups(Collections.singleton(name))
      val listed = admin.listConsumerGroupOffsets(name)
      requireEmpty(
        name,
        described.describedGroups.get(name).get().members.asScala.map(m =>
          s"${m.clientId} at ${m.host}"
        ).toVector
      )
      val others = listed.partitionsToOffsetAndMetadata.get().asScala.toVector
        .filterNot(_._2.metadata == mark).sortBy(_._1.toString)
      others.headOption.foreach { case (place, offset) =>
        throw refused(
          name,
          s"it has offsets that this sink has not committed: $place at ${offset.offset}" +
            (if (others.size > 1) s" and ${others.size - 1} more" else ""),
          "a group that only this sink commits to. Name another one, or, if nothing needs the offsets, " +
            "remove them with kafka-consumer-groups.sh --delete"
        )
      }
    } catch {
      case NonFatal(e) =>
        KafkaFailures.unwrapped(e) match {
          case _: GroupIdNotFoundException => () // nobody has used it
          case cause if KafkaFailures.isDenied(cause) => throw denied(name, cause)
          case cause => throw cause
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

  private def requireEmpty(name: String, members: Vector[String]): Unit =
    members.headOption.foreach(first =>
      throw refused(
        name,
        s"it has ${members.size} members, such as $first, which commit offsets of their own",
        "a group that no consumer joins. Stop the consumers, or name another group"
      )
    )

  private def refused(name: String, reason: String, allowed: String) =
    SinkSettings.refused(SinkSettings.ConsumerGroup, name, reason, allowed)

  private def denied(name: String, cause: Throwable) = new SinkException.UnfitCluster(
    s"Offsets cannot be committed to group $name",
    String.valueOf(cause.getMessage),
    s"Grant READ on the group, and on the topics of the sources, or leave option '${SinkSettings.ConsumerGroup}' out",
    Map("sink" -> context.identity.toString),
    Some(cause)
  )
}

private[kafka] object InputGroup {
  private val MostCharacters = 200

  /** Returns what says of an offset which sink has committed it: brokers keep it with each, so it is short. */
  private[kafka] def markOf(sink: String): String =
    if (sink.length <= MostCharacters) s"statemark $sink"
    else s"statemark ${sink.take(MostCharacters)}… ${UUID.nameUUIDFromBytes(sink.getBytes(UTF_8))}"
}
