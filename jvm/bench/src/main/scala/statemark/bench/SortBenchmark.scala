package statemark.bench

import java.util.{Arrays, Comparator, Random => JRandom}

/** What ordering a commit costs: whole keys, eight bytes first, and eight bytes behind what all
  * keys share. Spark's keys begin alike (a version byte and an empty null bitmap: nine zeros, two
  * bytes of column family before them), so the first eight bytes of a key decide nothing there.
  */
object SortBenchmark {
  private final class Sortable(val bytes: Array[Byte], val rank: Long)

  private val byBytes: Comparator[Sortable] = (a, b) => Arrays.compareUnsigned(a.bytes, b.bytes)
  private val byRank: Comparator[Sortable] = (a, b) => {
    val c = java.lang.Long.compareUnsigned(a.rank, b.rank)
    if (c != 0) c else Arrays.compareUnsigned(a.bytes, b.bytes)
  }

  private val ways: Seq[(String, Array[Array[Byte]] => Unit)] = Seq(
    "whole keys" -> (keys => Arrays.sort(keys.map(new Sortable(_, 0L)), byBytes)),
    "8 bytes, then whole keys" -> (sortByRank(_, 0)),
    "8 bytes behind the shared prefix" -> (keys => sortByRank(keys, sharedPrefix(keys)))
  )

  def run(count: Int, rounds: Int): Map[String, Map[String, Map[String, Seq[Double]]]] = {
    val random = BufferBenchmark.randomRows(count, new JRandom(7)).map(_._1)
    val shapes = Seq("random keys" -> random, "11 shared bytes" -> random.map(shared(11)))
    shapes.map { case (shape, keys) =>
      val figures = Rounds.interleaved(s"sort, $shape", ways.map(_._1), 2, rounds) { name =>
        val way = ways.toMap.apply(name)
        Map("per key" -> Rounds.timed(way(keys)) / count)
      }
      Output.table(
        s"sort of $count keys, $shape, ns per key",
        Seq("", "per key"),
        ways.map { case (n, _) => Seq(n, Output.figure(Rounds.median(figures(n)("per key")))) }
      )
      shape -> figures
    }.toMap
  }

  private def sortByRank(keys: Array[Array[Byte]], offset: Int): Unit =
    Arrays.sort(keys.map(k => new Sortable(k, StagedKey.eightBytesAt(k, offset))), byRank)

  private def sharedPrefix(keys: Array[Array[Byte]]): Int = {
    val first = keys.head
    keys.foldLeft(first.length) { (length, key) =>
      val i = Arrays.mismatch(first, 0, length, key, 0, math.min(length, key.length))
      if (i < 0) math.min(length, key.length) else i
    }
  }

  private def shared(length: Int)(key: Array[Byte]): Array[Byte] = {
    val out = key.clone()
    Arrays.fill(out, 0, length, 0.toByte)
    out
  }
}
