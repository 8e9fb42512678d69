package statemark.spark.offline

import org.json4s.{JBool, JDouble, JInt, JString, JValue}
import statemark.spark.offline.cli.{Command, CommandContext, ExitCode, Fields}
import statemark.spark.offline.inspect.InspectCommand
import statemark.spark.offline.local.LocalCommand
import statemark.spark.offline.repartition.RepartitionCommand
import statemark.spark.offline.switching.SwitchCommand
import statemark.spark.offline.verify.VerifyCommand

/** Commands as tests write them, in words: what the `statemark` command makes of words is tested there. */
object CommandLine {
  private val off = JBool(false)
  private val observe = "observe" -> JDouble(5)

  private val defaults: Map[Command, Seq[(String, JValue)]] = Map(
    SwitchCommand -> Seq(observe, "force" -> off, "dryRun" -> off, "json" -> off),
    RepartitionCommand -> Seq(
      observe,
      "rollback" -> off,
      "skipUncommitted" -> off,
      "dryRun" -> off,
      "json" -> off
    ),
    InspectCommand -> Seq("json" -> off),
    VerifyCommand -> Seq("deep" -> off, "json" -> off),
    LocalCommand -> Seq("stores" -> off, "prune" -> off, "dryRun" -> off, "json" -> off)
  )

  def run(command: Command, words: Seq[String], context: CommandContext): ExitCode =
    command.prepared(fields(command, words))(context)

  /** @param words options, each with its value where it takes one, and a checkpoint */
  def fields(command: Command, words: Seq[String]): Fields = {
    @annotation.tailrec
    def go(rest: List[String], found: List[(String, JValue)]): List[(String, JValue)] =
      rest match {
        case Nil => found
        case option :: value :: more
            if isOption(option) && !isOption(value) && takesValue(option) =>
          go(more, (camel(option) -> valueOf(option, value)) :: found)
        case flag :: more if isOption(flag) => go(more, (camel(flag) -> JBool(true)) :: found)
        case place :: more => go(more, ("checkpoint" -> JString(place)) :: found)
      }
    new Fields(s"the command ${command.name}", (defaults(command) ++ go(words.toList, Nil)).toMap)
  }

  private def isOption(word: String) = word.startsWith("--")

  private def takesValue(option: String) =
    Set("--to", "--observe", "--partitions", "--local-dir", "--max-age", "--max-bytes")(option)

  private def valueOf(option: String, value: String): JValue = option match {
    case "--observe" => JDouble(value.toDouble)
    case "--partitions" => JInt(BigInt(value))
    case _ => JString(value)
  }

  private def camel(option: String): String =
    "-([a-z])".r.replaceAllIn(option.drop(2), _.group(1).toUpperCase(java.util.Locale.ROOT))
}
