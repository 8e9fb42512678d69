package statemark.spark

import java.nio.file.Files
import org.scalatest.funsuite.AnyFunSuite
import statemark.common.Clock
import statemark.spark.local.LocalDirectory
import statemark.spark.offline.cli.{CommandContext, ExitCode}
import statemark.spark.offline.{CommandLine, RecordingConsole}
import statemark.spark.offline.repartition.RepartitionCommand

/** What people do to checkpoints by hand, or with tools, while local state of before lies there: it is used only
  * where it still belongs to the history.
  */
class RewrittenHistorySuite extends AnyFunSuite with FileQueries {
  for (format <- Seq("1", "2")) {
    val settings = Map(s"$stateStore.checkpointFormatVersion" -> format)

    test(s"offsets and commits are rolled back by hand (format v$format)") {
      run(6, settings): Unit
      rollBack(toBatch = 2)
      // Batch 3 has other files than before.
      assert(served(run(2, settings)) ==
        Map(fromCheckpoint, each("statemarkDistrustAheadCount")))
      assert(served(run(1, settings)) == Map(fromLocal))
    }

    test(
      s"rolled back and written anew on another disk, to the version that lies here (format v$format)"
    ) {
      run(6, settings): Unit
      onAnotherDisk {
        rollBack(toBatch = 2)
        // One batch for what was there before, two more to the version of before.
        assert(served(run(3, settings)) == Map(fromCheckpoint))
      }
      assert(newestBatch == 5)
      assert(served(run(1, settings)) ==
        Map(fromCheckpoint, each("statemarkDistrustOtherHistoryCount")))
    }

    test(s"deleted and made again at the same path (format v$format)") {
      run(3, settings): Unit
      LocalDirectory.deleteTree(checkpoint.toFile)
      clearInput()
      assert(served(run(2, settings)) == Map(fromNothing))
      assert(served(run(1, settings)) == Map(fromLocal))
    }

    test(s"deleted but for its id, and made again on another disk (format v$format)") {
      run(3, settings): Unit
      val id = Files.readAllBytes(checkpoint.resolve("metadata"))
      LocalDirectory.deleteTree(checkpoint.toFile)
      Files.createDirectories(checkpoint)
      Files.write(checkpoint.resolve("metadata"), id)
      clearInput()
      onAnotherDisk {
        assert(served(run(3, settings)) == Map(fromNothing))
      }
      assert(served(run(1, settings)) ==
        Map(fromCheckpoint, each("statemarkDistrustOtherHistoryCount")))
    }

    if (Line.hasStoreOf42) {
      test(s"moved onto another number of partitions (format v$format)") {
        run(3, settings): Unit
        repartition(3)
        assert(served(run(1, settings)) ==
          Map(s"${loads}CheckpointCount" -> 3L, each("statemarkDistrustOtherStoreCount")))
      }

      test(s"moved onto another number and back, local state of before there (format v$format)") {
        run(3, settings): Unit
        onAnotherDisk {
          repartition(3)
          run(1, settings): Unit
          repartition(2)
        }
        val first = served(run(1, settings))
        assert(first.get(fromLocal._1).isEmpty && first(fromCheckpoint._1) == partitions)
        assert(first.keys.exists(_.startsWith("statemarkDistrust")))
        assert(served(run(1, settings)) == Map(fromLocal))
      }
    }
  }

  // ---- helpers

  private def newestBatch: Long = entries("commits").flatMap(batchOf).max

  private def repartition(partitions: Int): Unit = {
    val words = Seq(checkpoint.toString, "--partitions", partitions.toString, "--observe", "0")
    val context = new CommandContext(spark, new RecordingConsole, Clock.system, _ => ())
    assert(CommandLine.run(RepartitionCommand, words, context) == ExitCode.Ok)
  }
}
