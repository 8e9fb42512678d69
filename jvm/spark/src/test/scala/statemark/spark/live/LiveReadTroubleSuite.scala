package statemark.spark.live

import java.util.concurrent.atomic.AtomicInteger
import org.apache.spark.TaskContext
import org.apache.spark.sql.execution.streaming.state.StateStore
import org.apache.spark.sql.functions.{col, udf}
import org.scalatest.funsuite.AnyFunSuite
import scala.collection.mutable
import scala.concurrent.{Await, Future}
import scala.concurrent.ExecutionContext.Implicits.global
import scala.concurrent.duration.Duration
import scala.util.{Failure, Random, Success, Try}
import statemark.common.{InvalidInputException, ViewClosedException}
import statemark.spark.OneSession

/** Reads of a query in trouble: each is a committed batch, or fails by name. */
class LiveReadTroubleSuite extends AnyFunSuite with OneSession with Banks {
  override protected def master: String = "local[2, 4]"

  /** What reads saw, one after the other until `body` has ended, and how often each failure came. */
  private def readingDuring(name: String)(body: => Unit): (Seq[Long], Map[String, Int]) = {
    val seen = mutable.Buffer.empty[Long]
    val failures = mutable.Map.empty[String, Int].withDefaultValue(0)
    @volatile var isOver = false
    val reader = Future {
      while (!isOver || seen.isEmpty) Try(moves(name)) match {
        case Success(moved) => seen += moved
        case Failure(e) => failures(LiveReadTroubleSuite.named(e)) += 1
      }
    }
    try body
    finally isOver = true
    Await.result(reader, Duration.Inf)
    assert(seen == seen.sorted, "a batch that was seen is gone")
    info(s"${seen.length} reads of ${seen.distinct.length} batches, failures: ${failures.toMap}")
    (seen.toSeq, failures.toMap)
  }

  for (format <- Seq("1", "2")) {
    test(s"tasks that fail after they have written, and are tried again (v$format)") {
      LiveReadTroubleSuite.failed.set(0)
      val fails = udf(LiveReadTroubleSuite.failsAtFirst(_: Long)).asNondeterministic()
      val bank = new Bank(s"aborts$format", format, _.where(fails(col("balance"))))
      bank.batch()
      val (seen, failures) = readingDuring(s"aborts$format")((1 to 20).foreach(_ => bank.batch()))
      assert(LiveReadTroubleSuite.failed.get > 5 && seen.distinct.length > 5 && failures.isEmpty)
      assert(moves(s"aborts$format") == 21 * 2 * accounts)
    }

    test(s"stores that are unloaded while they are read (v$format)") {
      val bank = new Bank(s"unloads$format", format)
      bank.batch()
      val (seen, _) = readingDuring(s"unloads$format")((1 to 15).foreach { _ =>
        bank.batch()
        StateStore.stop()
      })
      assert(seen.distinct.length > 2)
      // Open nowhere: the checkpoint has it.
      assert(moves(s"unloads$format") == 16 * 2 * accounts)
    }

    test(s"a query that stops and starts again (v$format)") {
      val bank = new Bank(s"stops$format", format)
      bank.batch()
      val (seen, _) = readingDuring(s"stops$format")((1 to 8).foreach { _ =>
        bank.restart()
        bank.batch()
      })
      assert(seen.nonEmpty)
      assert(moves(s"stops$format") == 9 * 2 * accounts)
      bank.query.stop()
      intercept[InvalidInputException](moves(s"stops$format"))
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
    Iterator.iterate(failure)(_.getCause).takeWhile(_ != null).collectFirst {
      case e @ (_: VersionGoneException | _: StoreMovedException | _: ViewClosedException |
          _: PositionBoundException | _: InvalidInputException) => e.getClass.getSimpleName
    }.getOrElse(throw failure)
}
