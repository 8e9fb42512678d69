package statemark.spark.offline

import java.io.{ByteArrayOutputStream, IOException, OutputStream}
import org.json4s.{JObject, JString}
import org.json4s.jackson.JsonMethods.parse
import org.apache.spark.SPARK_VERSION
import org.scalatest.funsuite.AnyFunSuite
import statemark.common.InvalidInputException
import statemark.spark.offline.cli.{ExitCode, Request, StreamConsole, UserError}
import statemark.spark.offline.repartition.RepartitionCommand
import statemark.spark.offline.switching.SwitchCommand

class RequestSuite extends AnyFunSuite {
  private val switch =
    """{"command":"switch","verbose":false,"checkpoint":"/c p","to":"rocksdb","observe":5.0,"force":true,"dryRun":false,"json":false}"""

  private def refusal(json: String*): String = intercept[InvalidInputException] {
    val request = Request.of(json)
    Main.commandOf(request.command).prepared(request.fields)
  }.getMessage

  test("a request becomes the arguments of its command") {
    val request = Request.of(Seq(switch))
    assert(request.command == "switch" && !request.isVerbose)
    assert(request.fields.as(SwitchCommand.read) ==
      SwitchCommand.Arguments("/c p", "rocksdb", 5, force = true, dryRun = false, json = false))
  }

  test("what has no default need not be there, or is null") {
    for (partitions <- Seq("", ""","partitions":null""")) {
      val json = """{"command":"repartition","verbose":true,"checkpoint":"/c","rollback":true,""" +
        s""""skipUncommitted":false,"observe":0,"dryRun":true,"json":true$partitions}"""
      val request = Request.of(Seq(json))
      assert(request.isVerbose)
      assert(request.fields.as(RepartitionCommand.read) ==
        RepartitionCommand
          .Arguments(
            "/c",
            None,
            true,
            skipUncommitted = false,
            None,
            0,
            dryRun = true,
            json = true
          ))
    }
  }

  for {
    (before, after, problem) <- Seq(
      ("\"force\":true", "\"force\":1", "the argument force of the command switch is 1\n"),
      (",\"force\":true", "", "the argument force of the command switch is missing\n"),
      (
        "\"force\":true",
        "\"force\":true,\"jason\":[1]",
        "unknown argument jason of the command switch\n"
      ),
      ("\"/c p\"", "\"\"", "the name of the checkpoint is empty\n"),
      ("\"/c p\"", "7", "the argument checkpoint of the command switch is 7\n"),
      ("5.0", "-1", "--observe is -1\n  reason: it is no number from 0 up\n"),
      ("5.0", "\"inf\"", "--observe is inf\n  reason: it is no number from 0 up\n"),
      ("\"switch\"", "\"swap\"", "unknown command swap\n"),
      ("\"command\":\"switch\",", "", "the argument command of this process is missing\n"),
      ("\"verbose\":false,", "", "the argument verbose of this process is missing\n"),
      ("{", "", "cannot read \"command\"")
    )
  } test(s"refused: ${if (after.isEmpty) s"without $before" else after}") {
    val message = refusal(switch.replace(before, after))
    assert(message.startsWith(problem) && message.contains("\n  remedy: "), message)
  }

  test("words instead of an object are refused, with what to use") {
    for (words <- Seq(Nil, Seq("switch", "/c"), Seq("inspect")))
      assert(refusal(words: _*).contains("\n  remedy: use the command statemark"))
  }

  test(
    "a reader that goes away ends a command without a word; without one of progress, work goes on"
  ) {
    val closed: OutputStream = (_: Int) => throw new IOException("Broken pipe")
    val heard = new ByteArrayOutputStream
    val console = new StreamConsole(closed, heard)
    val code = Main.attempt(console, isVerbose = true, asJson = false) {
      console.result("a line")
      ExitCode.Ok
    }
    assert(code == ExitCode.Unread && code.value == 141 && heard.size == 0)
    val unseen = new StreamConsole(heard, closed)
    for (line <- Seq("one", "two")) unseen.progress(line)
    unseen.result("done")
    assert(heard.toString == "done\n")
  }

  test("an error is lines, and a code; a trace where it is asked for") {
    for (isVerbose <- Seq(false, true)) {
      val console = new RecordingConsole
      val json = switch.replace("false", isVerbose.toString).replace("switch", "swap")
      assert(Main.run(Seq(json), console) == ExitCode.Failed)
      assert(console.progressed.head.startsWith("statemark: unknown command swap\n  reason: "))
      assert(console.progressed.exists(_.contains("InvalidInputException")) == isVerbose)
      assert(console.results.isEmpty || isVerbose)
    }
  }

  test("an error is a JSON object as well where one was asked for") {
    for (e <- Seq(UserError("p\nq", "a \"reason\"", "try\nthis"), new RuntimeException("x"))) {
      val console = new RecordingConsole
      assert(Main.attempt(console, isVerbose = false, asJson = true)(throw e) == ExitCode.Failed)
      val Seq(line) = console.results: @unchecked
      val JObject(keys) = parse(line): @unchecked
      assert(keys.map(_._1) == Seq("schema", "error"))
      val told = Seq("problem", "reason", "remedy").map(parse(line) \ "error" \ _).collect {
        case JString(part) => part
      }
      val text = s"statemark: ${told(0)}\n  reason: ${told(1)}\n  remedy: ${told(2)}"
      assert(console.progressed == Seq(text))
    }
  }

  test("a jar that does not fit is named as such, and the Spark that it has to fit") {
    val missing = new NoSuchMethodError("a method of another Spark")
    for (e <- Seq(missing, new RuntimeException("the query ended", missing))) {
      val console = new RecordingConsole
      assert(Main.attempt(console, isVerbose = false, asJson = false)(throw e) == ExitCode.Failed)
      val Seq(said) = console.progressed: @unchecked
      assert(said.contains("a method of another Spark\n  reason: a jar is missing, or is made for"))
      assert(said.contains(s"\n  remedy: add jars made for Spark $SPARK_VERSION with --jars"))
    }
  }
}
