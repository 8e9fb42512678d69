package statemark.spark

import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.Files
import java.util.UUID
import org.scalatest.funsuite.AnyFunSuite
import statemark.common.RejectReason
import statemark.spark.load.CheckpointMark
import statemark.spark.local.LoadSource
import statemark.spark.process.{JvmState, TaskInfo}
import statemark.testkit.FileCounts

/** The mark of a checkpoint, as stores read it. */
class CheckpointMarkSuite extends AnyFunSuite with LocalStores {

  for ((format, extra) <- Seq("v1" -> Map.empty[String, String], "v2" -> Providers.v2)) {
    test(s"a home is used under the mark that it was made under, and no other ($format)") {
      val first = UUID.randomUUID()
      mark(CheckpointMark.encode(first))
      val ids = write(3, extra)
      val under = open(extra)
      check(under, 3, ids, expected(3))
      assertLoad(under, LoadSource.Local)
      under.close()
      mark(CheckpointMark.encode(UUID.randomUUID()))
      val after = open(extra)
      check(after, 3, ids, expected(3))
      assertLoad(after, LoadSource.Checkpoint, RejectReason.OtherHistory)
      after.close()
      mark(CheckpointMark.encode(first))
      val again = open(extra)
      check(again, 3, ids, expected(3))
      assertLoad(again, LoadSource.Local)
      again.close()
      Files.delete(markFile)
      val without = open(extra)
      check(without, 3, ids, expected(3))
      assertLoad(without, LoadSource.Checkpoint, RejectReason.OtherHistory)
    }

    test(s"a mark that cannot be read refuses homes, and nothing fails ($format)") {
      for (bytes <- Seq("", "v1\n", "v9\n0a1b\n", "v1\na\nb\n")) withClue(s"'$bytes': ") {
        mark(bytes.getBytes(UTF_8))
        val ids = write(3, extra)
        // Stores that were made meanwhile are refused later, too: nobody knows what they were made under.
        for (_ <- 1 to 2) {
          val after = open(extra)
          check(after, 3, ids, expected(3))
          assertLoad(after, LoadSource.Checkpoint, RejectReason.OtherHistory)
          after.close()
        }
        statemark.spark.local.LocalDirectory.deleteTree(local.toFile)
        statemark.spark.local.LocalDirectory.deleteTree(storeDir.toFile)
      }
    }
  }

  test("all stores of a run ask once, no batch does, and no reader") {
    val own = s"counting://$queryDir/_statemark"
    def requests = FileCounts.opens(own) + FileCounts.statuses(own) + FileCounts.lists(own)
    FileCounts.reset()
    val run = UUID.randomUUID()
    val provider = open(runId = run)
    val ids = commits(provider, 0 until 4)
    assert(requests == 1)
    check(open(runId = run), 4, ids, expected(4))
    assert(requests == 1)
    JvmState.runningTask.set(() => TaskInfo.none)
    check(open(), 4, ids, expected(4))
    assert(requests == 1)
    JvmState.runningTask.set(() => query)
    check(open(), 4, ids, expected(4))
    assert(requests == 2)
  }

  // ---- helpers

  private def markFile = queryDir.resolve("_statemark/mark")

  private def mark(bytes: Array[Byte]): Unit = {
    Files.createDirectories(markFile.getParent)
    Files.write(markFile, bytes): Unit
  }
}
