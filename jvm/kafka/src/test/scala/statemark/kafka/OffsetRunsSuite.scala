package statemark.kafka

import org.apache.kafka.common.TopicPartition
import org.roaringbitmap.RoaringBitmap
import org.scalatest.funsuite.AnyFunSuite
import scala.collection.immutable.ArraySeq
import statemark.kafka.decision.{DecidedRows, DecidedTransaction}
import statemark.kafka.driver.UncopiedRows
import statemark.kafka.rows.{OffsetBitmap, OffsetRuns, RowCollector, RowHash, TransactionName}

class OffsetRunsSuite extends AnyFunSuite {
  private def runs(offsets: Long*) = OffsetRuns.ascending(offsets.iterator)

  private def bitmap(base: Long, relative: Int*) =
    OffsetBitmap(base, RoaringBitmap.bitmapOf(relative: _*))

  test("offsets become runs, and are found in them") {
    val some = runs(3, 4, 5, 9, 11, 12)
    assert(some.starts == ArraySeq(3L, 9L, 11L) && some.ends == ArraySeq(6L, 10L, 13L))
    assert(some.count == 6 && some.first == 3 && some.last == 12)
    assert((0L to 20L).filter(some.contains) == Seq(3L, 4L, 5L, 9L, 11L, 12L))
    assert(some.next(0).contains(3L) && some.next(5).contains(5L) && some.next(6).contains(9L))
    assert(some.next(13).isEmpty)
    assert(OffsetRuns.ascending(Iterator.empty) == OffsetRuns.empty && OffsetRuns.empty.isEmpty)
  }

  test("runs without their first offsets") {
    val all = Seq(3L, 4L, 5L, 9L, 11L, 12L)
    for (dropped <- 0 to 7)
      assert(runs(all: _*).drop(dropped.toLong) == runs(all.drop(dropped): _*))
  }

  test("the rows that were not copied: by partitions, without the first of one") {
    def rows(partition: Int, offsets: Long*) =
      DecidedRows(new TopicPartition("t", partition), runs(offsets: _*), 0)
    val of = Vector(rows(0, 1, 2), rows(1, 5, 7, 9), rows(3, 4))
    val transaction = DecidedTransaction(TransactionName("id", 1), Vector(0), of)
    def left(copied: Long) = UncopiedRows(transaction, copied).places.map { case (rows, first) =>
      (rows.topicPartition.partition, first)
    }
    assert(left(0) == Vector(0 -> 0L, 1 -> 0L, 3 -> 0L))
    assert(left(1) == Vector(0 -> 1L, 1 -> 0L, 3 -> 0L))
    assert(left(2) == Vector(1 -> 0L, 3 -> 0L) && left(4) == Vector(1 -> 2L, 3 -> 0L))
    assert(left(5) == Vector(3 -> 0L) && left(6).isEmpty)
  }

  test("runs that overlap, touch or descend are refused") {
    Seq((Seq(3L, 5L), Seq(5L, 6L)), (Seq(5L, 1L), Seq(6L, 2L)), (Seq(2L), Seq(2L))).foreach {
      case (starts, ends) =>
        intercept[IllegalArgumentException](OffsetRuns(ArraySeq.from(starts), ArraySeq.from(ends)))
    }
  }

  test("attempts whose rows lie between each other become one set of runs") {
    val all = OffsetBitmap.union(Seq(bitmap(100, 0, 2, 4), bitmap(90, 11, 13, 15), bitmap(97, 20)))
    assert(all == runs(100, 101, 102, 103, 104, 105, 117))
  }

  test("one offset in two attempts is refused: it is one row") {
    intercept[IllegalArgumentException](OffsetBitmap.union(Seq(bitmap(10, 5), bitmap(15, 0))))
  }

  test("offsets of a busy partition, far from zero, and beyond what an Int holds") {
    for (first <- Seq(0L, 7L, 5_000_000_000L, Long.MaxValue / 2)) {
      val collector = new RowCollector
      val offsets = (0 until 1000).map(n => first + n * 3L + n / 100 * 1_000_000L)
      offsets.foreach(collector.add(_, 1))
      val rows = collector.result()
      assert(rows.offsets.offsets.toSeq == offsets)
      assert(rows.count == 1000 && rows.hash == 1000)
      assert(OffsetBitmap.union(Seq(rows.offsets)).count == 1000)
    }
  }

  test("a row's hash tells key, value and headers, and where one ends") {
    def hash(key: String, value: String, headers: (String, String)*) = {
      val record = new org.apache.kafka.common.header.internals.RecordHeaders
      headers.foreach { case (k, v) => record.add(k, Option(v).map(_.getBytes).orNull) }
      RowHash.of(Option(key).map(_.getBytes).orNull, Option(value).map(_.getBytes).orNull, record)
    }
    val none = Option.empty[String].orNull
    val all = Seq(
      hash("a", "b"),
      hash("ab", ""),
      hash("", "ab"),
      hash(none, "ab"),
      hash("ab", none),
      hash("b", "a"),
      hash("a", "b", "h" -> "x"),
      hash("a", "b", "h" -> none),
      hash("a", "b", "h" -> "x", "i" -> "y"),
      hash("a", "b", "i" -> "y", "h" -> "x")
    )
    assert(all.distinct.size == all.size)
    // Part of the format: a decision of an older release is checked with it.
    assert(hash("key", "value", "header" -> "text") == 7777798441005791692L)
  }
}
