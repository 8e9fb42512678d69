package statemark.spark

import org.scalatest.funsuite.AnyFunSuite
import statemark.spark.local.LocalDirectory

/** A query that runs now and then, each time on a machine that has nothing of it. */
class FreshDiskSuite extends AnyFunSuite with FileQueries {
  for (format <- Seq("1", "2"))
    test(s"Trigger.AvailableNow 20 times, each on a fresh local directory (format v$format)") {
      val settings = Map(
        s"$stateStore.checkpointFormatVersion" -> format,
        s"$stateStore.minDeltasForSnapshot" -> "3"
      )
      assert(served(run(1, settings)) == Map(fromNothing))
      for (_ <- 1 until 20) {
        LocalDirectory.deleteTree(local.toFile)
        assert(served(run(2, settings)) == Map(fromCheckpoint))
      }
    }
}
