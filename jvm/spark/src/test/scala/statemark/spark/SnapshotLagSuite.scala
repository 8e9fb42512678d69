package statemark.spark

import org.scalatest.funsuite.AnyFunSuite

/** Spark's coordinator takes a store that reports no snapshot for one whose last snapshot is version 0, and from
  * version 50 on has it write one in its next commit.
  */
class SnapshotLagSuite extends AnyFunSuite with FileQueries {
  if (Line.hasStoreOf42) for (format <- Seq("1", "2"))
    test(s"a restart from local state beyond version 50 has no snapshot forced (format v$format)") {
      val settings = Map(
        s"$stateStore.checkpointFormatVersion" -> format,
        s"$stateStore.coordinatorReportSnapshotUploadLag" -> "true",
        s"$stateStore.forceSnapshotUploadOnLag" -> "true",
        // Snapshots are those that are forced.
        s"$stateStore.maintenanceInterval" -> "1h"
      )
      val first = run(56, settings)
      assert(first.map(forced).sum > 0)
      val second = run(4, settings)
      assert(served(second) == Map(fromLocal))
      assert(second.map(forced) == Seq(0, 0, 0, 0))
    }

  private def forced(progress: org.apache.spark.sql.streaming.StreamingQueryProgress): Long =
    figures(progress).getOrElse("rocksdbForceSnapshotCount", 0L)
}
