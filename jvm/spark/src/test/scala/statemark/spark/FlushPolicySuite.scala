package statemark.spark

import org.apache.spark.sql.execution.streaming.state.StateStoreProvider
import org.scalatest.funsuite.AnyFunSuite
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
      FlushPolicy.scheduler.submit((() => ()): Runnable).get() // flushes that are due have begun
      storeOf(provider).unflushedWrites
    }

  test("rows that are written again and again are flushed before there are many copies of each") {
    val provider = open()
    val inMemory = writes(provider, 24)(rewritten)
    assert(inMemory.max <= (FlushPolicy.WritesPerRow + 1) * keys)
    assert(inMemory.sliding(2).exists(two => two(1) < two(0)), inMemory)
    assert(rowsAt(24).size == keys && rowsAt(24) == rewritten(23))
  }

  test("a store that grows is left to RocksDB") {
    val growing = writes(open(), batches)(batch =>
      (0 until keys).map(i => f"new$batch%03d-$i%05d" -> i).toMap
    )
    assert(growing.last == (batches - 1L) * keys)
  }

  test("and so is a small one") {
    val small = writes(open(), batches)(batch => Map("a" -> batch, "b" -> batch))
    assert(small.last == 2L * (batches - 1), small)
  }

  test("where rows are not counted nobody knows, and RocksDB decides") {
    val untracked = Map("spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows" -> "false")
    assert(writes(open(untracked), batches)(rewritten).last == (batches - 1L) * keys)
  }

  private def rewritten(batch: Int): Map[String, Int] =
    (0 until keys).map(i => f"key-$i%05d" -> (batch + i)).toMap
}
