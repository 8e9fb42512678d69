package statemark.bench

import java.util.Random

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state.StateStore

/** One turn of a contender; the figures are nanoseconds as a whole, or per row where `perRows` is
  * given. A turn leaves the state as it found it, and ends with a commit: an abort would make Spark's
  * RocksDB provider reload its state, and the next turn would measure cold caches.
  */
final case class Workload(name: String, warmups: Int, rounds: Int, heavy: Boolean = false)(
    val turn: BenchStore => Map[String, Double]
)

/** Workloads over the same preloaded state. */
final case class Group(name: String, shape: Shape, preload: BenchStore => Unit)(
    val workloads: Workload*
)

/** @param quick fewer rounds and smaller large sizes, for a look rather than for a record */
final class ProviderWorkloads(quick: Boolean) {
  import ProviderWorkloads._

  private val rounds = if (quick) 3 else 7
  private val warmups = if (quick) 2 else 4
  private val heavyRounds = if (quick) 1 else 3
  private val commits = if (quick) 10 else 60
  private val manyRows = if (quick) 100000 else 500000
  private val stagedRows = if (quick) 200000 else 1000000

  private val small = Rows.random(Small, seed = 1)
  private lazy val preloaded = Rows.random(Preloaded, seed = 3)
  private lazy val underPrefixes = Rows.underPrefixes(Prefixes, RowsPerPrefix, seed = 4)

  /** Made one by one, so that the rows of one group are garbage before the next begins. */
  def groups: Iterator[Group] =
    Iterator[() => Group](
      () => smallState,
      () => manyPuts,
      () => merges,
      () => prefixScans,
      () => preloadedState
    ).map(_())

  private def smallState: Group = Group("10,000 rows", Rows.plain, load(small))(
    Workload("batches", warmups, commits) { store =>
      batchOf(store, small, "10,000")
    },
    Workload("remove", warmups, rounds) { store =>
      val figures = committed(store, "remove", "row", Small) { s =>
        small.foreach { case (k, _) => s.remove(k) }
      }
      store.batch()(putAll(_, small))
      figures
    },
    Workload("evict", warmups, rounds) { store =>
      var evicted = 0
      val figures = committed(store, "evict half by scan", "row", Small) { s =>
        s.iterator().foreach { pair =>
          if (pair.key.getLong(1) < Small / 2 * 1000L) {
            s.remove(pair.key)
            evicted += 1
          }
        }
      }
      expect(evicted == Small / 2, s"$evicted rows evicted in ${store.contender.name}")
      store.batch()(putAll(_, small))
      figures
    }
  )

  private def manyPuts: Group = {
    val label = f"$manyRows%,d"
    lazy val rows = Rows.random(manyRows, seed = 5)
    Group(s"$label rows", Rows.plain, _ => ())(
      Workload("batches", 1, heavyRounds, heavy = true)(store => batchOf(store, rows, label))
    )
  }

  private def merges: Group = {
    lazy val values = Array.tabulate(Small * ValuesPerKey)(Rows.valueOf)
    def valuesOf(i: Int): Array[UnsafeRow] =
      values.slice(i * ValuesPerKey, (i + 1) * ValuesPerKey)
    def restore(s: StateStore): Unit =
      small.indices.foreach(i => s.putList(small(i)._1, valuesOf(i)))
    Group("lists of 10", Rows.multiValued, _.batch(snapshot = true)(restore))(
      Workload("merge", warmups, rounds) { store =>
        val figures = committed(store, "merge 10 values a key", "value", values.length) { s =>
          small.indices.foreach(i => valuesOf(i).foreach(v => s.merge(small(i)._1, v)))
        }
        store.batch()(restore)
        figures
      }
    )
  }

