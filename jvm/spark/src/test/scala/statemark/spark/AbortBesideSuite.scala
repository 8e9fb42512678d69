package statemark.spark

import java.util.concurrent.atomic.AtomicInteger
import java.util.concurrent.FutureTask
import org.apache.spark.sql.execution.streaming.state._
import org.scalatest.funsuite.AnyFunSuite
import scala.util.Random
import statemark.common.Causes
import statemark.spark.conf.StoreSettings
import statemark.spark.process.JvmState
import statemark.transaction.CommitPhase

/** Goal: a task is aborted while a second thread uses its store, as PySpark's transformWithState has one: that
  * thread's call fails, and the process lives. Method: many rounds, each ended at another row; a fault ends the
  * process (SIGSEGV).
  */
class AbortBesideSuite extends AnyFunSuite with Providers {
  private val Rows = 50000
  private val Rounds = 60

  private val uses = Seq[(String, (StateStore, Int => Unit) => Unit)](
    "iterates" -> { (store, done) =>
      val iterator = store.iterator()
      var i = 0
      while (iterator.hasNext) {
        iterator.next()
        i += 1
        done(i)
      }
    },
    "reads" -> { (store, done) =>
      for (i <- 1 to Rows) {
        store.get(Providers.key(s"key $i"))
        done(i)
      }
    },
    "writes and scans" -> { (store, done) =>
      for (i <- 1 to Rows / 10) {
        store.put(Providers.key(s"other $i"), Providers.value(i))
        store.iterator().hasNext
        done(10 * i)
      }
    }
  )

  for ((name, use) <- uses) test(s"a task is aborted while another thread $name") {
    // What is staged is spilled after some hundred writes.
    val provider = open(Map(StoreSettings.Prefix + "maxUncommittedBytes" -> "256k"))
    commit(provider, 0, (1 to Rows).map(i => s"key $i" -> i).toMap): Unit
    val random = new Random(8)
    var cut = 0
    for (_ <- 1 to Rounds) {
      val store = provider.getStore(1)
      val rows = new AtomicInteger
      val other = new FutureTask(() =>
        try {
          use(store, rows.set)
          true
        } catch { case _: Exception => false }
      )
      val enough = random.nextInt(Rows / 20)
      new Thread(other).start()
      while (rows.get < enough && !other.isDone) Thread.onSpinWait()
      store.abort()
      if (!other.get) cut += 1
    }
    assert(cut > Rounds / 2, "calls that were cut off")
    assert(rowsAt(1).size == Rows)
  }

  test("a task is aborted, and its store closed, while another thread is at the end of a commit") {
    @volatile var committed = () => ()
    JvmState.observer.set(phase => if (phase == CommitPhase.CommitReported) committed())
    val provider = open()
    commit(provider, 0, Map("a" -> 1)): Unit
    val store = provider.getStore(1)
    put(store, Map("b" -> 1))
    committed = () => {
      val other = new Thread(() => {
        store.abort()
        provider.close()
      })
      other.start()
      other.join()
    }
    val failure = intercept[Exception](store.commit())
    assert(!Causes.of(failure).exists(_.isInstanceOf[Error]), "it used what was closed")
    assert(rowsAt(1) == Map("a" -> 1))
  }
}
