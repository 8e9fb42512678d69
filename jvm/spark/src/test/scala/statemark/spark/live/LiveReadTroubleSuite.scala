package statemark.spark.live

import java.util.concurrent.atomic.AtomicInteger
import java.util.UUID
import org.apache.spark.sql.execution.streaming.state.{ActiveQuery, StateStore}
import org.apache.spark.sql.functions.{col, udf}
import org.apache.spark.TaskContext
import org.scalatest.funsuite.AnyFunSuite
import scala.collection.mutable
import scala.concurrent.{Await, Future}
import scala.concurrent.duration.Duration
import scala.concurrent.ExecutionContext.Implicits.global
import scala.util.{Failure, Random, Success, Try}
import statemark.common.{Causes, Clock, InvalidInputException, ViewClosedException}
import statemark.IsolationLevel
import statemark.spark.OneSession
import statemark.spark.errors.{
  FormatRefusedException,
  PositionBoundException,
  StoreMovedException,
  VersionGoneException
}

/** Reads of a query in trouble: each is a committed batch, or fails by name. */
class LiveReadTroubleSuite extends AnyFunSuite with OneSession with Banks {
  override protected def master: String = "local[2, 4]"

  /** Reads on and on while `trouble` comes to the bank, after its first batch, and once at the end.
    * @param trouble has one more batch go through
    * @return what reads saw, one after the other, and how often each failure came
    */
  private def readingThrough(bank: Bank, times: Int)(
      trouble: Bank => Unit
  ): (Seq[Long], Map[String, Int]) = {
    bank.batch()
    val seen = mutable.Buffer.empty[Long]
    val failures = mutable.Map.empty[String, Int].withDefaultValue(0)
    @volatile var isOver = false
    val reader = Future {
      while (!isOver || seen.isEmpty) Try(moves(bank.name)) match {
        case Success(moved) => seen += moved
        case Failure(e) => failures(LiveReadTroubleSuite.named(e)) += 1
      }
    }
    try (1 to times).foreach(_ => trouble(bank))
    finally isOver = true
    Await.result(reader, Duration.Inf)
    assert(seen == seen.sorted, "a batch that was seen is gone")
    info(s"${seen.length} reads of ${seen.distinct.length} batches, failures: ${failures.toMap}")
    assert(moves(bank.name) == (times + 1) * 2 * accounts)
    (seen.toSeq, failures.toMap)
  }

  test("a read that waits for a batch ends when its thread is interrupted") {
    var polls = 0
    val query = ActiveQuery(
      UUID.randomUUID(),
      UUID.randomUUID(),
      name = None,
      checkpoint = "",
      stateRoot = "",
      isActive = () => true,
      lastCommitted = { () =>
        polls += 1
        Option.when(polls > 1000)(0L) // it does not wait between polls
      },
      placesByWholeKey = () => true,
      endsOf = _ => None,
      running = () => None,
      sources = () => None,
      unnamedPartitions = _ => None,
      idsOf = (_, _) => None
    )
    val queries = new LiveQueries(spark, Clock.system)
    Thread.currentThread.interrupt()
    try
      intercept[InterruptedException](
        queries.pin(query, bound = None, IsolationLevel.ReadCommitted, timeoutMs = 600000)
      )
    finally Thread.interrupted(): Unit
    assert(polls == 1)
  }

  test("a location that Spark's format would look for elsewhere is refused by name") {
    for (plain <- Seq("/data/cp", "file:/data/cp", "s3a://bucket/a-b_c.d/cp"))
      LiveOptions.requirePlain(plain)
    for (place <- Seq("/data/my cp", "file:/data/100%/cp", "s3a://bucket/a b/cp")) {
      val refused = intercept[InvalidInputException](LiveOptions.requirePlain(place)).getMessage
      assert(
        refused.contains(s"'$place'") && refused.contains("Stop the query, move the directory")
      )
    }
  }

  for (format <- readableFormats) {
    test(s"tasks that fail after they have written, and are tried again (v$format)") {
      LiveReadTroubleSuite.failed.set(0)
      val fails = udf(LiveReadTroubleSuite.failsAtFirst(_: Long)).asNondeterministic()
      val bank = new Bank(s"aborts$format", format, _.where(fails(col("balance"))))
      val (seen, failures) = readingThrough(bank, times = 20)(_.batch())
      assert(LiveReadTroubleSuite.failed.get > 5 && seen.distinct.length > 5 && failures.isEmpty)
    }

    test(s"stores that are unloaded while they are read (v$format)") {
      val (seen, _) = readingThrough(new Bank(s"unloads$format", format), times = 15) { bank =>
        bank.batch()
        StateStore.stop()
      }
      // When it ended they were open nowhere: the checkpoint had them.
      assert(seen.distinct.length > 2)
    }

    test(s"a query that stops and starts again (v$format)") {
      val bank = new Bank(s"stops$format", format)
      readingThrough(bank, times = 8) { bank =>
        bank.restart()
        bank.batch()
      }
      bank.query.stop()
      intercept[FormatRefusedException](moves(bank.name))
    }
  }
}

private object LiveReadTroubleSuite {
  val failed = new AtomicInteger
  private val random = new Random(6)

  /** Now and then fails the first attempt at a task. */
  def failsAtFirst(value: Long): Boolean = {
    if (TaskContext.get().attemptNumber() == 0 && random.nextInt(40) == 0) {
      failed.incrementAndGet()
      throw new IllegalStateException(s"an attempt that a test lets fail, at $value")
    }
    true
  }

  /** The name of a failure that a read may end with; others are failures of the test. */
  def named(failure: Throwable): String =
    Causes.of(failure).collectFirst {
      case e @ (_: VersionGoneException | _: StoreMovedException | _: ViewClosedException |
          _: PositionBoundException | _: InvalidInputException) => e.getClass.getSimpleName
    }.getOrElse(throw failure)
}
