package statemark.spark

import java.nio.file.{Files, Path}
import org.scalatest.funsuite.AnyFunSuite
import statemark.spark.local.DiskUse

/** Goal: what the collector and `statemark local` say that homes take is what the disk says (docs/adr/0023). Method: `du`
  * is asked about stores that are open, closed, and linked to each other.
  */
class AllocatedBytesSuite extends AnyFunSuite with LocalStores {
  private val BlockBytes = 4096L

  test(
    "an open store, and one that was closed: never less than the disk says, and at most a block for each file more"
  ) {
    val provider = open()
    commits(provider, 0 until 8): Unit
    awaitFlush(provider)
    assertAsOnDisk()
    closeAll()
    assertAsOnDisk()
  }

  test("files that two homes share count once") {
    val first = open()
    commits(first, 0 until 8): Unit
    awaitFlush(first)
    val ids = Vector.fill(9)(Option.empty[String])
    val second = open()
    check(second, 8, ids, expected(8)) // from hard links of the open one
    val shared = homes.flatMap(home => sstFiles(home.resolve("base")))
      .groupBy(file => Files.getAttribute(file, "unix:ino")).values.filter(_.length > 1)
    assert(homes.length == 2 && shared.nonEmpty)
    assertAsOnDisk()
  }

  private def assertAsOnDisk(): Unit = {
    val (ours, disk) = (DiskUse.of(local.toFile).bytes, allocated(local))
    val walk = Files.walk(local)
    val files =
      try walk.count()
      finally walk.close()
    assert(disk <= ours && ours <= disk + files * BlockBytes)
  }

  private def allocated(directory: Path): Long = {
    val du = new ProcessBuilder("du", "-s", "-B1", directory.toString).start()
    du.inputReader.readLine().split('\t').head.toLong
  }
}
