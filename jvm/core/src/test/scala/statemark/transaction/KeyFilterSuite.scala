package statemark.transaction

import org.scalatest.funsuite.AnyFunSuite
import scala.collection.mutable
import scala.util.Random

/** A key that the filter rules out is none that it has, whatever came and went. */
class KeyFilterSuite extends AnyFunSuite {
  private def pages(count: Int) = new RowPages(count.toLong * RowPages.PageBytes)
  private def filterIn(memory: RowPages) = {
    val member = memory.join(_ => 0)
    new KeyFilter(() => member.take(), member.give)
  }

  test("it has each key as often as it was told, less how often it was taken away") {
    for (seed <- 1 to 3) {
      val random = new Random(seed)
      val memory = pages(64)
      val filter = filterIn(memory)
      val model = mutable.Map.empty[Long, Int].withDefaultValue(0)
      // Some are of the same fingerprint, and some of the same slots, up to the last of a page.
      val hashes = Array.tabulate(30000) {
        case i if i % 3 == 0 => random.nextLong()
        case i if i % 3 == 1 => (random.nextInt(50) - 25L) << 32 | i
        case _ => random.nextLong() | 0xfff00000000L
      }
      def fingerprint(hash: Long) = math.max(1L, hash >>> 32)
      for (step <- 0 until 200000) {
        val hash = hashes(random.nextInt(hashes.length))
        if (random.nextInt(5) < (if (step < 100000) 3 else 2)) {
          if (model(fingerprint(hash)) < 4) {
            assert(filter.add(hash))
            model(fingerprint(hash)) += 1
          }
        } else if (model(fingerprint(hash)) > 0) {
          filter.remove(hash)
          model(fingerprint(hash)) -= 1
        }
        val other = hashes(random.nextInt(hashes.length))
        assert(filter.mayHave(other) == model(fingerprint(other)) > 0)
      }
      assert(filter.pages > 4)
      for (hash <- hashes; _ <- 0 until model(fingerprint(hash))) filter.remove(hash)
      assert(hashes.forall(!filter.mayHave(_)))
      filter.close()
      assert(memory.usedBytes == 0)
    }
  }

  test("it tells of memory that it does not get, and of fingerprints that no page has room for") {
    val none = filterIn(pages(0))
    assert(!none.add(7) && !none.mayHave(7))
    none.remove(7)
    val one = filterIn(pages(1))
    val random = new Random(7)
    assert(Iterator.continually(one.add(random.nextLong())).takeWhile(identity).length == 3072)
    val same = filterIn(pages(64))
    assert((0 until 3072).forall(i => same.add(i.toLong)) && !same.add(7L))
  }
}
