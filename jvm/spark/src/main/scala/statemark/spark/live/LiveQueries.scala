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
    def one(asked: String, found: Seq[ActiveQuery]): ActiveQuery = found match {
      case Seq(query) => query
      case Nil => throw new InvalidInputException(
          s"No running query has $asked; $known. A stopped query is read with format 'statestore' and the path of its checkpoint."
        )
      case several => throw new InvalidInputException(
          s"${several.length} running queries have $asked: ${several.map(_.id).mkString(", ")}. Name one with queryId."
        )
    }
    (id, name) match {
      case (Some(text), None) =>
        val uuid = Try(UUID.fromString(text)).getOrElse(
          throw new InvalidInputException(
            s"queryId is '$text', but it must be the id of a query, a UUID; $known."
          )
        )
        one(s"the id $uuid", running.filter(_.id == uuid))
      case (None, Some(n)) => one(s"the name '$n'", running.filter(_.name.contains(n)))
      case _ =>
        throw new InvalidInputException(
          "Name the query with either option queryId or option queryName."
        )
    }
  }

  /** Returns the newest batch that the query has committed, and that includes `bound`; waits for it.
    * @throws PositionBoundException where there is none after `timeoutMs`
    * @throws InterruptedException where the thread is interrupted while it waits
    */
  def pin(query: ActiveQuery, bound: Option[Position], timeoutMs: Long): PinnedBatch = {
    val deadline = clock.nanos() + TimeUnit.MILLISECONDS.toNanos(timeoutMs)
    @tailrec def poll(): PinnedBatch = {
      val batch = query.lastCommitted()
      val reached = batch.flatMap(query.positionOf)
      if (batch.isDefined && bound.forall(b => reached.exists(PositionBound.includes(_, b))))
        PinnedBatch(query, batch.get)
      else if (clock.nanos() >= deadline || !query.isActive())
        throw new PositionBoundException(
          query.id,
          reached.map(SourcePosition.encode),
          bound.map(SourcePosition.encode),
          timeoutMs
        )
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

private object LiveQueries {
  private val PollNanos = TimeUnit.MILLISECONDS.toNanos(20)
}
