package statemark.spark

import java.nio.file.{Files, StandardCopyOption}
import org.apache.spark.sql.execution.streaming.state.StateStore
import org.scalatest.funsuite.AnyFunSuite
import statemark.spark.conf.StoreSettings
import statemark.spark.local.LocalDirectory

/** Two runs of one query: the first has its stores open still when the query is rolled back by hand and another process
  * commits other rows for the same batches. What the first one leaves is of a history that is gone (I6).
  *
  * The other process is a run on a copy of the checkpoint, which takes the place of the checkpoint.
  */
class OpenRunSuite extends AnyFunSuite with FileQueries {
  private val localDir = s"${StoreSettings.Prefix}localDir"
  private val FilesOfTest = 7

  /** All keys come with the first file, four with each of the others: a replay does not write over what is wrong. */
  override protected def rowsOf(file: Int): Seq[Int] =
    if (file % FilesOfTest == 0) 0 until 64 else (0 until 4).map(i => (file * 4 + i) % 64)

  for (format <- Seq("1", "2"); (how, end) <- Seq("is closed" -> true, "is copied" -> false))
    test(s"another process replaces two batches, then the store of the first run $how (v$format)") {
      val settings = Map(s"$stateStore.checkpointFormatVersion" -> format)
      run(4, settings, leavesOpen = true): Unit
      val others = directory.resolve("others")
      LocalStores.copyTree(checkpoint, others, StandardCopyOption.COPY_ATTRIBUTES)
      rollBack(toBatch = 1, of = others)
      val elsewhere = settings + (localDir -> directory.resolve("elsewhere").toString)
      run(1, elsewhere, at = others, leavesOpen = true): Unit
      run(1, elsewhere, at = others, leavesOpen = true): Unit
      LocalDirectory.deleteTree(checkpoint.toFile)
      Files.move(others, checkpoint)
      if (end) StateStore.stop()
      // Checks the answer.
      val next = run(1, settings)
      assert(served(next).contains(fromCheckpoint._1))
    }
}
