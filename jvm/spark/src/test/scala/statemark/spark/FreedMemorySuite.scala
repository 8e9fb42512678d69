package statemark.spark

import java.nio.file.{Files, Path}
import org.apache.spark.sql.execution.streaming.state.RocksDBLoader
import org.rocksdb.Slice
import org.scalatest.funsuite.AnyFunSuite
import scala.collection.mutable
import scala.jdk.CollectionConverters._
import statemark.common.Clock
import statemark.spark.memory.FreedMemory

/** When freed memory is given back, and that it is. */
class FreedMemorySuite extends AnyFunSuite {

  /** What is due, and in how many milliseconds; `trimMs` pass while memory is given back. */
  private final class Due(trimMs: Long, canTrim: Boolean = true) {
    val runs = mutable.Queue.empty[(Long, Runnable)]
    var trims = 0
    private var ms = 0L
    private val clock = new Clock {
      override def nanos(): Long = epochMs() * 1000000
      override def epochMs(): Long = ms
    }
    private def trim(): Boolean = {
      ms += trimMs
      trims += 1
      canTrim
    }
    val memory = new FreedMemory(() => trim(), (in, run) => runs.enqueue(in -> run): Unit, clock)

    def next(): Unit = runs.dequeue()._2.run()
  }

  test("stores that are written together make one request") {
    val due = new Due(trimMs = 1)
    (1 to 200).foreach(_ => due.memory.noted())
    assert(due.runs.map(_._1) == Seq(FreedMemory.LeastDelayMs))
    due.next()
    assert(due.trims == 1 && due.runs.isEmpty)
    due.memory.noted()
    assert(due.runs.size == 1)
  }

  test("where it takes long it comes rarely") {
    val due = new Due(trimMs = 80)
    due.memory.noted()
    due.next()
    due.memory.noted()
    assert(due.runs.map(_._1) == Seq(80 * FreedMemory.DelayPerMs))
  }

  test("where the allocator cannot be asked it is asked once") {
    val due = new Due(trimMs = 1, canTrim = false)
    due.memory.noted()
    due.next()
    due.memory.noted()
    assert(due.trims == 1 && due.runs.isEmpty)
  }

  test("what RocksDB has freed goes back to the system") {
    val status = Path.of("/proc/self/status")
    assume(Files.exists(status), "only Linux tells what a process has in memory")
    def residentKb: Long = Files
      .readAllLines(status)
      .asScala
      .collectFirst { case line if line.startsWith("RssAnon:") => line.filter(_.isDigit).toLong }
      .get
    RocksDBLoader.loadLibrary()
    val slices = Seq.fill(100000)(new Slice(new Array[Byte](1000)))
    slices.init.foreach(_.close()) // the last one is what keeps the others' memory with the process
    val before = residentKb
    assume(FreedMemory.trimByJvm(), "this JVM has no such command")
    assert(residentKb < before - 50 * 1024)
    slices.last.close()
  }
}
