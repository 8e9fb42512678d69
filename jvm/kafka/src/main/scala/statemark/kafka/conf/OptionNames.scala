package statemark.kafka.conf

import java.util.Locale
import statemark.common.NearNames

/** Finds options that are misspelt: nobody would hear of them otherwise. Other names that are unknown are let pass, as
  * Spark has options of its own; those that begin with `kafka.`, [[ClientOptions]] looks at.
  */
private[kafka] object OptionNames {

  /** Those of this sink, and of Spark that are near to one of them. */
  val ours: Set[String] = Set(
    "topic",
    "sinkName",
    "transactionalIdPrefix",
    "commitTopic",
    "commitTopicReplicationFactor",
    "onLostRows",
    "allowShortCompactionLag",
    "producersPerExecutor",
    "openSinks",
    "refusedRowsTopic",
    SinkSettings.ConsumerGroup,
    "txnAppId",
    "txnVersion",
    "includeHeaders",
    "checkpointLocation",
    "asyncProgressTrackingEnabled",
    "path"
  )

  private val kafkas: Set[String] = ClientOptions.known.map(name => s"kafka.$name")

  /** By the spelling that options are compared in. */
  private val known: Map[String, String] =
    (ours ++ kafkas).map(name => name.toLowerCase(Locale.ROOT) -> name).toMap

  /** @throws SinkException.RefusedSetting where a name is nearly one that is known */
  def check(names: Set[String]): Unit = names.toSeq.sorted.foreach { name =>
    nearest(name).foreach { known =>
      throw new SinkException.RefusedSetting(
        s"Option '$name' is unknown",
        "it would have no effect",
        s"Perhaps '$known' is meant",
        Map("option" -> name)
      )
    }
  }

  /** The name that is meant, if the one that is there is not known and nearly one that is. */
  private[kafka] def nearest(name: String): Option[String] =
    if (known.contains(name.toLowerCase(Locale.ROOT))) None else NearNames.of(name, known.values)
}
