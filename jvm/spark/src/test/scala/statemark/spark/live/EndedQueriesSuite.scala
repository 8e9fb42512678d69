package statemark.spark.live

import java.util.UUID
import org.apache.spark.scheduler.SparkListenerEvent
import org.apache.spark.sql.streaming.StreamingQueryListener.{
  QueryStartedEvent,
  QueryTerminatedEvent
}
import org.scalatest.funsuite.AnyFunSuite
import statemark.common.Clock

class EndedQueriesSuite extends AnyFunSuite {
  private object Noon extends Clock {
    override def nanos(): Long = 0
    override def epochMs(): Long = 1782216000123L
  }
  private val at = "2026-06-23T12:00:00Z"
  private val stack = "java.lang.IllegalStateException: no more.\n\tat a.B.c(B.scala:1)"

  /** An event as Spark makes it, whose constructors are its own, and on some lines have more parameters. */
  private def event[A <: SparkListenerEvent](of: Class[A], values: Any*): A = {
    val constructor = of.getConstructors.maxBy(_.getParameterCount)
    val all = values.map(_.asInstanceOf[AnyRef]).padTo(constructor.getParameterCount, Set.empty)
    of.cast(constructor.newInstance(all: _*))
  }

  test("the last run counts, by id and by name") {
    val queries = new EndedQueries(Noon)
    val (id, first, second) = (UUID.randomUUID(), UUID.randomUUID(), UUID.randomUUID())
    def started(run: UUID, name: String): Unit =
      queries.onOtherEvent(event(classOf[QueryStartedEvent], id, run, name, at))
    def ended(run: UUID, failure: Option[String]): Unit =
      queries.onOtherEvent(event(classOf[QueryTerminatedEvent], id, run, failure, None))
    assert(queries.find(Some(id), None).isEmpty)
    started(first, "counts")
    ended(first, Some(stack))
    assert(queries.find(Some(id), None).contains(s"failed at $at: no more"))
    started(second, None.orNull)
    ended(second, None)
    assert(queries.find(Some(id), None).contains(s"was stopped at $at"))
    assert(queries.find(None, Some("counts")).contains(s"failed at $at: no more"))
    assert(queries.find(None, Some("others")).isEmpty)
    for (_ <- 1 to 100) {
      val other = UUID.randomUUID()
      queries.onOtherEvent(event(classOf[QueryTerminatedEvent], other, other, None, None))
    }
    assert(queries.find(Some(id), None).isEmpty)
  }

  test("what a query failed with is told in few words") {
    assert(EndedQueries.short(stack) == "no more")
    val python =
      "org.apache.spark.api.python.PythonException: it failed\nTraceback (most recent call"
    assert(EndedQueries.short(python) == "it failed")
    val told =
      "a.B: Job aborted: c.D: [CANNOT_LOAD]\n  store: 0\n  reason: no room.\n  remedy: make some"
    assert(EndedQueries.short(told) == "no room")
    assert(EndedQueries.short("x" * 1000) == "x" * 300 + "…")
  }
}
