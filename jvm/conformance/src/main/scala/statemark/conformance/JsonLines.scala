package statemark.conformance

import java.nio.file.{Files, Path, StandardOpenOption}

import org.json4s.JsonAST.{JInt, JObject, JString}
import org.json4s.jackson.JsonMethods.{compact, render}
import org.scalatest.Reporter
import org.scalatest.events._

/** Writes the outcome of every test as a line of JSON as soon as it is known, so that a crash of the
  * process loses only the test that it interrupts. The file is named by the system property
  * `statemark.conformance.events`.
  */
final class JsonLines extends Reporter {
  private val file = Path.of(System.getProperty("statemark.conformance.events"))

  override def apply(event: Event): Unit = event match {
    case e: TestStarting => write("started", e.testName)
    case e: TestSucceeded => write("passed", e.testName, e.duration)
    case e: TestFailed => write("failed", e.testName, e.duration, explain(e.message, e.throwable))
    case e: TestCanceled => write("cancelled", e.testName, e.duration, e.message)
    case e: TestIgnored => write("ignored", e.testName)
    case e: TestPending => write("pending", e.testName, e.duration)
    case e: SuiteAborted =>
      write("aborted", e.suiteName, e.duration, explain(e.message, e.throwable))
    case e: RunAborted => write("aborted", "", e.duration, explain(e.message, e.throwable))
    case e: RunCompleted => write("completed", "", e.duration)
    case _ => ()
  }

  private def explain(message: String, cause: Option[Throwable]): String =
    cause.fold(message)(c => s"${c.getClass.getName}: ${c.getMessage}")

  private def write(
      event: String,
      test: String,
      duration: Option[Long] = None,
      message: String = ""
  ): Unit = synchronized {
    val line = JObject(
      "event" -> JString(event),
      "test" -> JString(test),
      "milliseconds" -> JInt(BigInt(duration.getOrElse(0L))),
      "message" -> JString(Option(message).getOrElse(""))
    )
    Files.writeString(
      file,
      compact(render(line)) + "\n",
      StandardOpenOption.CREATE,
      StandardOpenOption.APPEND
    ): Unit
  }
}
