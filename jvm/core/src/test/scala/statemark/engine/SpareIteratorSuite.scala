package statemark.engine

import java.io.File
import java.util.{TreeMap => JTreeMap}
import org.scalatest.funsuite.AnyFunSuite
import scala.collection.mutable
import scala.util.{Random, Using}
import statemark.TestStores
import statemark.common.Bytes

/** Scans that share iterators see what a sorted map has, and nothing of what was there before. */
class SpareIteratorSuite extends AnyFunSuite with TestStores {

  private def check(seed: Long, keeps: RocksEngine => Unit): Unit =
    Using.resource(RocksEngine.open(new File(root, s"scans-$seed"), options)) { engine =>
      val random = new Random(seed)
      val expected = new JTreeMap[Array[Byte], String](Bytes.order)
      def key() = {
        val text = f"${random.nextInt(60)}%02d-${random.nextInt(40)}%02d"
        // Ends of every length, over and below what an iterator is kept for.
        bytes(if (random.nextInt(50) == 0) text + "x" * random.nextInt(400) else text)
      }
      for (round <- 0 until 40) {
        val written = Seq.fill(60)(key()).distinctBy(text).sorted(Bytes.order)
        engine.apply(
          HeapBatch.of() { batch =>
            written.foreach { k =>
              if (random.nextInt(3) == 0) {
                batch.delete(k)
                expected.remove(k)
              } else {
                val value = bytes(s"$round")
                batch.put(k, value)
                expected.put(k, s"$round")
              }
            }
          },
          Nil,
          Intent(round.toLong, None)
        )
        if (round % 6 == 5) engine.flush()
        if (round % 4 == 3) keeps(engine)
        // Some are open side by side, and some are closed in their middle.
        val open = mutable.ArrayBuffer.empty[(
            RowCursor,
            java.util.Iterator[java.util.Map.Entry[Array[Byte], String]]
        )]
        for (_ <- 0 until 100) {
          val (from, to) = random.nextInt(3) match {
            case 0 =>
              val prefix = bytes(f"${random.nextInt(60)}%02d-")
              (Some(prefix), Bytes.prefixEnd(prefix))
            case 1 => (Option.when(random.nextInt(8) > 0)(key()), Some(key()))
            case _ => (Some(key()), Option.when(random.nextInt(8) > 0)(key()))
          }
          val rows = (from, to) match {
            case (Some(f), Some(t)) if Bytes.order.gteq(f, t) => new JTreeMap[Array[Byte], String]()
            case (Some(f), Some(t)) => expected.subMap(f, true, t, false)
            case (Some(f), None) => expected.tailMap(f, true)
            case (None, Some(t)) => expected.headMap(t, false)
            case (None, None) => expected
          }
          open += ((engine.scan(from, to), rows.entrySet.iterator))
          while (open.length > random.nextInt(4)) {
            val (scan, left) = open.remove(random.nextInt(open.length))
            var steps = if (random.nextInt(3) == 0) random.nextInt(5) else Int.MaxValue
            while (steps > 0 && left.hasNext) {
              val row = left.next()
              assert(scan.keyOrEnd().map(text) == Some(text(row.getKey)), s"round $round")
              assert(text(scan.value) == row.getValue)
              scan.next()
              steps -= 1
            }
            if (steps > 0) assert(scan.keyOrEnd().isEmpty)
            scan.close()
          }
        }
        open.foreach(_._1.close())
      }
    }

  test("random scans between writes and flushes") {
    (1 to 2).foreach(seed => check(seed.toLong, _ => ()))
  }

  test("what is kept is closed in between") {
    check(5, _.rest())
  }

  test("no iterator keeps memtables that were written to disk, once the transaction has ended") {
    val engine = RocksEngine.open(new File(root, "kept"), options)
    def memory = engine.property("rocksdb.size-all-mem-tables")
    def current = engine.property("rocksdb.cur-size-all-mem-tables")
    def write(): Unit = engine.apply(
      HeapBatch.of()(batch =>
        (0 until 2000).foreach { i =>
          val k = bytes(f"key $i%05d")
          batch.put(k, new Array(200))
        }
      ),
      Nil,
      Intent(1, None)
    )
    Using.resource(engine) { _ =>
      write()
      engine.scan(None, Some(bytes("z"))).close()
      engine.flush()
      assert(memory > current, "the iterator that is kept holds what it has seen")
      engine.rest()
      assert(memory == current)
      engine.scan(None, Some(bytes("z"))).close()
      write()
      engine.flush()
      assert(memory == current, "a write lets go of it, too")
    }
  }
}
