package statemark.spark

import java.nio.file.Files
import java.util.UUID
import org.scalatest.funsuite.AnyFunSuite
import statemark.spark.checkpoint.CheckpointFormat
import statemark.testkit.{FileCounts, FileEvent}

/** What the driver remembers of the runs that it has looked at; what it refuses is in `ExtensionsSuite`. */
class CheckpointFormatSuite extends AnyFunSuite with Providers {
  private def looksOf(run: UUID): Long = {
    FileCounts.reset()
    CheckpointFormat.check(run, location, operator = 0, usesIds = false, Providers.hadoopConf(run))
    FileEvent.kinds.map(kind => FileCounts.count(kind.name, location.stripSuffix("state"))).sum
  }

  test("a run is looked at once, and forgotten when many have come after it") {
    Files.createDirectories(queryDir.resolve("commits"))
    val run = UUID.randomUUID()
    assert(looksOf(run) > 0)
    assert(looksOf(run) == 0)
    for (_ <- 0 until 300) looksOf(UUID.randomUUID()): Unit
    assert(looksOf(run) > 0)
    assert(looksOf(run) == 0)
  }
}
