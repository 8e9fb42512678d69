package statemark.spark.offline

import java.io.{FileDescriptor, FileOutputStream, PrintWriter, StringWriter}
import java.util.ServiceLoader
import org.apache.spark.{SPARK_VERSION, SparkConf}
import org.apache.spark.sql.SparkSession
import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal
import statemark.common.{Causes, Clock, DiskUnwritableException, StatemarkException}
import statemark.spark.offline.cli.{
  Command,
  CommandContext,
  Console,
  ExitCode,
  NobodyReads,
  Request,
  StreamConsole,
  UserError,
  Waiter
}
import statemark.spark.offline.inspect.InspectCommand
import statemark.spark.offline.local.LocalCommand
import statemark.spark.offline.repartition.RepartitionCommand
import statemark.spark.offline.switching.SwitchCommand
import statemark.spark.offline.verify.VerifyCommand

/** The entry point of the offline tools, for spark-submit, with one argument: a [[Request]] as JSON. */
object Main {

  private lazy val commands: Seq[Command] =
    Seq(SwitchCommand, RepartitionCommand, InspectCommand, VerifyCommand, LocalCommand) ++
      ServiceLoader.load(classOf[Command], getClass.getClassLoader).asScala

  def main(args: Array[String]): Unit = {
    val console = new StreamConsole(
      new FileOutputStream(FileDescriptor.out),
      new FileOutputStream(FileDescriptor.err)
    )
    val code = run(args.toSeq, console)
    // Threads of Spark's that still run must not keep the process.
    sys.exit(code.value)
  }

  /** Runs one command, in a session of its own where it needs one. */
  def run(args: Seq[String], console: Console): ExitCode =
    // Where the request cannot be read, whether it is verbose is not known.
    attempt(console, isVerbose = false, asJson = false) {
      val request = Request.of(args)
      attempt(console, request.isVerbose, request.fields.isTrue("json")) {
        val command = commandOf(request.command)
        val prepared = command.prepared(request.fields)
        var started = Option.empty[SparkSession]
        def spark: SparkSession = {
          val made = session(command)
          started = Some(made)
          made
        }
        try prepared(new CommandContext(spark, console, Clock.system, Waiter.system))
        finally started.foreach(_.stop())
      }
    }

  /** Runs `body`; an error becomes lines and an exit code.
    * @param asJson whether the error is a JSON object as well, as the result would have been
    */
  def attempt(console: Console, isVerbose: Boolean, asJson: Boolean)(
      body: => ExitCode
  ): ExitCode =
    try body
    catch {
      case _: NobodyReads => ExitCode.Unread
      case FailedWrite(e) =>
        val message = s"the command failed\n  reason: ${e.problem}\n  remedy: ${e.remedy}"
        failed(console, isVerbose, asJson, message, e)
      case e: StatemarkException => failed(console, isVerbose, asJson, e.getMessage, e)
      case e @ (NonFatal(_) | _: LinkageError) =>
        val cause = Causes.of(e).toSeq.last
        val problem = s"the command failed: $cause".linesIterator.take(3).mkString(" ")
        val (reason, remedy) = cause match {
          case _: LinkageError => (
              "a jar is missing, or is made for another version of Spark or of its libraries",
              s"add jars made for Spark $SPARK_VERSION with --jars or --packages, and see the class with --verbose"
            )
          case _ => ("unexpected", "look at the cause with --verbose")
        }
        failed(
          console,
          isVerbose,
          asJson,
          s"$problem\n  reason: $reason\n  remedy: $remedy",
          e
        )
    }

  /** A write that a disk has refused, however deep among the causes of a failure. */
  private object FailedWrite {
    def unapply(failure: Throwable): Option[DiskUnwritableException] =
      Causes.of(failure).collectFirst { case e: DiskUnwritableException => e }
  }

  private def failed(
      console: Console,
      isVerbose: Boolean,
      asJson: Boolean,
      message: String,
      e: Throwable
  ): ExitCode = {
    try if (asJson) console.result(CommandContext.errorOf(message))
    catch { case _: NobodyReads => () }
    console.progress(s"statemark: $message")
    if (isVerbose) {
      val trace = new StringWriter
      e.printStackTrace(new PrintWriter(trace, true))
      console.progress(trace.toString)
    }
    ExitCode.Failed
  }

  private[offline] def commandOf(name: String): Command =
    commands.find(_.name == name).getOrElse {
      throw UserError(
        s"unknown command $name",
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
