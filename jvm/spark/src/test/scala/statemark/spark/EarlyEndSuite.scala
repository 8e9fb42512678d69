package statemark.spark

import java.nio.file.Files
import java.util.concurrent.locks.LockSupport
import org.apache.spark.sql.execution.streaming.state.StateStore
import org.scalatest.funsuite.AnyFunSuite

/** Queries that end before maintenance comes to them, with Spark's default settings. */
class EarlyEndSuite extends AnyFunSuite with FileQueries {
  private val deadlineNanos = 60000000000L

  for (format <- Seq("1", "2"))
    test(
      s"seven runs of one batch leave six snapshots, from which Spark's provider goes on (format v$format)"
    ) {
      val settings = Map(
        s"$stateStore.checkpointFormatVersion" -> format,
        s"$stateStore.rocksdb.changelogCheckpointing.enabled" -> "true"
      )
      for (run <- 0 until 7) {
        val first = this.run(1, settings, leavesOpen = true)
        assert(figures(first.head)("statemarkReplayedChangelogCount") <= partitions)
        awaitSnapshots(run)
        StateStore.stop()
      }
      sparksOwn()
      run(2, settings + (s"$stateStore.providerClass" -> Providers.sparksOwn)): Unit
    }

  /** Waits until each store has so many snapshots. */
  private def awaitSnapshots(wanted: Int): Unit = {
    val begin = System.nanoTime()
    def found = (0 until partitions).map { p =>
      checkpoint.resolve(s"state/0/$p").toFile.list.count(n =>
        n.endsWith(".zip") && !n.startsWith(".")
      )
    }
    while (found.exists(_ < wanted) && System.nanoTime() - begin < deadlineNanos)
      LockSupport.parkNanos(5000000L)
    assert(found.forall(_ == wanted), found.mkString(" "))
  }

  /** Pins Spark's provider, as `statemark switch` does. */
  private def sparksOwn(): Unit =
    for (entry <- entries("offsets")) {
      val name = entry.getFileName.toString
      if (name.endsWith(".crc")) Files.delete(entry)
      else
        Files.writeString(
          entry,
          Files.readString(entry)
            .replace(classOf[StatemarkStateStoreProvider].getName, Providers.sparksOwn)
        ): Unit
    }
}
