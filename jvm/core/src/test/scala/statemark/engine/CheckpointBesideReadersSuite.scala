package statemark.engine

import java.io.File
import java.nio.file.NoSuchFileException
import java.util.concurrent.atomic.{AtomicBoolean, AtomicReference}
import java.util.concurrent.{CountDownLatch, TimeUnit}
import org.scalatest.concurrent.Eventually
import org.scalatest.funsuite.AnyFunSuite
import org.scalatest.time.SpanSugar._
import statemark.TestStores

/** Goal: hard links of the base come to an end whatever readers do meanwhile. RocksDB's own checkpoints do not: within
  * some hundreds, one waits for a signal that a reader which lets go of old files has not given (docs/adr/0022).
  */
class CheckpointBesideReadersSuite extends AnyFunSuite with TestStores with Eventually {
  private val Checkpoints = 1000
  private val Readers = 3

  test("checkpoints are made while readers open and close scans") {
    val engine = RocksEngine.open(new File(root, "read"), options)
    val isOver = new AtomicBoolean
    val failure = new AtomicReference[Option[Throwable]](None)
    def working(body: => Unit) = thread {
      try body
      catch { case e: Throwable => failure.compareAndSet(None, Some(e)): Unit }
    }
    val readers = Seq.fill(Readers)(working(while (!isOver.get) engine.scan(None, None).close()))
    val made = new CountDownLatch(Checkpoints)
    val maker = working {
      for (version <- 1 to Checkpoints) {
        val row = HeapBatch.of()(_.put(bytes("k"), bytes(s"$version")))
        engine.apply(row, Nil, Intent(version.toLong, None))
        engine.flush()
        val target = new File(root, s"image-$version")
        engine.checkpoint(target)
        if (version % 250 == 0) assert(TestStores.plainRows(target) == Seq("k" -> s"$version"))
        else target.listFiles.foreach(_.delete())
        made.countDown()
      }
    }
    try assert(made.await(5, TimeUnit.MINUTES), s"${made.getCount} checkpoints are missing")
    finally isOver.set(true)
    (readers :+ maker).foreach(_.join())
    assert(failure.get.isEmpty, failure.get)
    engine.close()
  }

  test("a checkpoint that fails does not keep files from being deleted") {
    val engine = RocksEngine.open(new File(root, "failed"), options)
    def write(version: Int): Unit = {
      // RocksDB moves tables of one key to a lower level as they are: it merges those whose ranges overlap.
      val rows = HeapBatch.of() { batch =>
        Seq("a", "z").foreach(key => batch.put(bytes(key), bytes(s"$version")))
      }
      engine.apply(rows, Nil, Intent(version.toLong, None))
      engine.flush()
    }
    def tables = engine.directory.list.count(_.endsWith(".sst"))
    write(1)
    // RocksDB goes on with the manifest that it has open.
    engine.directory.listFiles.filter(_.getName.startsWith("MANIFEST-")).foreach(_.delete())
    intercept[NoSuchFileException](engine.checkpoint(new File(root, "image")))
    (2 to 9).foreach(write)
    engine.compact()
    // RocksDB's own threads delete what is obsolete, after the call; they may have merged before it as well.
    eventually(timeout(1.minute))(assert(tables == 1, "obsolete tables are deleted"))
    engine.close()
  }

  private def thread(body: => Unit): Thread = {
    val thread = new Thread(() => body)
    thread.setDaemon(true)
    thread.start()
    thread
  }
}
