package statemark.spark.offline

import java.nio.file.{Files, Path}
import org.apache.spark.sql.streaming.StreamingQueryException
import org.scalatest.funsuite.AnyFunSuite
import scala.jdk.CollectionConverters._
import statemark.common.InvalidInputException
import statemark.spark.conf.ProviderClass
import statemark.spark.offline.repartition.RepartitionResult

/** What a repartition refuses, and what is left of one that dies. */
class RepartitionProtocolSuite extends AnyFunSuite with RepartitionedQueries {
  import RepartitionResult._

  private val chain = StatefulQueries.all.find(_.name.startsWith("a join, then")).get
  private val first = StatefulQueries.batches.take(1)
  private val second = StatefulQueries.batches.slice(1, 3)
  private val third = StatefulQueries.batches.drop(3)

  private object Killed extends RuntimeException("killed")

  private def settings(format: Int) = Map(
    s"${prefix}providerClass" -> statemark,
    s"${prefix}checkpointFormatVersion" -> format.toString
  ) ++ chain.settings

  private def onCheckpoint(format: Int)(body: Running => Unit): Unit =
    withSettings(settings(format)) {
      val running = new Running(chain)
      running.process(first)
      body(running)
    }

  private lazy val expected =
    withSettings(chain.settings + (s"${prefix}providerClass" -> ProviderClass.RocksDb.className)) {
      val control = new Running(chain)
      Seq(first, second, third).map(control.process)
    }

  private def filesOf(checkpoint: Path): Set[String] = {
    val walk = Files.walk(checkpoint)
    try walk.iterator.asScala.filter(Files.isRegularFile(_)).map(checkpoint.relativize(_).toString)
        .filterNot(_.split('/').last.startsWith(".")).toSet
    finally walk.close()
  }

  /** Every moment between the entries of the two logs at which the driver may die. */
  private def dieAt(running: Running, event: Int, to: Int): Unit = {
    var left = event
    intercept[Killed.type] {
      running.repartition { _ =>
        if (left == 0) throw Killed
        left -= 1
      }.run(to)
    }: Unit
  }

  /** Each batch is planned and committed. */
  private def assertEven(running: Running): Unit = {
    val logs = Seq("offsets", "commits").map { log =>
      filesOf(running.checkpoint.resolve(log)).filter(_.forall(_.isDigit))
    }
    assert(logs.head == logs.last)
  }

  private val moments = Seq("before the first store" -> 0, "among the stores" -> 15)

  // By default each moment in one format.
  for {
    ((moment, event), index) <- moments.zipWithIndex
    format <- if (isWhole) 1 to 2 else Seq(1 + index % 2)
  } {
    test(s"format v$format: what died $moment is finished by the same command") {
      onCheckpoint(format) { running =>
        dieAt(running, event, 6)
        val refused = intercept[StreamingQueryException](running.process(second.take(1)))
        assert(refused.getMessage.toLowerCase.contains("repartition"))
        val error = intercept[InvalidInputException](running.repartition().run(5))
        assert(
          error.getMessage.contains("--partitions 6") && error.getMessage.contains("--rollback")
        )
        assert(running.repartition().run(6).isInstanceOf[Moved])
        // The refused run had added its first batch to the input already.
        val after = running.process(Seq(Nil)) ++ running.process(second.drop(1))
        assert(after == expected(1))
      }
    }

    test(s"format v$format: what died $moment is rolled back without a trace") {
      onCheckpoint(format) { running =>
        val before = filesOf(running.checkpoint)
        val planned = running.repartition().dryRun(6)
        assert(running.repartition().dryRollback() == NothingToRollBack)
        assert(filesOf(running.checkpoint) == before, "a dry run writes nothing")
        dieAt(running, event, 6)
        val begun = filesOf(running.checkpoint)
        assert(begun != before)
        (planned, running.repartition().dryRun(6)) match {
          case (first: WouldMove, second: WouldMove) =>
            assert(!first.isBegun && second == first.copy(isBegun = true) && first.stores > 0)
            assert(running.repartition().dryRollback() == WouldRollBack(first.batch, first.from))
          case other => fail(s"$other")
        }
        assert(filesOf(running.checkpoint) == begun)
        assert(running.repartition().rollback().isInstanceOf[RolledBack])
        val left = filesOf(running.checkpoint).diff(before)
        assert(left.forall(f => f.endsWith(".sst") || f.endsWith(".crc")), left)
        assert(running.repartition().rollback() == NothingToRollBack)
        assert(running.process(second) == expected(1))
        assert(running.repartition().run(3).isInstanceOf[Moved])
        assert(running.process(third) == expected(2))
      }
    }
  }

  // Progress is told before the first store and after each partition, the last time before the commit.
  for ((moment, event) <- moments.drop(1) :+ ("before the commit" -> -1))
    test(s"rolled back $moment by another command: it refuses, and the query goes on") {
      onCheckpoint(if (event < 0) 2 else 1) { running =>
        var seen = 0
        var isRolledBack = false
        val error = intercept[InvalidInputException] {
          running.repartition { at =>
            val isMoment =
              if (event >= 0) seen == event
              else at.storesDone == at.stores
            seen += 1
            if (isMoment && !isRolledBack) {
              isRolledBack = true
              assert(running.repartition().rollback().isInstanceOf[RolledBack])
            }
          }.run(6)
        }
        assert(isRolledBack && error.getMessage.contains("another command"))
        assertEven(running)
        assert(running.process(second) == expected(1))
        assert(running.repartition().run(3).isInstanceOf[Moved])
        assert(running.process(third) == expected(2))
      }
    }

  test("the number that the query has changes nothing") {
    onCheckpoint(1) { running =>
      val before = filesOf(running.checkpoint)
      assert(running.repartition().run(partitions) == Unchanged(partitions))
      assert(running.repartition().rollback() == NothingToRollBack)
      assert(filesOf(running.checkpoint) == before)
    }
  }

  test("a batch that was not committed is refused, and given up where the caller says so") {
    for (format <- 1 to 2) onCheckpoint(format) { running =>
      running.process(second)
      val commits = running.checkpoint.resolve("commits")
      val last = filesOf(commits).map(_.toLong).max
      Files.delete(commits.resolve(last.toString))
      Files.deleteIfExists(commits.resolve(s".$last.crc"))
      val error = intercept[InvalidInputException](running.repartition().run(6))
      assert(
        error.getMessage.contains(s"batch $last") && error.getMessage.contains("--skip-uncommitted")
      )
      intercept[Killed.type](
        running.repartition(_ => throw Killed).run(6, skipUncommitted = true)
      )
      val moved = running.repartition().run(6)
      assert(moved.asInstanceOf[Moved].batch == last)
      assert(running.process(third).last == expected(2).last)
    }
  }

  test("numbers below 1 and other providers are refused by name") {
    onCheckpoint(1) { running =>
      for (wrong <- Seq(0, -3))
        assert(intercept[InvalidInputException](
          running.repartition().run(wrong)
        ).getMessage.contains(s"$wrong"))
    }
    val hdfs = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
    withSettings(Map(s"${prefix}providerClass" -> hdfs)) {
      val running = new Running(StatefulQueries.all.head)
      running.process(first)
      assert(
        intercept[InvalidInputException](running.repartition().run(3)).getMessage.contains(hdfs)
      )
    }
  }
}
