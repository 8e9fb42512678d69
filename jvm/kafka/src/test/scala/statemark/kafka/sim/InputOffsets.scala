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

  /** Returns how far the last decision has read. A transaction that a dead driver has left open does not count. */
  def decided: Option[Long] = {
    Conditions.awaitMarkers(brokers, s.identity)
    s.commitLog.readCommitted(s.identity).last match {
      case LastDecision.Decided(of) => SourceEnds.reached(of.ends).get(place)
      case _ => None
    }
  }

  /** Tells what is wrong with the group. One transaction has both, so that it is neither ahead of the last decision nor
    * behind it, and less so behind the one before, once the marks of that transaction are everywhere.
    */
  def fault(): Option[String] = {
    val (last, now) = (decided, offset)
    looks += 1
    val isAhead = now.exists(n => last.forall(_ < n))
    Option.when(now != last)(
      s"group at $now, ${if (isAhead) "ahead of" else "behind"} the decision, at $last"
    )
  }
}
