package statemark.kafka.decision

import org.apache.kafka.common.TopicPartition

/** The input of a batch, of one Kafka source of its query.
  * @param source as the offset log calls it
  * @param group the consumer group to which these offsets are committed with the decision; empty for none
  * @param topics the next offset of each partition, by topic, both ascending; none where a decision does not name them, as
  *   they are too many
  */
final case class SourceEnds(
    source: String,
    group: String,
    topics: Vector[(String, Vector[(Int, Long)])]
) {
  def partitions: Int = topics.map(_._2.size).sum

  def offsets: Vector[(TopicPartition, Long)] = topics.flatMap { case (topic, ends) =>
    ends.map { case (partition, end) => new TopicPartition(topic, partition) -> end }
  }
}

object SourceEnds {

  /** The partitions of all sources together that a decision names: 74 KB of it (FORMAT.md). */
  val MostPartitions = 10000

  /** Returns what a decision names of its input. */
  def recorded(ends: Vector[SourceEnds]): Vector[SourceEnds] =
    if (ends.map(_.partitions).sum <= MostPartitions) ends
    else ends.map(_.copy(topics = Vector.empty))

  /** Returns how far all sources have read that read a partition. */
  def reached(ends: Vector[SourceEnds]): Map[TopicPartition, Long] =
    ends.flatMap(_.offsets).groupMapReduce(_._1)(_._2)(_ min _)
}
