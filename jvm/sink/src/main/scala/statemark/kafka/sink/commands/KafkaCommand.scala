package statemark.kafka.sink.commands

import java.io.{FileInputStream, IOException}
import java.util.Properties
import scala.jdk.CollectionConverters._
import scala.util.Using
import statemark.kafka.conf.{SinkException, SinkSettings}
import statemark.kafka.sink.conf.KafkaLibrary
import statemark.kafka.tools.SinkTools
import statemark.spark.offline.cli.{Command, CommandContext, UserError}

/** A command that asks brokers, and needs no session of Spark's. Spark makes one of each to see its name: nothing that it
  * extends names a class of Kafka's.
  */
private[commands] trait KafkaCommand extends Command {

  /** Runs `body` where Kafka's client library is there; what the sink's core throws becomes an error of the command. */
  protected def withKafka[A](body: => A): A = {
    KafkaLibrary.absence(getClass.getClassLoader).foreach { e =>
      throw UserError(
        s"the command $name cannot run",
        KafkaLibrary.Missing,
        s"add ${KafkaLibrary.Packages}, which brings it, or --jars with the library's jar",
        Some(e)
      )
    }
    try body
    catch { case e: SinkException => throw KafkaCommand.explained(e) }
  }
}

private[commands] object KafkaCommand {

  /** Somebody waits at a terminal: Kafka's own default is a minute. */
  private val Blocking = Map("max.block.ms" -> "20000")

  /** What the sink's core has to know of the brokers.
    * @param commandConfig a file of client properties, as Kafka's own tools take it
    */
  def settings(
      bootstrapServers: String,
      commandConfig: Option[String],
      options: Map[String, String]
  ): SinkSettings = {
    val own =
      commandConfig.fold(Map.empty[String, String])(file => SinkSettings.ofFile(properties(file)))
    val waits =
      if (own.keySet.exists(SinkTools.Timeouts.contains)) Map.empty else SinkTools.Timeouts
    val kafka = Blocking ++ waits ++ own + (SinkSettings.BootstrapServers -> bootstrapServers)
    SinkSettings.of(kafka.map { case (key, value) => s"kafka.$key" -> value } ++ options)
  }

  /** Runs `body` with what looks at the sinks of a commit topic. */
  def ask[A](
      bootstrapServers: String,
      commitTopic: String,
      commandConfig: Option[String],
      context: CommandContext
  )(body: SinkTools => A): A = {
    val of = settings(bootstrapServers, commandConfig, Map("commitTopic" -> commitTopic))
    context.console.progress(s"asking the brokers at $bootstrapServers")
    Using.resource(SinkTools.open(of))(body)
  }

  private def properties(file: String): Map[String, String] =
    try
      Using.resource(new FileInputStream(file)) { in =>
        val read = new Properties
        read.load(in)
        read.asScala.toMap
      }
    catch {
      case e @ (_: IOException | _: IllegalArgumentException) =>
        throw UserError(
          s"the file $file cannot be read",
          e.getMessage,
          "name a file of client properties in --command-config, as security.protocol=SASL_SSL",
          Some(e)
        )
    }

  private def explained(e: SinkException) =
    UserError(
      lower(e.problem),
      s"${e.reason}${SinkException.shown(e.values)}",
      lower(e.remedy),
      Some(e)
    )

  /** Errors of commands begin with a small letter, but for names. */
  private def lower(text: String): String =
    if (text.drop(1).headOption.exists(_.isLower) && !text.startsWith("Kafka"))
      s"${text.head.toLower}${text.tail}"
    else text
}