  private def prefixScans: Group =
    Group("10,000 prefixes of 10 rows", Rows.prefixed, load(underPrefixes))(
      Workload("prefix scan", warmups, rounds) { store =>
        val order = Rows.shuffled(Array.tabulate(Prefixes)(Rows.prefixOf), seed = 6)
        store.read { s =>
          var rows = 0
          val ns = Rounds.timed(order.foreach(p => rows += s.prefixScan(p).size))
          expect(rows == Prefixes * RowsPerPrefix, s"$rows rows in ${store.contender.name}")
          Map("prefix scan of 10 rows, ns a scan" -> ns / Prefixes)
        }
      },
      Workload("put and prefix scan", math.min(warmups, 2), rounds) { store =>
        var rows = 0
        val figures = committed(store, "put and prefix scan", "pair", Small) { s =>
          underPrefixes.take(Small).foreach { case (k, v) =>
            s.put(k, v)
            rows += s.prefixScan(Rows.prefixOf(k.getInt(0))).size
          }
        }
        expect(rows == Small * RowsPerPrefix, s"$rows rows in ${store.contender.name}")
        figures
      }
    )

  private def preloadedState: Group =
    Group("200,000 rows", Rows.plain, load(preloaded))(
      Workload("get then put", warmups, rounds) { store =>
        val random = new Random(store.version)
        val rows = Array.fill(Small)(preloaded(random.nextInt(Preloaded)))
        committed(store, "get then put", "row", Small) { s =>
          rows.foreach { case (k, v) =>
            expect(s.get(k) != null, s"${store.contender.name} lost a row")
            s.put(k, v)
          }
        }
      },
      Workload("full scan", math.min(warmups, 2), rounds) { store =>
        store.read { s =>
          var rows = 0
          val ns = Rounds.timed(s.iterator().foreach(_ => rows += 1))
          expect(rows == Preloaded, s"$rows rows in ${store.contender.name}")
          Map("full scan, ns a row" -> ns / Preloaded)
        }
      },
      abortAfter(Small, warmups = 1, rounds),
      abortAfter(stagedRows, warmups = 0, heavyRounds)
    )

  /** From `abort` until the same version can be read again. Spark's RocksDB provider reloads it from
    * the checkpoint, which holds a snapshot of the state and the changelogs since.
    */
  private def abortAfter(staged: Int, warmups: Int, rounds: Int): Workload = {
    lazy val rows = Rows.random(staged, seed = 7)
    Workload(s"abort after $staged", warmups, rounds, heavy = staged > Small) { store =>
      val first = store.open()
      putAll(first, rows)
      var second = first
      val ns = Rounds.timed {
        first.abort()
        second = store.open()
        expect(second.get(preloaded(0)._1) != null, s"${store.contender.name} lost a row")
      }
      store.commit(second)
      Map(f"abort of $staged%,d rows until the next get, ms" -> ns / 1e6)
    }
  }

  /** The commit alone flatters whoever defers work to the next `getStore`, so that the whole batch is
    * measured as well: `getStore`, every put, the commit.
    */
  private def batchOf(store: BenchStore, rows: Array[Rows.Pair], label: String) = {
    val start = System.nanoTime()
    val s = store.open()
    val put = Rounds.timed(putAll(s, rows))
    val commit = Rounds.timed(store.commit(s))
    val whole = (System.nanoTime() - start).toDouble
    Map(
      s"put $label, ns a row" -> put / rows.length,
      s"put and commit $label, ns a row" -> (put + commit) / rows.length,
      s"whole batch of $label, ns a row" -> whole / rows.length,
      s"commit of $label, ms" -> commit / 1e6
    )
  }

  /** The calls alone, and with the commit that makes them last: who stages leaves work to it. */
  private def committed(store: BenchStore, name: String, unit: String, count: Int)(
      body: StateStore => Unit
  ): Map[String, Double] = {
    val s = store.open()
    val calls = Rounds.timed(body(s))
    val commit = Rounds.timed(store.commit(s))
    Map(
      s"$name, ns a $unit" -> calls / count,
      s"$name and commit, ns a $unit" -> (calls + commit) / count
    )
  }

  private def load(rows: => Array[Rows.Pair])(store: BenchStore): Unit =
    store.batch(snapshot = true)(putAll(_, rows))

  private def putAll(store: StateStore, rows: Array[Rows.Pair]): Unit =
    rows.foreach { case (k, v) => store.put(k, v) }

  private def expect(condition: Boolean, problem: => String): Unit =
    if (!condition) sys.error(problem)
}

object ProviderWorkloads {
  private val Small = 10000
  private val Preloaded = 200000
  private val Prefixes = 10000
  private val RowsPerPrefix = 10
  private val ValuesPerKey = 10
}
