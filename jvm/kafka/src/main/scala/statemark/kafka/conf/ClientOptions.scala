package statemark.kafka.conf

import java.util.Locale
import org.apache.kafka.clients.admin.AdminClientConfig
import org.apache.kafka.clients.consumer.ConsumerConfig
import org.apache.kafka.clients.producer.ProducerConfig
import org.apache.kafka.common.config.ConfigDef
import org.apache.kafka.common.utils.AppInfoParser
import scala.jdk.CollectionConverters._

/** The options `kafka.…` without that prefix: which of them a client of Kafka's knows, and which only a plugin can read that
  * the user has named. ''Thread:'' any.
  */
private[kafka] object ClientOptions {
  private val Providers = "config.providers"
  private val OfProvider = s"$Providers."
  private val OfKafka = "org.apache.kafka."

  private[kafka] val definitions: Seq[ConfigDef] =
    Seq(ProducerConfig.configDef, ConsumerConfig.configDef, AdminClientConfig.configDef)

  /** Every option that a client knows. */
  val known: Set[String] = definitions.flatMap(_.names.asScala).toSet + Providers

  /** Plugins that are passed on to each client that has the option. None of them changes a row, or a setting of the client:
    * they choose a row's partition, watch, log in, and look values up that stand in options as `${…}`.
    */
  private[kafka] val passedPlugins: Set[String] = Set(
    "partitioner.class",
    "metric.reporters",
    Providers,
    "security.providers",
    "ssl.engine.factory.class",
    "sasl.client.callback.handler.class",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.oauthbearer.jwt.retriever.class",
    "sasl.oauthbearer.jwt.validator.class"
  )

  /** Returns the options as Kafka's clients spell them: in small letters where a client knows the option. A plugin's own
    * option is left as it is.
    */
  def spelt(name: String): String = {
    val lower = name.toLowerCase(Locale.ROOT)
    if (known(lower)) lower
    else if (lower.startsWith(OfProvider)) s"$OfProvider${name.drop(OfProvider.length)}"
    else name
  }

  /** Returns the options for one client.
    * @param names the options that the client knows
    */
  def of(names: Set[String], kafka: Map[String, String]): Map[String, String] = {
    val hasPlugin = (names + Providers).intersect(ownPlugins(kafka)).nonEmpty
    kafka.filter { case (name, _) =>
      names(name) || name == Providers || name.startsWith(OfProvider) || hasPlugin && !known(name)
    }
  }

  /** Refuses plugins of which it is not known what they do, and options that nothing would read.
    * @param isRuled tells whether an option may have certain values only: others have been refused before
    * @throws SinkException.RefusedSetting naming the option
    */
  def requireReaders(kafka: Map[String, String], isRuled: String => Boolean): Unit = {
    kafka.keys.toSeq.sorted.filter(isClass).find(n => !passedPlugins(n) && !isRuled(n)).foreach {
      name =>
        throw new SinkException.RefusedSetting(
          s"Option 'kafka.$name' is refused",
          "it is not known what such a plugin does to rows",
          "Leave it out",
          Map("option" -> s"kafka.$name", "value" -> kafka(name))
        )
    }
    unread(kafka).foreach { name =>
      val reason =
        if (name.startsWith(OfProvider)) s"option 'kafka.$Providers' does not name its provider"
        else
          s"no client of Kafka ${AppInfoParser.getVersion} knows it, and no plugin is named that " +
            "could read it"
      throw new SinkException.RefusedSetting(
        s"Option 'kafka.$name' is unknown",
        s"it would have no effect: $reason",
        "Leave it out, or name the plugin that it is for, as in option 'kafka.partitioner.class'",
        Map("option" -> s"kafka.$name")
      )
    }
  }

  /** Returns options that nothing would read, in their order. */
  def unread(kafka: Map[String, String]): Seq[String] = {
    val providers = listed(kafka, Providers).toSet
    val hasPlugin = (ownPlugins(kafka) - Providers).nonEmpty
    kafka.keys.toSeq.sorted.filterNot(known).filterNot { name =>
      if (name.startsWith(OfProvider))
        providers.exists(p => name.startsWith(s"$OfProvider$p."))
      else hasPlugin
    }
  }

  /** Tells whether the value of an option may be known only once a provider has looked it up. */
  def isLookedUp(kafka: Map[String, String], value: String): Boolean =
    kafka.contains(Providers) && value.contains("${")

  /** Plugins that are not Kafka's own, which have no options but those that their clients know. */
  private def ownPlugins(kafka: Map[String, String]): Set[String] =
    passedPlugins.filter(listed(kafka, _).exists(!_.startsWith(OfKafka)))

  private def listed(kafka: Map[String, String], name: String): Seq[String] =
    kafka.get(name).toSeq.flatMap(_.split(',')).map(_.trim).filter(_.nonEmpty)

  private def isClass(name: String): Boolean =
    definitions.flatMap(d => Option(d.configKeys.get(name))).exists(
      _.`type` == ConfigDef.Type.CLASS
    )
}
