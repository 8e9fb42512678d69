package statemark

import java.io.File
import org.scalatest.funsuite.AnyFunSuite
import scala.collection.mutable
import statemark.changelog.ChangelogWriter
import statemark.common.IllegalCallException
import statemark.engine._
import statemark.transaction._

/** Goal: scans that are open cost what they need and no more (I8), and see what they have to (I7). Method: operators
  * that look at the first row and do not read on, and that scan once more inside a scan, a write after each; in a JVM
  * that has less heap than all values of their row take together.
  */
class OpenScansSuite extends AnyFunSuite with TestStores {

  for (way <- OpenScansChild.ways.keys.toSeq.sorted)
    test(s"updates of one row, $way, take a part of the heap that all its values would") {
      val child = new ProcessBuilder(
        new File(System.getProperty("java.home"), "bin/java").getPath,
        "-Xmx48m",
        "-cp",
        System.getProperty("java.class.path"),
        "statemark.OpenScansChild",
        new File(root, "child").getPath,
        way
      ).inheritIO().start()
      assert(child.waitFor() == 0)
    }

  test("scans that are left open are counted, spilled, and see what stood when they were opened") {
    val memory = new UncommittedMemory
    val limit = 64L * 1024
    val store = newStore(limit = Some(UncommittedLimit(memory, limit)))
    val transaction = begin(store)
    val open = mutable.ArrayBuffer.empty[(RowScan, Int)]
    def valueOf(i: Int) = s"$i " + "v" * 1000
    for (i <- 0 until 600) {
      transaction.put(bytes("a"), bytes(valueOf(i)))
      transaction.put(bytes("b"), bytes(valueOf(i)))
      val scan = transaction.range(None, None)
      // Some stand before their first row, some at it.
      if (i % 2 == 0) assert(scan.next() && text(scan.value) == valueOf(i))
      open += ((scan, i))
      if (i % 3 == 0) open.remove(open.length / 2)._1.close()
      assert(memory.bytes <= limit * 11 / 10)
    }
    assert(memory.spills > 10)
    for ((scan, i) <- open) {
      val rest = if (i % 2 == 0) Seq("b") else Seq("a", "b")
      assert(drain(scan) == rest.map(_ -> valueOf(i)))
    }
    store.commit(transaction): Unit
    store.confirm()
    assert(baseRows(store) == Seq("a", "b").map(_ -> valueOf(599)))
  }

  test(
    "a scan between staged writes, with none in its range, sees no later ones and ends with its transaction"
  ) {
    val store = newStore()
    val first = begin(store)
    for (key <- Seq("a", "m1", "m2", "m3", "z")) first.put(bytes(key), bytes("base"))
    store.commit(first): Unit
    store.confirm()
    val transaction = begin(store)
    for (key <- Seq("z", "a", "b")) transaction.put(bytes(key), bytes("staged"))
    def scan() = transaction.range(Some(bytes("m")), Some(bytes("n")))
    val (read, unread) = (scan(), scan())
    assert(read.next() && text(read.key) == "m1")
    transaction.remove(bytes("m1"))
    transaction.put(bytes("m15"), bytes("later"))
    transaction.put(bytes("m2"), bytes("later"))
    transaction.deleteRange(bytes("m3"), bytes("n"))
    assert(drain(read) == Seq("m2", "m3").map(_ -> "base"))
    assert(drain(scan()) == Seq("m15", "m2").map(_ -> "later"))
    transaction.rollback()
    intercept[IllegalCallException](unread.next())
  }
}

/** The child: three thousand updates of a row of 40 KB. */
object OpenScansChild {
  private val Updates = 3000

  private type Use = (Transaction, () => Unit) => Unit

  private def peek(transaction: Transaction, end: Option[Array[Byte]] = None): RowScan = {
    val scan = transaction.range(end.map(_ => "a".getBytes), end)
    scan.next(): Unit
    scan
  }

  val ways: Map[String, Use] = Map(
    "a scan left open before each" -> { (transaction, update) =>
      peek(transaction): Unit
      update()
    },
    "a scan of long rows of the base left open before each" -> { (transaction, update) =>
      peek(transaction, Some("l".getBytes)): Unit
      update()
    },
    "a scan closed before each inside a long one" -> { (transaction, update) =>
      peek(transaction).close()
      update()
    }
  )

  def main(args: Array[String]): Unit = {
    val store = NewStore.create(
      new File(args(0)),
      TestStores.options,
      TestStores.identity,
      StoreState.empty(0, RowCounts.zero),
      usesFamilies = false,
      CommitObserver.none,
      limit = Some(UncommittedLimit(new UncommittedMemory, 8L * 1024 * 1024))
    )
    def update(transaction: Transaction, i: Int): Unit =
      transaction.put("k".getBytes, s"$i ${"v" * 40000}".getBytes)
    val before = store.newTransaction(() => ChangelogWriter.None)
    before.put("j".getBytes, ("w" * 40000).getBytes)
    store.commit(before): Unit
    store.confirm()
    val transaction = store.newTransaction(() => ChangelogWriter.None)
    update(transaction, 0)
    val first = transaction.range(Some("k".getBytes), None)
    for (i <- 1 to Updates) ways(args(1))(transaction, () => update(transaction, i))
    require(first.next() && new String(first.value).startsWith("0 "))
    store.commit(transaction): Unit
    store.close()
  }
}
