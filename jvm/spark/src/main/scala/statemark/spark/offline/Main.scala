package statemark.spark.offline

import java.io.{FileDescriptor, FileOutputStream, PrintWriter, StringWriter}
import org.apache.spark.SparkConf
import org.apache.spark.sql.SparkSession
import scala.util.control.NonFatal
import statemark.common.{Causes, Clock, StatemarkException}
import statemark.spark.offline.cli.{
  Command,
  CommandContext,
  Console,
  ExitCode,
  StreamConsole,
  UserError,
  Waiter
}
import statemark.spark.offline.inspect.InspectCommand
import statemark.spark.offline.local.LocalCommand
import statemark.spark.offline.repartition.RepartitionCommand
import statemark.spark.offline.switching.SwitchCommand
import statemark.spark.offline.verify.VerifyCommand

/** The entry point of the offline tools, for spark-submit: `Main [--verbose] COMMAND ARGUMENTS`. */
object Main {

  private val commands: Seq[Command] =
    Seq(SwitchCommand, RepartitionCommand, InspectCommand, VerifyCommand, LocalCommand)

  def main(args: Array[String]): Unit = {
    val console = new StreamConsole(
      new FileOutputStream(FileDescriptor.out),
      new FileOutputStream(FileDescriptor.err)
    )
    val code = run(args.toSeq, console)
    // Threads of Spark's that still run must not keep the process.
    sys.exit(code.value)
  }

  /** Runs one command in a session of its own. */
  def run(args: Seq[String], console: Console): ExitCode = {
    val (verbose, words) = args.partition(_ == "--verbose")
    attempt(console, verbose.nonEmpty) {
      val (command, rest) = commandOf(words)
      val spark = session(command)
      try command.run(rest, new CommandContext(spark, console, Clock.system, Waiter.system))
      finally spark.stop()
    }
  }

  /** Runs `body`; an error becomes lines and an exit code. */
  def attempt(console: Console, isVerbose: Boolean)(body: => ExitCode): ExitCode =
    try body
    catch {
      case e: StatemarkException => failed(console, isVerbose, e.getMessage, e)
      case NonFatal(e) =>
        val reason = Causes.of(e).toSeq.last
        val problem = s"the command failed: $reason".linesIterator.take(3).mkString(" ")
        val remedy = "look at the cause with --verbose"
        failed(console, isVerbose, s"$problem\n  reason: unexpected\n  remedy: $remedy", e)
    }

  private def failed(
      console: Console,
      isVerbose: Boolean,
      message: String,
      e: Throwable
  ): ExitCode = {
    console.progress(s"statemark: $message")
    if (isVerbose) {
      val trace = new StringWriter
      e.printStackTrace(new PrintWriter(trace, true))
      console.progress(trace.toString)
    }
    ExitCode.Failed
  }

  private def commandOf(words: Seq[String]): (Command, Seq[String]) =
    words.headOption.flatMap(w => commands.find(_.name == w)).map((_, words.drop(1))).getOrElse {
      throw UserError(
        s"unknown command ${words.headOption.getOrElse("(none)")}",
        "the jar does not have it",
        s"use one of ${commands.map(_.name).mkString(", ")}"
      )
    }

  private def session(command: Command): SparkSession = {
    val conf = new SparkConf()
      .setIfMissing("spark.app.name", s"statemark ${command.name}")
      .setIfMissing("spark.ui.enabled", "false")
      .setIfMissing("spark.ui.showConsoleProgress", "false")
      // Two attempts of one task would write the same files.
      .set("spark.speculation", "false")
    SparkSession.builder().config(conf).getOrCreate()
  }
}
