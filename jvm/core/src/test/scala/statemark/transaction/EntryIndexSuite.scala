package statemark.transaction

import org.scalatest.funsuite.AnyFunSuite
import scala.collection.immutable.TreeSet
import scala.util.Random
import statemark.common.{ArrayPool, KeyHash}
import statemark.staging.{EntryIndex, PagedTable, StagedTable}

/** Goal: the order of entries is that of their keys, whenever it is asked for. Method: a sorted set. */
class EntryIndexSuite extends AnyFunSuite {
  private def key(i: Int) = f"$i%05d".getBytes

  test("cursors, the whole order, and who is behind all agree with a sorted set") {
    for (seed <- 1 to 30) withClue(s"seed $seed: ") {
      val random = new Random(seed)
      val pool = new ArrayPool(1L << 20, overwrites = true)
      val table = new StagedTable(pool)
      val index = new EntryIndex(table, pool)
      var model = TreeSet.empty[Int]
      for (_ <- 0 until 2000)
        random.nextInt(40) match {
          case 0 =>
            assert(index.all().iterator.map(table.key).map(new String(_).toInt).toSeq ==
              model.toSeq)
          case 1 | 2 =>
            val begin = if (random.nextInt(10) == 0) 0 else random.nextInt(10000)
            val cursor = index.from(Option.when(begin > 0)(key(begin)))
            val expected = model.rangeFrom(begin).headOption
            val found = Option.when(cursor.current != PagedTable.NoEntry)(cursor.current)
            assert(found.map(table.key).map(new String(_).toInt) == expected)
          case 3 =>
            val asked = math.max(0, model.lastOption.getOrElse(0) + random.nextInt(5) - 2)
            assert(index.isBehindAll(key(asked)) == model.lastOption.forall(_ < asked))
          case 4 if random.nextInt(20) == 0 =>
            index.clear()
            table.clear()
            model = TreeSet.empty
          case _ =>
            val next = random.nextInt(10000)
            if (!model(next)) {
              index += table.add(KeyHash.of(key(next)), key(next))
              model += next
            }
        }
    }
  }
}
