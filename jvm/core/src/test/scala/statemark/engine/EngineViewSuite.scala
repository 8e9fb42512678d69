package statemark.engine

import java.util.concurrent.{CountDownLatch, TimeUnit}
import org.scalatest.funsuite.AnyFunSuite
import statemark.common.ViewClosedException

/** Goal: a view frees RocksDB's snapshot when no thread reads it. */
class EngineViewSuite extends AnyFunSuite {

  test("a view that is closed while another thread reads it is freed when that one has read") {
    val (inside, closed) = (new CountDownLatch(1), new CountDownLatch(1))
    @volatile var isFreed = false
    @volatile var wasFreedInside = false
    val source = new EngineView.Source {
      override def get(key: Array[Byte]): Option[Array[Byte]] = {
        inside.countDown()
        assert(closed.await(1, TimeUnit.MINUTES))
        wasFreedInside = isFreed
        None
      }
      override def scan(begin: Option[Array[Byte]], end: Option[Array[Byte]]): EngineScan =
        throw new UnsupportedOperationException
      override def close(): Unit = isFreed = true
    }
    val gate = new ReadGate("The store of the test")
    val view = new EngineView(gate.add(source), gate)
    val reader = new Thread(() => view.get(Array.emptyByteArray): Unit)
    reader.start()
    assert(inside.await(1, TimeUnit.MINUTES))
    view.close()
    closed.countDown()
    reader.join()
    assert(!wasFreedInside && isFreed)
    intercept[ViewClosedException](view.get(Array.emptyByteArray))
    assert(!view.retain())
  }
}
