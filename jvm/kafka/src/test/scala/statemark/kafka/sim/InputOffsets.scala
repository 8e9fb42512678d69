package statemark.kafka.sim

import org.apache.kafka.clients.consumer.OffsetAndMetadata
import org.apache.kafka.common.TopicPartition
import scala.jdk.CollectionConverters._
import statemark.kafka.TestBrokers
import statemark.kafka.decision.{LastDecision, SourceEnds}

/** The consumer group of a simulation, as lag tools see it, beside what was decided. */
final class InputOffsets(brokers: TestBrokers, s: Simulation) {
  private val place = new TopicPartition(Simulation.Input, 0)
  val group: String = s.settings.kafkaConsumerGroup.get

  // Brokers take offsets only of topics that are there.
  if (!brokers.has(Simulation.Input)) brokers.topic(Simulation.Input, partitions = 1): Unit

  /** How often the group was looked at. */
  var looks = 0

  def committed: Option[OffsetAndMetadata] =
    brokers.admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata.get().asScala
      .get(place)

  def offset: Option[Long] = committed.map(_.offset)

  /** Returns how far the last decision has read, and how far the one before: batches end where their numbers say. */
  def decided: (Option[Long], Option[Long]) = s.commitLog.read(s.identity).last match {
    case LastDecision.Decided(of) =>
      (SourceEnds.reached(of.ends).get(place), of.history.headOption.map(_.batch))
    case last => (None, last.decided.headOption.map(_.batch))
  }

  /** Tells what is wrong with the group: it is ahead of what is decided, or behind the decision before that. */
  def fault(): Option[String] = {
    val (_, before) = decided
    val now = offset
    // What was on its way is there now, and may be later than what the group was asked for.
    val (last, _) = decided
    looks += 1
    val isAhead = now.exists(n => last.forall(_ < n))
    val isBehind = before.exists(b => now.forall(_ < b))
    Option.when(isAhead || isBehind)(
      s"group at $now, decided $last, before that $before, ahead: $isAhead, behind: $isBehind"
    )
  }
}
