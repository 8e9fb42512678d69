package statemark.engine

import java.io.File
import java.util.{ArrayList => JArrayList}
import org.scalatest.funsuite.AnyFunSuite
import scala.util.Random
import statemark.TestStores
import statemark.common.Bytes

/** Which of many keys are there: the same answer from one scan and from lookups. */
class ExistSuite extends AnyFunSuite with TestStores {
  test("dense and sparse keys are found alike") {
    val engine = RocksEngine.open(new File(root, "exist"), options)
    try {
      val random = new Random(3)
      val present = Seq.fill(500)(bytes(s"key ${random.nextInt(2000)}")).sorted(Bytes.order)
      val rows = HeapBatch.of()(batch => present.foreach(k => batch.put(k, k)))
      engine.apply(rows, Nil, Intent(1, None))
      val there = present.map(text).toSet
      for (n <- Seq(0, 1, 3, 50, 2000)) {
        val asked = Seq.fill(n)(bytes(s"key ${random.nextInt(2500)}"))
          .sorted(Bytes.order).distinctBy(text).toIndexedSeq
        val expected = asked.map(k => there(text(k)))
        // The number of rows decides between scan and lookups.
        assert(engine.exist(asked, rowCount = 0).toSeq == expected)
        assert(engine.exist(asked, rowCount = Long.MaxValue).toSeq == expected)
      }
    } finally engine.close()
  }

  test("rows of any length, merges that are not resolved, and keys that are not there") {
    val engine = RocksEngine.open(new File(root, "lengths"), options)
    try {
      val random = new Random(5)
      def write(keys: Iterable[Int])(write: (BatchWriter, Array[Byte]) => Unit): Unit =
        engine.apply(
          HeapBatch.of()(batch => keys.foreach(i => write(batch, bytes(f"key $i%05d")))),
          Nil,
          Intent(1, None)
        )
      def asked(from: Int, until: Int) = (from until until).map(i => bytes(f"key $i%05d"))
      def isFound(keys: IndexedSeq[Array[Byte]]): Unit = {
        val found = engine.exist(keys, rowCount = Long.MaxValue).toSeq
        assert(found == keys.map(engine.get(_).isDefined))
        assert(found.distinct.length == 2)
      }
      write((0 until 6000).filterNot(_ % 3 == 0))((batch, key) => batch.put(key, key))
      isFound(asked(0, 3000)) // short rows
      write((1000 until 6000 by 7))((batch, key) => batch.put(key, new Array(100000)))
      for (_ <- 0 until 3)
        write((0 until 6000 by 5))((batch, key) => batch.merge(key, new Array(3000)))
      engine.flush()
      write((0 until 6000 by 5))((batch, key) => batch.merge(key, key))
      // Long rows, found by lookups that were last among short ones.
      isFound(asked(0, 6000))
      for (_ <- 0 until 20) isFound(asked(0, 6000).filter(_ => random.nextInt(4) == 0))
    } finally engine.close()
  }

  test("values come to the heap while they are short, and no more than a part of them") {
    var held = 0L
    var alone = 0
    def lookup(lengthOf: Int => Int) = new ExistenceLookup(
      keys => {
        val values = new JArrayList[Array[Byte]]
        var bytes = 0L
        keys.forEach { key =>
          // RocksDB ends after the value that goes over the limit.
          val isRead = bytes <= ExistenceLookup.ValueBytes
          if (isRead) bytes += lengthOf(key(0))
          values.add(Option.when(isRead)(new Array[Byte](lengthOf(key(0)))).orNull): Unit
        }
        held = math.max(held, bytes)
        values
      },
      key => {
        alone += 1
        lengthOf(key(0))
      }
    )
    def keys(n: Int, of: Int => Int) = (0 until n).map(i => Array(of(i).toByte))
    def holds(lengthOf: Int => Int, asked: IndexedSeq[Array[Byte]]): (Long, Int) = {
      held = 0
      alone = 0
      assert(lookup(lengthOf).of(asked).forall(identity))
      (held, alone)
    }
    // The length of rows is not known at first.
    assert(holds(_ => 24, keys(10 * 1024, _ => 1)) == ((1024L * 24, 1024)))
    assert(holds(_ => 2 << 20, keys(200, _ => 1)) == ((0L, 200)))
    val (some, _) = holds(
      kind => if (kind == 1) 24 else 2 << 20,
      keys(4 * 1024, i => if (i >= 1024 && i % 100 == 0) 2 else 1)
    )
    assert(some > 0 && some < ExistenceLookup.ValueBytes + (2 << 20) + 1)
  }
}
