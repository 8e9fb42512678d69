package statemark.transaction

import org.scalatest.funsuite.AnyFunSuite
import scala.collection.immutable.TreeMap
import scala.util.Random
import statemark.TestStores

/** A store whose rows do not all fit into memory, and whose filter rules keys out, has the rows of a sorted map. */
class ShortMemorySuite extends AnyFunSuite with TestStores {
  private val keys = 4000
  private def key(i: Int) = f"key $i%05d"

  /** Runs with so many pages of memory for rows. */
  private def withPages(count: Int)(run: => Unit): Unit = {
    val others = RowPages.shared.join(_ => 0)
    val all = Iterator.continually(others.take()).takeWhile(_.isDefined).flatten.toVector
    val (left, taken) = all.splitAt(count)
    left.foreach(others.give)
    try run
    finally {
      taken.foreach(others.give)
      others.close()
    }
  }

  private type Rows = TreeMap[String, String]

  /** Does something at random to a transaction, and to the rows that it should have. */
  private def step(random: Random, transaction: Transaction, rows: Rows): Rows = {
    val k = key(random.nextInt(keys))
    random.nextInt(20) match {
      case 0 | 1 | 2 | 3 | 4 | 5 | 6 =>
        assert(transaction.get(bytes(k)).map(text) == rows.get(k), k)
        rows
      case 7 | 8 | 9 | 10 | 11 | 12 | 13 =>
        // As a deduplication does it, or blindly.
        if (random.nextBoolean()) assert(transaction.get(bytes(k)).map(text) == rows.get(k), k)
        val value = "v" * random.nextInt(60) + random.nextInt(100)
        transaction.put(bytes(k), bytes(value))
        rows + (k -> value)
      case 14 =>
        transaction.merge(bytes(k), bytes("m"))
        rows + (k -> rows.get(k).fold("m")(_ + ",m"))
      case 15 =>
        transaction.remove(bytes(k))
        rows - k
      case 16 =>
        // As an operator of sessions: rows of a group are read, then some are written.
        val group = k.dropRight(1)
        val scan = transaction.prefix(bytes(group))
        val found = Iterator.continually(scan.next()).takeWhile(identity)
          .map(_ => (text(scan.key), text(scan.value))).toVector
        assert(found == rows.rangeFrom(group).takeWhile(_._1.startsWith(group)).toVector)
        Seq.fill(3)(group + random.nextInt(10)).foldLeft(rows) { (rows, k) =>
          if (random.nextInt(3) == 0) {
            transaction.remove(bytes(k))
            rows - k
          } else {
            transaction.put(bytes(k), bytes("session"))
            rows + (k -> "session")
          }
        }
      case _ =>
        // As an operator evicts.
        val until = key(random.nextInt(keys))
        val most = 1 + random.nextInt(5)
        val scan = transaction.range(Some(bytes(k)), Some(bytes(until)))
        val found = Iterator.continually(scan.next()).takeWhile(identity).take(most)
          .map(_ => (text(scan.key), text(scan.value))).toVector
        assert(found == rows.rangeFrom(k).rangeUntil(until).take(most).toVector)
        val evicted = found.lastOption.filter(_ => found.length == most)
        evicted.foreach(_ => transaction.remove(scan.key))
        scan.close()
        evicted.fold(rows)(rows - _._1)
    }
  }

  private def check(seed: Long): Unit = {
    val random = new Random(seed)
    val store = newStore(s"store $seed")
    var committed: Rows = TreeMap.empty
    for (version <- 0 until 60) {
      val transaction = begin(store)
      var rows = committed
      for (_ <- 0 until random.nextInt(600)) rows = step(random, transaction, rows)
      // From then on nobody knows which keys are gone.
      if (version >= 50 && random.nextInt(3) == 0) {
        val (from, until) = (key(random.nextInt(keys)), key(random.nextInt(keys)))
        transaction.deleteRange(bytes(from), bytes(until))
        if (from < until) rows = rows.rangeUntil(from) ++ rows.rangeFrom(until)
      }
      random.nextInt(6) match {
        case 0 => transaction.rollback()
        case 1 =>
          store.commit(transaction)
          assert(store.dropPrepared())
        case _ =>
          store.commit(transaction)
          store.confirm()
          committed = rows
      }
      assert(store.base.counts.keys == committed.size)
    }
    assert(baseRows(store) == committed.toSeq)
  }

  test("it has the rows of a sorted map") {
    // The first two have room for a filter beside few rows, the last for nothing.
    for ((pages, seed) <- Seq(12, 10, 4, 0).zipWithIndex) withPages(pages)(check(seed.toLong))
  }
}
