package statemark.spark.offline

import java.nio.file.Path
import org.scalatest.funsuite.AnyFunSuite
import statemark.common.Clock
import statemark.spark.{FileQueries, LocalStores}
import statemark.spark.conf.ProviderClass
import statemark.spark.offline.cli.{CommandContext, ExitCode}
import statemark.spark.offline.switching.SwitchCommand

/** I6: a home that is older than a switch of providers is not used after it, whatever else proves it, as Spark's provider
  * leaves files of a history that was taken back beside its own.
  */
class SwitchedHomesSuite extends AnyFunSuite with FileQueries {
  import ProviderClass.{RocksDb, Statemark}

  for (format <- Seq("1", "2")) {
    val settings = Map(s"$stateStore.checkpointFormatVersion" -> format)

    for (leavesOpen <- Seq(false, true))
      test(
        s"rolled back by hand, run on Spark's provider to the version of before, and back (format v$format, " +
          s"${if (leavesOpen) "in one process" else "homes on disk"})"
      ) {
        run(6, settings, leavesOpen = leavesOpen): Unit
        rollBack(toBatch = 2)
        switch(RocksDb)
        run(3, settings): Unit
        assert(entries("commits").flatMap(batchOf).max == 5)
        switch(Statemark)
        assert(served(run(1, settings)) == refusedAll)
        assert(served(run(1, settings)) == Map(fromLocal))
      }

    test(s"there and back at once (format v$format)") {
      run(3, settings): Unit
      switch(RocksDb)
      switch(Statemark)
      assert(served(run(1, settings)) == refusedAll)
      assert(served(run(1, settings)) == Map(fromLocal))
    }

    test(s"there and back on another machine (format v$format)") {
      run(3, settings): Unit
      onAnotherDisk {
        switch(RocksDb)
        run(1, settings): Unit
        switch(Statemark)
        assert(served(run(1, settings)) == Map(fromCheckpoint))
      }
      assert(served(run(1, settings)) == refusedAll)
    }

    test(s"of a copy of the checkpoint, each is switched for itself (format v$format)") {
      run(3, settings): Unit
      val copy = directory.resolve("copy")
      LocalStores.copyTree(checkpoint, copy)
      switch(RocksDb, copy)
      switch(Statemark, copy)
      assert(served(run(1, settings, at = copy)) == refusedAll)
      // The copy's homes lie where those of the original would.
      assert(served(run(1, settings)) == refusedAll)
      switch(RocksDb)
      switch(Statemark)
      assert(served(run(1, settings)) == refusedAll)
      assert(served(run(1, settings, at = copy)) == refusedAll)
      assert(served(run(1, settings, at = copy)) == Map(fromLocal))
    }
  }

  // ---- helpers

  private def refusedAll: Map[String, Long] =
    Map(fromCheckpoint, each("statemarkDistrustOtherHistoryCount"))

  private def switch(to: ProviderClass, at: Path = checkpoint): Unit = {
    val words = Seq(at.toString, "--to", to.shortName, "--observe", "0")
    val context = new CommandContext(spark, new RecordingConsole, Clock.system, _ => ())
    assert(CommandLine.run(SwitchCommand, words, context) == ExitCode.Ok)
  }
}
