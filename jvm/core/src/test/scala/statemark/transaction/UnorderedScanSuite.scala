package statemark.transaction

import org.rocksdb.TickerType
import org.scalatest.funsuite.AnyFunSuite
import scala.util.Random
import statemark.common.IllegalCallException
import statemark.{TestStores, TransactionalStore}

/** A scan in any order gives the rows that one in key order gives, whatever is staged. */
class UnorderedScanSuite extends AnyFunSuite with TestStores {
  private val random = new Random(11)

  private def filled(count: Int, limit: Option[UncommittedLimit] = None): TransactionalStore = {
    val store = newStore(name = s"store-${root.list().length}", limit = limit)
    commit(store) { t =>
      for (i <- 0 until count) t.put(bytes(f"k$i%04d"), bytes("v" * random.nextInt(20)))
    }: Unit
    store.confirm()
    store
  }

  /** Stages a new key, as an operator does that looks first. */
  private def add(t: Transaction, key: String): Unit = {
    assert(t.get(bytes(key)).isEmpty)
    t.put(bytes(key), bytes(s"new $key"))
  }

  test("new keys come behind the base, which is compared with none of them") {
    val store = filled(100)
    val t = begin(store)
    Seq("a", "k0050x", "z").foreach(add(t, _))
    add(t, "gone again")
    t.remove(bytes("gone again"))
    val found = drain(t.unordered(bytes("")))
    assert(found.map(_._1) == (0 until 100).map(i => f"k$i%04d") ++ Seq("a", "k0050x", "z"))
    assert(found.sorted == rows(t))
    assert(drain(t.unordered(bytes("k005"))).sorted == drain(t.prefix(bytes("k005"))))
    // From here on a key of the base has a write, and order is needed.
    t.put(bytes("k0000"), bytes("other"))
    assert(drain(t.unordered(bytes(""))) == rows(t))
    t.rollback()
  }

  test("any writes: the rows are those of a scan in order, values of any length") {
    for (round <- 0 until 60) {
      val store = filled(random.nextInt(40))
      val t = begin(store)
      val changes = random.nextInt(30)
      for (_ <- 0 until changes) {
        val key = bytes(f"k${random.nextInt(60)}%04d")
        random.nextInt(if (round % 2 == 0) 8 else 2) match {
          case 0 | 1 => if (t.get(key).isEmpty) t.put(key, bytes("n" * random.nextInt(20)))
          case 2 => t.put(key, bytes("unread"))
          case 3 => t.remove(key)
          case 4 => t.merge(key, bytes("m"))
          case 5 => if (t.get(key).isEmpty) t.merge(key, bytes("m"))
          case 6 => t.deleteRange(key, key :+ 'x'.toByte)
          case _ => t.get(key): Unit
        }
      }
      assert(drain(t.unordered(bytes(""))).sorted == rows(t), s"round $round")
      t.rollback()
    }
  }

  test("I7: it is blind to later writes, and what it has found is counted without a read") {
    def reads(store: TransactionalStore) = Seq(
      TickerType.NUMBER_DB_SEEK,
      TickerType.NUMBER_KEYS_READ,
      TickerType.NUMBER_MULTIGET_KEYS_READ
    ).map(store.count).sum
    val store = filled(100)
    val t = begin(store)
    Seq("a", "k0050x").foreach(add(t, _))
    val scan = t.unordered(bytes(""))
    var seen = 0
    while (scan.next()) {
      if (seen % 3 == 0) t.remove(scan.key)
      t.put(bytes(s"later $seen"), bytes("v"))
      seen += 1
    }
    assert(seen == 102)
    for (i <- 0 until 102) t.remove(bytes(s"later $i"))
    val before = reads(store)
    val next = store.commit(t)
    // Those that were written later are looked up: nobody has read them. Of the others none is.
    assert(reads(store) - before <= 102)
    store.confirm()
    assert(next.state.counts.keys == 102 - 34)
    assert(baseRows(store).size == 102 - 34)
  }

  test("it goes on where writes are spilled meanwhile, and ends with its transaction") {
    val store = filled(50, Some(UncommittedLimit(new UncommittedMemory, 64L * 1024)))
    val t = begin(store)
    for (i <- 0 until 20) add(t, s"n$i")
    val (scan, unread) = (t.unordered(bytes("")), t.unordered(bytes("")))
    assert(scan.next() && text(scan.key) == "k0000")
    for (i <- 0 until 200) t.put(bytes(s"m$i"), new Array[Byte](1000))
    assert(t.spills > 0)
    assert(1 + drain(scan).size == 70)
    assert(!scan.next())
    // With spilled writes rows come in order again.
    assert(drain(t.unordered(bytes(""))) == rows(t))
    t.rollback()
    intercept[IllegalCallException](unread.next())
    intercept[IllegalCallException](unread.key)
  }

  test("a value stays as it is until the row after the next, whatever its length") {
    val store = filled(60)
    val t = begin(store)
    add(t, "a")
    val scan = t.unordered(bytes(""))
    var before = Option.empty[(Array[Byte], String)]
    while (scan.next()) {
      before.foreach { case (value, was) => assert(text(value) == was) }
      before = Some((scan.value, text(scan.value)))
    }
    assert(before.exists(_._2 == "new a"))
    t.rollback()
  }

  test("a scan that is closed says so") {
    val store = filled(3)
    val t = begin(store)
    val scan = t.unordered(bytes(""))
    assert(scan.next())
    scan.close()
    scan.close()
    intercept[IllegalCallException](scan.next())
    intercept[IllegalCallException](scan.key)
    t.rollback()
  }
}
