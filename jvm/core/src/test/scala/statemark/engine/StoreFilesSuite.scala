package statemark.engine

import java.io.File
import java.nio.file.{Files, Path}
import org.scalatest.funsuite.AnyFunSuite
import scala.jdk.CollectionConverters._
import scala.util.Try
import statemark.{TestStores, TransactionalStore}

/** Goal: a store that is open, or whose process was killed, takes hardly more disk and file handles than its content needs
  * (docs/adr/0023). Method: the system is asked for the blocks of each file, and for the files that this process has
  * open.
  */
class StoreFilesSuite extends AnyFunSuite with TestStores {
  private val BlockBytes = 4096L
  private val Flushes = 3

  test("no file of an open store has more blocks than its content fills") {
    flushed("store"): Unit
    val files = new File(root, "store").listFiles.filter(_.isFile)
    assert(files.exists(_.getName.startsWith("MANIFEST-")) && files.exists(isTable))
    for (file <- files)
      assert(allocated(file) <= (file.length / BlockBytes + 1) * BlockBytes, file.getName)
  }

  test("nor has one of a scratch store") {
    val scratch = new ScratchStore(new File(root, "scratch"), options)
    try {
      scratch.write(_.put(Array[Byte](1), Array[Byte](2)))
      scratch.flush()
      val bytes = new File(root, "scratch").listFiles.map(allocated).sum
      assert(bytes <= 64 * 1024, "a few small files")
    } finally scratch.close()
  }

  test("the file handles of an open store, by name") {
    flushed("store"): Unit
    val (tables, others) = open(new File(root, "store")).partition(_.endsWith(".sst"))
    val names =
      others.map(_.replaceAll("\\d{6}", "N")).groupBy(identity).map(n => n._1 -> n._2.length)
    // The write-ahead log is empty, and RocksDB has it open all the same.
    assert(names == Map("" -> 3, "/LOCK" -> 1, "/LOG" -> 1, "/MANIFEST-N" -> 1, "/N.log" -> 1))
    assert(tables.length == 2 * Flushes, "one of the rows and one of the offsets")
  }

  private def flushed(name: String): TransactionalStore = {
    val store = newStore(name)
    for (i <- 1 to Flushes) {
      commit(store)(_.put(Array[Byte](i.toByte), Array[Byte](1))): Unit
      store.confirm()
      store.flush()
    }
    store
  }

  private def isTable(file: File): Boolean = file.getName.endsWith(".sst")

  private def allocated(file: File): Long = {
    val stat = new ProcessBuilder("stat", "-c", "%b %B", file.getPath).start()
    val Array(blocks, bytes) = stat.inputReader.readLine().split(' ').map(_.toLong): @unchecked
    blocks * bytes
  }

  /** The paths below a directory that this process has open. */
  private def open(directory: File): Seq[String] = {
    val list = Files.list(Path.of("/proc/self/fd"))
    try list.iterator.asScala.flatMap(fd => Try(Files.readSymbolicLink(fd).toString).toOption)
        .filter(_.startsWith(directory.getCanonicalPath))
        .map(_.stripPrefix(directory.getCanonicalPath)).toVector
    finally list.close()
  }
}
