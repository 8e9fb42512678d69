package statemark

import java.io.{File, InterruptedIOException}
import java.net.SocketTimeoutException
import java.nio.channels.ClosedByInterruptException
import java.util.concurrent.{CompletableFuture, FutureTask}
import org.scalatest.funsuite.AnyFunSuite
import statemark.common._
import statemark.engine._
import statemark.transaction._

/** Goal: an interrupt, by which Spark kills tasks, is neither damage nor a full disk, and does not cut patience short.
  * Method: the thread is interrupted before each call that comes to the local disk.
  */
class InterruptSuite extends AnyFunSuite with TestStores {

  /** Runs `body` on an interrupted thread, which it must leave so. */
  private def interrupted[A](body: => A): A = {
    Thread.currentThread.interrupt()
    try {
      val result = body
      assert(Thread.currentThread.isInterrupted, "the interrupt is lost")
      result
    } finally Thread.interrupted(): Unit
  }

  private def limited = Some(UncommittedLimit(new UncommittedMemory, 4096))

  private def filled(t: Transaction): Unit =
    (0 until 500).foreach(i => t.put(bytes(f"k$i%03d"), bytes(s"v$i")))

  private val allRows = (0 until 500).map(i => f"k$i%03d" -> s"v$i")

  test("a task is killed while it confirms a version on disk") {
    val store = newStore(limit = limited)
    commit(store)(filled): Unit
    assert(store.prepared.get.file.isDefined)
    interrupted(store.confirm())
    assert(store.base.version == 1 && store.flushed == 1)
    assert(baseRows(store) == allRows)
  }

  test("a task is killed while it spills its writes, and while it writes the version out") {
    val store = newStore(limit = limited)
    val transaction = begin(store)
    interrupted(filled(transaction))
    assert(transaction.spills > 0)
    interrupted(store.commit(transaction))
    assert(store.prepared.get.file.isDefined)
    store.confirm()
    assert(baseRows(store) == allRows)
  }

  test("a task is killed while it spills the prepared version of another store") {
    val memory = new UncommittedMemory
    val Seq(one, two) =
      Seq("one", "two").map(newStore(_, limit = Some(UncommittedLimit(memory, 200000)))): @unchecked
    commit(one)(filled): Unit
    assert(one.prepared.get.file.isEmpty)
    val crowd = begin(two)
    interrupted((0 until 2140).foreach(i => crowd.put(bytes(f"k$i%04d"), bytes("v" * 50))))
    assert(one.prepared.get.file.isDefined, "the other store needed the room")
    one.confirm()
    assert(baseRows(one) == allRows)
    crowd.rollback()
  }

  test("a reader of a version on disk is interrupted") {
    val store = newStore(limit = limited)
    commit(store)(filled): Unit
    val view = store.readAt(VersionId(1, None)).get
    assert(interrupted(drain(view.range(None, None))) == allRows)
    view.close()
  }

  test("a file that a process died over is read by a thread that is interrupted") {
    val file = new File(root, "1-1.batch")
    def written = FileBatch.write(file, 100, Vector(bytes("a") -> bytes("b"))) { out =>
      (0 until 50).foreach(i => out.put(bytes(f"k$i%03d"), bytes("v")))
    }
    val (wrote, read) = (interrupted(written), interrupted(FileBatch.open(file)))
    assert(read.parts > 3 && read.parts == wrote.parts && read.bytes == wrote.bytes)
    assert(read.ranges.map { case (a, b) => text(a) -> text(b) } == Vector("a" -> "b"))
  }

  test("patience lasts as long where the thread is interrupted") {
    var asked = 0
    val clock = new Clock {
      override def nanos(): Long = {
        asked += 1
        asked * 1000L
      }
      override def epochMs(): Long = 0
    }
    interrupted(Interrupts.pause(50 * 1000, clock))
    assert(asked > 50, "it returned before its time")
  }

  test("the result of a future is there where the thread is interrupted") {
    val task = new FutureTask(() => "done")
    new Thread(task).start()
    assert(interrupted(Interrupts.resultOf(task)) == "done")
    val failed = CompletableFuture.failedFuture[String](new IllegalStateException("failed"))
    val e = intercept[Exception](interrupted(Interrupts.resultOf(failed)))
    assert(Causes.of(e).exists(_.getMessage == "failed"))
  }

  test("interrupts are told from other failures, however they are wrapped") {
    val interrupts = Seq(
      new InterruptedException,
      new InterruptedIOException("killed"),
      new ClosedByInterruptException,
      new IllegalStateException("wrapped", new InterruptedIOException("killed"))
    )
    interrupts.foreach(e => intercept[InterruptedException](Interrupts.apart(throw e)))
    val others = Seq(new SocketTimeoutException("slow"), new java.io.IOException("damaged"))
    others.foreach { other =>
      assert(intercept[Exception](Interrupts.apart(throw other)) eq other)
    }
  }
}
