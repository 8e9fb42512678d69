package statemark.engine

import java.io.File
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
      val rows = HeapBatch.of()(batch => present.foreach(k => batch.put(k, k, k.length)))
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
}
