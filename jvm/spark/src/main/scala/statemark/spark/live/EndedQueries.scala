package statemark.spark.live

import java.time.Instant
import java.util.UUID
import org.apache.spark.scheduler.{SparkListener, SparkListenerEvent}
import org.apache.spark.SparkContext
import org.apache.spark.sql.streaming.StreamingQueryListener
import org.apache.spark.sql.streaming.StreamingQueryListener.QueryTerminatedEvent
import scala.collection.mutable
import statemark.common.Clock
import statemark.spark.process.{JvmState, JvmValue}

/** The queries of the application that have ended, the last of them: what to tell who reads one.
  *
  * ''Thread:'' any.
  */
private[live] final class EndedQueries(clock: Clock) extends SparkListener {
  import EndedQueries._

  // By run, of queries that have a name.
  private val names = mutable.HashMap.empty[UUID, String]
  // The last one first.
  private var ended = List.empty[Ended]

  override def onOtherEvent(event: SparkListenerEvent): Unit = event match {
    case e: StreamingQueryListener.QueryStartedEvent =>
      synchronized(Option(e.name).foreach(names(e.runId) = _))
    case e: QueryTerminatedEvent => synchronized {
        val query = Ended(e.id, names.remove(e.runId), e.exception.map(short), clock.epochMs())
        ended = (query :: ended).take(Most)
      }
    case _ => ()
  }

  /** Returns how the last run has ended of a query that has the id or the name. */
  def find(id: Option[UUID], name: Option[String]): Option[String] = synchronized {
    ended.find(e => id.forall(_ == e.id) && name.forall(e.name.contains(_))).map(_.shown)
  }
}

private[spark] object EndedQueries {
  private val Most = 100

  /** None without the plugin. */
  private[live] val known: JvmValue[Option[EndedQueries]] = JvmState.ofApplication(None)

  /** Listens to the queries of an application from now on. */
  def watch(context: SparkContext): Unit = {
    val queries = new EndedQueries(Clock.system)
    known.set(Some(queries))
    context.addSparkListener(queries)
  }

  private val MostLetters = 300
  private val Reason = "reason: "
  private val ClassName = "^[\\w.$]+(?:Exception|Error): ".r

  /** Returns what a failure says in its first lines, without its class and stacks: the reason, where one is named. */
  private[live] def short(failure: String): String = {
    val lines = failure.linesIterator.map(_.trim)
      .takeWhile(line => !line.startsWith("at ") && !line.startsWith("Traceback (most recent"))
      .toSeq
    val text = lines.find(_.startsWith(Reason)).fold(lines.mkString(" "))(_.stripPrefix(Reason))
    val plain = ClassName.replaceFirstIn(text, "").stripSuffix(".")
    if (plain.length > MostLetters) plain.take(MostLetters) + "…" else plain
  }

  /** @param failure what it says; None where the query was stopped */
  private final case class Ended(
      id: UUID,
      name: Option[String],
      failure: Option[String],
      atMs: Long
  ) {
    def shown: String = {
      val at = Instant.ofEpochMilli(atMs / 1000 * 1000)
      failure.fold(s"was stopped at $at")(text => s"failed at $at: $text")
    }
  }
}
