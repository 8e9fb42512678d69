package statemark.spark

import org.apache.spark.sql.execution.streaming.state.StateStoreProvider
import org.scalatest.funsuite.AnyFunSuite
import statemark.spark.local.FlushPolicy
import statemark.spark.process.BackgroundThreads
import statemark.TransactionalStore

/** Flushes of stores that end with their process. */
class FlushPolicySuite extends AnyFunSuite with Providers {
  private val keys = 4000
  private val batches = 9 // fewer than Spark takes a snapshot after, which flushes

  private def storeOf(provider: StateStoreProvider): TransactionalStore =
    provider.asInstanceOf[StatemarkStateStoreProvider].keeper.generation.get.store

  /** Commits `count` batches and confirms the last but one; how many writes were in memory after each. */
  private def writes(
      provider: StateStoreProvider,
      count: Int
  )(rows: Int => Map[String, Int]): Seq[Long] =
    (0 until count).map { batch =>
      commit(provider, batch.toLong, rows(batch)): Unit
      BackgroundThreads.background.submit((
          () => ()
      ): Runnable).get() // flushes that are due have begun
      storeOf(provider).unflushedWrites
    }

  private val untracked =
    Map("spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows" -> "false")

  private val rowsCounted = Seq("counted" -> Map.empty[String, String], "not counted" -> untracked)

  for ((how, settings) <- rowsCounted)
    test(s"rows that are written again are flushed before there are many copies of each, $how") {
      val provider = open(settings)
      val inMemory = writes(provider, 48)(rewritten)
      assert(inMemory.sliding(2).count(two => two(1) < two(0)) >= 2, inMemory)
      assert(inMemory.max <= (FlushPolicy.WritesPerRow + 1) * keys, inMemory)
      assert(rowsAt(48, extra = settings) == rewritten(47))
    }

  for ((how, settings) <- rowsCounted)
    test(s"a store that grows is left to RocksDB, $how") {
      assert(writes(open(settings), batches)(added).last == (batches - 1L) * keys)
    }

  test("where rows are not counted, few that are written again in a large store are enough") {
    val provider = open(untracked)
    writes(provider, batches)(added): Unit
    val inMemory = (batches until 3 * batches).map { batch =>
      commit(provider, batch.toLong, rewritten(batch)): Unit
      BackgroundThreads.background.submit((() => ()): Runnable).get()
      storeOf(provider).unflushedWrites
    }
    assert(inMemory.sliding(2).count(two => two(1) < two(0)) >= 2, inMemory)
  }

  test("a small store is left to RocksDB") {
    for ((_, settings) <- rowsCounted) {
      val small = writes(open(settings), batches)(batch => Map("a" -> batch, "b" -> batch))
      assert(small.last == 2L * (batches - 1), small)
    }
  }

  private def added(batch: Int): Map[String, Int] =
    (0 until keys).map(i => f"new$batch%03d-$i%05d" -> i).toMap

  private def rewritten(batch: Int): Map[String, Int] =
    (0 until keys).map(i => f"key-$i%05d" -> (batch + i)).toMap
}
