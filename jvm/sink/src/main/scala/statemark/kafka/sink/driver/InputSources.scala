package statemark.kafka.sink.driver

import statemark.kafka.clients.Clusters
import statemark.kafka.conf.SinkSettings
import statemark.kafka.decision.SourceEnds

/** The sources of a query whose offsets go to the group of option `kafkaConsumerGroup`: a transaction can commit offsets of
  * its own cluster's topics. ''Thread:'' the query's.
  * @param clusterOf the id of the cluster to which settings of Kafka's clients lead
  */
private[sink] final class InputSources(
    settings: SinkSettings,
    clusterOf: Map[String, String] => String = Clusters.idOf
) {
  import InputSources._

  // Asked once in a run: the sources of a query do not change.
  private var isHere = Option.empty[SourceEnds => Boolean]

  /** Returns the input of a batch with the group of each source.
    * @param sources options of the query's Kafka sources
    * @throws SinkException where the option is set, and no source can have the group
    */
  def grouped(ends: Vector[SourceEnds], sources: => Seq[Map[String, String]]): Vector[SourceEnds] =
    settings.kafkaConsumerGroup.fold(ends) { group =>
      val here = isHere.getOrElse {
        val found = find(group, sources)
        isHere = Some(found)
        found
      }
      ends.map(of => if (here(of)) of.copy(group = group) else of)
    }

  private def find(group: String, sources: Seq[Map[String, String]]): SourceEnds => Boolean = {
    val own = settings.bootstrapServers
    lazy val ownId = clusterOf(settings.kafka)
    val (here, others) = sources.partition { source =>
      val connection = KafkaSources.connection(source)
      connection.get(SinkSettings.BootstrapServers).contains(own) || clusterOf(connection) == ownId
    }
    if (here.isEmpty) throw refused(
      group,
      if (sources.isEmpty) "the query reads no topic with Spark's source 'kafka'"
      else s"the query reads topics of other clusters than the sink's, whose id is $ownId"
    )
    // An offset names topics alone, and not whose.
    val (topics, elsewhere) = (here.map(KafkaSources.topics), others.map(KafkaSources.topics))
    of => {
      def isRead(by: Seq[String => Boolean]) =
        of.topics.map(_._1).exists(topic => by.exists(_(topic)))
      if (isRead(topics) && isRead(elsewhere)) throw refused(
        group,
        s"a source reads ${of.topics.map(_._1).mkString(", ")}, which sources of the sink's cluster and of another " +
          "subscribe to, by name or by a pattern, and its offsets do not say of which cluster they are"
      )
      isRead(topics)
    }
  }
}

private[sink] object InputSources {

  /** @throws SinkException.RefusedSetting where the option is set for a write of which no query is known */
  def refuse(settings: SinkSettings): Unit = settings.kafkaConsumerGroup.foreach(group =>
    throw refused(group, "the write is not known as a query's, whose sources it would be for")
  )

  private def refused(group: String, reason: String) = SinkSettings.refused(
    SinkSettings.ConsumerGroup,
    group,
    reason,
    "a query, or a write in foreachBatch with txnVersion, that reads topics of the sink's cluster"
  )
}
