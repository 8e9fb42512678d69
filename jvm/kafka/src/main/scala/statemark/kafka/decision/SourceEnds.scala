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

  /** Returns a partition of which less is read than is wanted, and how far it is read; None where all of it is. Where each
    * source of the input stands at the place of one that is wanted, they are compared one by one: of two that read one
    * topic, one may be ahead. Otherwise the one counts that is behind.
    * @param wanted the next offset of each partition, one map for each source of a position
    */
  def behind(
      ends: Vector[SourceEnds],
      wanted: Vector[Map[TopicPartition, Long]]
  ): Option[(TopicPartition, Option[Long])] = {
    val isOneByOne = wanted.size == ends.size && wanted.zip(ends).forall { case (want, of) =>
      want.keySet.map(_.topic).subsetOf(of.topics.map(_._1).toSet)
    }
    val pairs =
      if (isOneByOne) wanted.zip(ends.map(of => reached(Vector(of))))
      else Vector(wanted.flatten.groupMapReduce(_._1)(_._2)(_ max _) -> reached(ends))
    pairs.iterator.flatMap { case (want, read) =>
      want.toVector.sortBy(_._1.toString).collectFirst {
        case (place, offset) if read.get(place).forall(_ < offset) => place -> read.get(place)
      }
    }.nextOption()
  }

  /** Returns how far all sources have read that read a partition. */
  def reached(ends: Vector[SourceEnds]): Map[TopicPartition, Long] =
    ends.flatMap(_.offsets).groupMapReduce(_._1)(_._2)(_ min _)
}
