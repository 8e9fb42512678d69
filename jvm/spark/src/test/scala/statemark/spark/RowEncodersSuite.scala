package statemark.spark

import java.util.UUID
import org.scalatest.funsuite.AnyFunSuite

/** Rows that a provider hands out are its own. */
class RowEncodersSuite extends AnyFunSuite with Providers {
  test(
    "rows that a task holds stay when a live read of its run decodes others, and the other way"
  ) {
    val runId = UUID.randomUUID()
    val owner = open(runId = runId)
    commit(owner, 0, Map("a" -> 1, "b" -> 2)): Unit
    val writing = owner.getStore(1)
    val reading = open(runId = runId).getReadStore(1)
    try {
      val ofTask = writing.get(Providers.key("a"), "default")
      val ofRead = reading.get(Providers.key("b"), "default")
      assert((ofTask.getInt(0), ofRead.getInt(0)) == ((1, 2)))

      val scans = Seq(writing, reading).map(_.iterator("default"))
      try {
        val firstOfTask = scans(0).next().key
        scans(1).next(): Unit
        scans(1).next(): Unit
        assert(firstOfTask == Providers.key("a"))
      } finally scans.foreach(_.close())
    } finally {
      Line.release(reading)
      writing.abort()
    }
  }
}
