package statemark.kafka.log

import java.time.Duration
import org.apache.kafka.common.TopicPartition
import scala.annotation.tailrec
import scala.jdk.CollectionConverters._
import statemark.kafka.clients.KafkaClients

/** Knows commit topics of other sinks by what they hold: a row in one could pass for a decision. ''Thread:'' any. */
private[kafka] object CommitTopicSigns {
  private val Poll = Duration.ofMillis(100)
  private val MostPolls = 100

  /** Tells whether a topic that may be compacted, as commit topics are, holds records of sinks: looks at the first that
    * readers see of each partition which could.
    */
  def isCommitTopic(clients: KafkaClients, topic: String, partitions: Int): Boolean =
    partitions >= CommitTopic.Partitions && {
      val consumer = clients.consumer(committedOnly = true)
      try {
        val places = (0 until CommitTopic.Partitions).map(new TopicPartition(topic, _))
        consumer.assign(places.asJava)
        consumer.seekToBeginning(places.asJava)
        val ends = consumer.endOffsets(places.asJava).asScala
        @tailrec def look(unread: Seq[TopicPartition], polls: Int): Boolean =
          if (unread.isEmpty || polls == 0) false
          else {
            val records = consumer.poll(Poll)
            // One record of a partition says what all are.
            val left =
              unread.filter(p => records.records(p).isEmpty && consumer.position(p) < ends(p))
            records.asScala.exists(r =>
              RecordCodec.identityOf(r.key).isDefined || RuleCodec.topicOf(r.key).isDefined
            ) ||
            look(left, polls - 1)
          }
        look(places.filter(place => consumer.position(place) < ends(place)), MostPolls)
      } finally consumer.close()
    }
}
