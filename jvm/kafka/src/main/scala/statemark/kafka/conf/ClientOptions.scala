package statemark.kafka.conf

import java.lang.reflect.Modifier
import java.util.Locale
import org.apache.kafka.clients.admin.AdminClientConfig
import org.apache.kafka.clients.consumer.ConsumerConfig
import org.apache.kafka.clients.producer.ProducerConfig
import org.apache.kafka.common.config.ConfigDef
import org.apache.kafka.common.utils.AppInfoParser
import scala.jdk.CollectionConverters._
import scala.util.Try

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
  private[kafka] val passedPlugins: Set[String] = typeOf.keySet + Providers

  /** By their options, the interfaces of Kafka's that these plugins have. Names, as releases have some that others have not. */
  private lazy val typeOf: Map[String, String] = {
    val common = s"${OfKafka}common"
    Map(
      "partitioner.class" -> s"${OfKafka}clients.producer.Partitioner",
      "metric.reporters" -> s"$common.metrics.MetricsReporter",
      "security.providers" -> s"$common.security.auth.SecurityProviderCreator",
      "ssl.engine.factory.class" -> s"$common.security.auth.SslEngineFactory",
      "sasl.client.callback.handler.class" -> s"$common.security.auth.AuthenticateCallbackHandler",
      "sasl.login.callback.handler.class" -> s"$common.security.auth.AuthenticateCallbackHandler",
      "sasl.login.class" -> s"$common.security.auth.Login",
      "sasl.oauthbearer.jwt.retriever.class" -> s"$common.security.oauthbearer.JwtRetriever",
      "sasl.oauthbearer.jwt.validator.class" -> s"$common.security.oauthbearer.JwtValidator"
    )
  }

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
      val ofKafka = namedPlugins(kafka).map(option => s"'$option'")
      val unknown = s"no client of Kafka ${AppInfoParser.getVersion} knows it"
      val (reason, instead) =
        if (name.startsWith(OfProvider))
          (s"option 'kafka.$Providers' does not name its provider", "name its provider there")
        else if (ofKafka.isEmpty) (
          s"$unknown, and no plugin is named that could read it",
          "name the plugin that it is for, as in option 'kafka.partitioner.class'"
        )
        else (
          s"$unknown, and what ${ofKafka.mkString(", ")} names is Kafka's: Kafka's own classes read no " +
            "options of their own",
          "name a plugin of yours there that reads it"
        )
      throw new SinkException.RefusedSetting(
        s"Option 'kafka.$name' is unknown",
        s"it would have no effect: $reason",
        s"Leave it out, or $instead",
        Map("option" -> s"kafka.$name")
      )
    }
    requireClasses(kafka)
  }

  /** Refuses plugins that Kafka's library would refuse as it makes a client, without the name of the option. */
  private def requireClasses(kafka: Map[String, String]): Unit = {
    val ofProviders = listed(kafka, Providers).map(name =>
      s"$OfProvider$name.class" -> s"${OfKafka}common.config.provider.ConfigProvider"
    )
    for {
      (option, kind) <- typeOf.toSeq.sorted ++ ofProviders
      name <- listed(kafka, option)
      if !isLookedUp(kafka, name)
      reason <- unfit(name, kind)
    } throw new SinkException.RefusedSetting(
      s"Option 'kafka.$option' is refused",
      reason,
      s"Name a class on the class path of driver and executors that is a $kind",
      Map("option" -> s"kafka.$option", "value" -> kafka(option))
    )
  }

  /** Returns why a class cannot be a plugin of that kind; None where it can, or the client has no such kind. */
  private def unfit(name: String, kind: String): Option[String] =
    load(name) match {
      case None => Some(s"class $name is not on the class path, or cannot be loaded")
      case Some(of) =>
        val isOther = load(kind).exists(!_.isAssignableFrom(of))
        val isMade = !Modifier.isAbstract(of.getModifiers) && Try(of.getConstructor()).isSuccess
        if (isOther) Some(s"$name is no $kind")
        else Option.when(!isMade)(s"$name has no public constructor without arguments")
    }

  /** Loads a class as Kafka's clients do; None where that fails. */
  private def load(name: String): Option[Class[_]] = {
    val own = Option(Thread.currentThread.getContextClassLoader)
    try Some(Class.forName(name, false, own.getOrElse(classOf[ConfigDef].getClassLoader)))
    catch { case _: ClassNotFoundException | _: LinkageError => None }
  }

  /** Returns the class that an option names, if it is not Kafka's own, and is there. */
  def ownPlugin(kafka: Map[String, String], name: String): Option[Class[_]] =
    kafka.get(name).map(_.trim).filterNot(_.startsWith(OfKafka)).flatMap(load)

  /** Returns the options that name plugins, providers aside. */
  def namedPlugins(kafka: Map[String, String]): Seq[String] =
    typeOf.keys.toSeq.sorted.filter(listed(kafka, _).nonEmpty).map(name => s"kafka.$name")

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
