package statemark.spark.live

import java.util.concurrent.locks.LockSupport
import java.util.concurrent.TimeUnit
import java.util.UUID
import org.apache.spark.sql.execution.streaming.state.{ActiveQuery, StatemarkBridge}
import org.apache.spark.sql.SparkSession
import scala.annotation.tailrec
import scala.util.Try
import statemark.common.{Clock, InvalidInputException, Position}
import statemark.spark.cluster.SourcePosition
import statemark.spark.errors.PositionBoundException

/** The last batch that a running query has committed. */
final case class PinnedBatch(query: ActiveQuery, batch: Long) {

  /** Returns the version of its stores that the batch has made. */
  def version: Long = batch + 1

  /** Runs a step of Spark's format `statestore` over the batch, whatever the session has for what the checkpoint does not
    * say.
    */
  def bySpark[A](step: => A): A =
    StatemarkBridge.readingCheckpoint(
      SparkSession.active,
      query.idsOf(batch, 0L).isDefined,
      query.unnamedPartitions(batch)
    )(step)
}

/** Finds running queries of the application, whichever session started them.
  *
  * ''Thread:'' any of the driver.
  */
final class LiveQueries(spark: SparkSession, clock: Clock) {
  import LiveQueries._

  /** @throws InvalidInputException where no query, or more than one, is meant */
  def find(id: Option[String], name: Option[String]): ActiveQuery = {
    val running = StatemarkBridge.activeQueries(spark)
    def known = running.map(q => s"${q.id}${q.name.fold("")(n => s" ($n)")}").sorted match {
      case Nil => "no query runs"
      case some => s"running are ${some.mkString(", ")}"
    }
    def one(asked: String, uuid: Option[UUID], name: Option[String]): ActiveQuery =
      running.filter(q => uuid.forall(_ == q.id) && name.forall(q.name.contains(_))) match {
        case Seq(query) => query
        case Nil =>
          val ended = EndedQueries.known().flatMap(_.find(uuid, name))
          throw wrong(
            s"No running query has $asked; $known${ended.fold("")(how => s"; the query $how")}.",
            (if (ended.isDefined) "Start it again" else "Name one that runs, by its name or id") +
              ". A stopped query is read with format 'statestore' and the path of its checkpoint."
          )
        case several => throw wrong(
            s"${several.length} running queries have $asked: ${several.map(_.id).mkString(", ")}.",
            "Name one by its id (option queryId)."
          )
      }
    (id, name) match {
      case (Some(text), None) =>
        val uuid = Try(UUID.fromString(text)).getOrElse(
          throw wrong(
            s"Option queryId is '$text', which is no UUID; $known.",
            "Name a query by its id, or by its name with option queryName."
          )
        )
        one(s"the id $uuid", Some(uuid), None)
      case (None, Some(n)) => one(s"the name '$n'", None, Some(n))
      case _ =>
        val named = if (id.isEmpty) "none" else "two"
        throw wrong(
          s"Format 'statemark' reads the state of one running query, and $named is named; $known.",
          "Set either option queryId or option queryName. The format cannot be written, nor read as a stream."
        )
    }
  }

  /** Returns the newest batch that the query has committed, and that includes `bound`; waits for it.
    * @throws PositionBoundException where there is none after `timeoutMs`
    * @throws InvalidInputException where the bound is of another number of sources, which no batch ever includes
    * @throws InterruptedException where the thread is interrupted while it waits
    */
  def pin(query: ActiveQuery, bound: Option[Position], timeoutMs: Long): PinnedBatch = {
    def reached(batch: Option[Long]) = batch.flatMap(query.positionOf)
    awaited(query, timeoutMs) {
      query.lastCommitted().filter { batch =>
        bound.forall(b => reached(Some(batch)).exists(includes(_, b)))
      }
    }.map(PinnedBatch(query, _)).getOrElse(
      throw new PositionBoundException(
        query.id,
        reached(query.lastCommitted()).map(SourcePosition.encode),
        bound.map(SourcePosition.encode),
        timeoutMs
      )
    )
  }

  /** Looks until there is something, the query has ended, or `timeoutMs` are over.
    * @throws InterruptedException where the thread is interrupted while it waits
    */
  private[live] def awaited[A](query: ActiveQuery, timeoutMs: Long)(
      look: => Option[A]
  ): Option[A] = {
    val deadline = clock.nanos() + TimeUnit.MILLISECONDS.toNanos(timeoutMs)
    @tailrec def poll(): Option[A] = {
      val found = look
      if (found.isDefined || clock.nanos() >= deadline || !query.isActive()) found
      else {
        LockSupport.parkNanos(PollNanos) // returns at once where the thread is interrupted
        if (Thread.interrupted())
          throw new InterruptedException(s"interrupted while it waited for a batch of ${query.id}")
        poll()
      }
    }
    poll()
  }
}

private[live] object LiveQueries {
  private val PollNanos = TimeUnit.MILLISECONDS.toNanos(20)

  /** Tells whether a query that is at `there` includes `bound`, which has to be a position of this query. */
  private def includes(there: Position, bound: Position): Boolean = {
    def sources(n: Int) = if (n == 1) "1 source" else s"$n sources"
    if (there.offsets.length != bound.offsets.length) throw wrong(
      s"The position that the read waits for has ${sources(bound.offsets.length)}, and the query " +
        s"${sources(there.offsets.length)}.",
      "Pass a position of this query: what `statemark.position` returns for it."
    )
    PositionBound.includes(there, bound)
  }

  /** Returns the refusal of what a read asks for. */
  def wrong(problem: String, remedy: String): InvalidInputException =
    new InvalidInputException(problem, remedy = Some(remedy))
}
