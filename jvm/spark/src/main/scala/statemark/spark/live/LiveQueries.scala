package statemark.spark.live

import java.util.concurrent.locks.LockSupport
import java.util.concurrent.TimeUnit
import java.util.UUID
import org.apache.spark.sql.execution.streaming.state.{ActiveQuery, StatemarkBridge}
import org.apache.spark.sql.SparkSession
import org.json4s._
import org.json4s.jackson.JsonMethods.parse
import scala.annotation.tailrec
import scala.util.{Failure, Success, Try}
import statemark.common.{Causes, Clock, InvalidInputException, Position, ViewClosedException}
import statemark.spark.cluster.BatchOffsets
import statemark.spark.errors.{PositionBoundException, StoreMovedException, VersionGoneException}
import statemark.spark.process.{JvmState, RecentlyUsed}
import statemark.spark.reads.ReadRequest
import statemark.IsolationLevel

/** The last batch that a running query has committed.
  * @param awaits whether the batch after it, which runs, is to have begun in each partition that is read
  */
final case class PinnedBatch(query: ActiveQuery, batch: Long, awaits: Boolean = false) {

  /** Returns the version of its stores that the batch has made. */
  def version: Long = batch + 1

  /** Returns the source offsets that the batch ends at: what its stores have to hold. The log is read once for them. */
  def offsets: Option[Position] = {
    val known = PinnedBatch.ends()
    known.get((query.runId, batch)).orElse {
      val end = query.positionOf(batch).map(_.shortened(BatchOffsets.MaxStartChars))
      end.foreach(known.put((query.runId, batch), _))
      end
    }
  }

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

private object PinnedBatch {
  private val MaxKnown = 64
  private val ends = JvmState.value(new RecentlyUsed[(UUID, Long), Position](MaxKnown))
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

  /** Returns the newest batch that the query has committed, and that includes `bound`; waits for it. At
    * READ_UNCOMMITTED the batch that runs includes it, too, where it is planned to end there; then its rows are to be
    * waited for ([[begun]]).
    * @throws PositionBoundException where there is none after `timeoutMs`
    * @throws InvalidInputException where the bound is of another number of sources, which no batch ever includes
    * @throws InterruptedException where the thread is interrupted while it waits
    */
  def pin(
      query: ActiveQuery,
      bound: Option[Position],
      level: IsolationLevel,
      timeoutMs: Long
  ): PinnedBatch = {
    def isMet(there: Option[Position]) = bound.forall(b => there.exists(includes(_, b)))
    var looked = Option.empty[(Long, Option[Position])]
    // It stands in the log before the batch runs, or not until it is through.
    def plannedEnd(batch: Long) = {
      if (!looked.exists(_._1 == batch)) looked = Some((batch, query.positionOf(batch)))
      looked.flatMap(_._2)
    }
    def isRunning(batch: Long) =
      level == IsolationLevel.ReadUncommitted && query.running().contains(batch)
    awaited(query, timeoutMs) {
      query.lastCommitted().flatMap { batch =>
        if (isMet(query.positionOf(batch))) Some(PinnedBatch(query, batch))
        else
          Option.when(isRunning(batch + 1) && isMet(plannedEnd(batch + 1)))(
            PinnedBatch(query, batch, awaits = true)
          )
      }
    }.getOrElse(throw unmet(query, bound, timeoutMs))
  }

  /** Waits until the batch after a pinned one has begun in all of some partitions, where the read awaits it.
    * @throws PositionBoundException where it has not after `timeoutMs`
    * @throws InterruptedException where the thread is interrupted while it waits
    */
  def begun(
      pin: PinnedBatch,
      operator: Long,
      partitions: Set[Int],
      bound: Option[Position],
      timeoutMs: Long
  ): Unit = if (pin.awaits) {
    val asked = ReadRequest.Begun(pin.query.runId, operator, pin.version)
    var missing = partitions
    awaited(pin.query, timeoutMs) {
      if (missing.nonEmpty) missing --= ReadRouter.begun(asked)
      Option.when(missing.isEmpty)(())
    }.getOrElse(throw unmet(pin.query, bound, timeoutMs))
  }

  private def unmet(query: ActiveQuery, bound: Option[Position], timeoutMs: Long) =
    new PositionBoundException(
      s"Query ${query.id}",
      query.lastCommitted().flatMap(query.positionOf).map(BatchOffsets.written),
      bound.map(BatchOffsets.written),
      timeoutMs
    )

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
    if (there.sources.length != bound.sources.length) throw wrong(
      s"The position that the read waits for has ${sources(bound.sources.length)}, and the query " +
        s"${sources(there.sources.length)}.",
      "Pass a position of this query: what `statemark.position` returns for it."
    )
    PositionBound.includes(there, bound)
  }

  /** Runs a read of what `plan` returns; anew, of the batch that is the newest then, where a store has left the version,
    * its transaction or its executor since it was planned.
    */
  def retried[A, B](plan: => A)(read: A => B): B = {
    @tailrec def attempt(left: Int): B = {
      val planned = plan
      Try(read(planned)) match {
        case Success(found) => found
        case Failure(e) if left > 1 && isOutlived(e) => attempt(left - 1)
        case Failure(e) => throw e
      }
    }
    attempt(Tries)
  }

  private val Tries = 5

  private def isOutlived(failure: Throwable): Boolean =
    Causes.of(failure).exists {
      case _: VersionGoneException | _: StoreMovedException | _: ViewClosedException => true
      case _ => false
    }

  /** Returns the refusal of what a read asks for. */
  def wrong(problem: String, remedy: String): InvalidInputException =
    new InvalidInputException(problem, remedy = Some(remedy))
}

/** Source offsets that a read waits for. ''Source:'' KIP-796, `PositionBound`. */
object PositionBound {

  /** Tells whether `position` is at or after `bound` in every source. Offsets are compared as their JSON: each number
    * of the bound with the one in the same place (Kafka: topic and partition; files and rates: the only one).
    */
  def includes(position: Position, bound: Position): Boolean =
    position.sources.length == bound.sources.length &&
      position.sources.map(_.end.text).zip(bound.sources.map(_.end.text)).forall {
        case (_, None) => true
        case (None, Some(_)) => false
        case (Some(reached), Some(wanted)) =>
          reached == wanted || covers(json(reached), json(wanted))
      }

  private def covers(reached: JValue, wanted: JValue): Boolean = (reached, wanted) match {
    case (JObject(there), JObject(fields)) =>
      val values = there.toMap
      fields.forall { case (name, value) => values.get(name).exists(covers(_, value)) }
    case _ => (number(reached), number(wanted)) match {
        case (Some(a), Some(b)) => a >= b
        case _ => reached == wanted
      }
  }

  private def number(value: JValue): Option[BigDecimal] = value match {
    case JInt(n) => Some(BigDecimal(n))
    case JLong(n) => Some(BigDecimal(n))
    case JDouble(n) => Some(BigDecimal(n))
    case JDecimal(n) => Some(n)
    case _ => None
  }

  private def json(offset: String): JValue = Try(parse(offset)).getOrElse(JString(offset))
}
