package statemark.kafka.clients

import org.apache.kafka.clients.consumer.{ConsumerGroupMetadata, OffsetAndMetadata}
import org.apache.kafka.common.TopicPartition
import scala.jdk.CollectionConverters._
import statemark.kafka.RowProducer

/** Offsets that a transaction commits to a consumer group.
  * @param group its name; nothing is asked of it where there are no offsets
  * @param mark what each offset has as its metadata, by which it is known later who committed it
  */
private[kafka] final case class GroupOffsets(
    group: String,
    mark: String,
    offsets: Map[TopicPartition, Long]
) {

  /** Adds them to the open transaction of a producer.
    * @throws Exception of the client, as it is
    */
  def addTo(producer: RowProducer): Unit =
    offsets.grouped(GroupOffsets.AtOnce).foreach { some =>
      val marked = some.map { case (place, end) => place -> new OffsetAndMetadata(end, mark) }
      producer.sendOffsetsToTransaction(marked.asJava, new ConsumerGroupMetadata(group))
    }
}

private[kafka] object GroupOffsets {
  val none: GroupOffsets = GroupOffsets("", "", Map.empty)

  // A broker writes those of one request as one batch, which its topic of offsets takes up to a megabyte of by default.
  private val AtOnce = 1000
}
