package statemark.spark

import org.apache.spark.sql.execution.streaming.state._
import org.scalatest.funsuite.AnyFunSuite
import statemark.spark.process.JvmState
import statemark.testkit.FileCounts

/** I4: aborts and rewinds read nothing from the checkpoint location, as the file system under it counts
  * them.
  */
class NoReloadSuite extends AnyFunSuite with Providers {
  for ((format, extra) <- Seq("v1" -> Map.empty[String, String], "v2" -> Providers.v2)) {

    test(s"an abort, then the same version again ($format)") {
      val provider = open(extra)
      val first = commit(provider, 0, Map("a" -> 1))
      val opens = countingReads {
        val aborted = provider.getStore(1, first.stateStoreCkptId)
        put(aborted, Map("a" -> 2, "b" -> 2))
        aborted.remove(Providers.key("a"))
        aborted.abort()
        aborted.abort()
        commit(provider, 1, Map("c" -> 3), first.stateStoreCkptId): Unit
      }
      assert(opens == 0)
      assert(metricsOf(provider, 2, "statemarkRollbackCount", first) == 1)
    }

    test(s"a version again after the next one was committed ($format)") {
      val provider = open(extra)
      val first = commit(provider, 0, Map("a" -> 1))
      val lost = commit(provider, 1, Map("lost" -> 1), first.stateStoreCkptId)
      var again = lost
      val opens = countingReads {
        again = commit(provider, 1, Map("kept" -> 2), first.stateStoreCkptId)
      }
      assert(opens == 0)
      assert(again.stateStoreCkptId.isEmpty || again.stateStoreCkptId != lost.stateStoreCkptId)
      val store = provider.getStore(2, again.stateStoreCkptId)
      assert(rows(store) == Map("a" -> 1, "kept" -> 2))
      store.abort()
      assert(rowsAt(2, again.stateStoreCkptId, extra) == Map("a" -> 1, "kept" -> 2))
    }

    test(s"a whole batch again, and batches after it ($format)") {
      val provider = open(extra)
      var id: Option[String] = None
      for (batch <- 0 until 5) {
        val before = id
        val opens = countingReads {
          commit(provider, batch, Map(s"lost $batch" -> batch), before): Unit
          id = commit(provider, batch, Map(s"kept $batch" -> batch), before).stateStoreCkptId
        }
        // The first commit after a load lists what others have left above it (ADR 2).
        assert(opens == (if (batch == 0 && format == "v1") 1 else 0), s"batch $batch")
      }
      assert(rowsAt(5, id, extra) == (0 until 5).map(b => s"kept $b" -> b).toMap)
    }
  }

  test("a version without its id in format v2 is the one that was committed here") {
    val provider = open(Providers.v2)
    commit(provider, 0, Map("a" -> 1)): Unit
    val opens = countingReads {
      for (again <- 1 to 2) {
        val store = provider.getStore(1)
        assert(rows(store) == Map("a" -> 1), s"time $again")
        store.abort()
      }
      commit(provider, 1, Map("b" -> 2)): Unit
    }
    assert(opens == 0)
  }

  test("two actions in a batch: the id of the first is asked for, which costs one delta") {
    val provider = open(Providers.v2)
    val base = commit(provider, 0, Map("a" -> 1))
    val first = commit(provider, 1, Map("first" -> 1), base.stateStoreCkptId)
    commit(provider, 1, Map("second" -> 2), base.stateStoreCkptId): Unit
    FileCounts.reset()
    val store = provider.getStore(2, first.stateStoreCkptId)
    assert(rows(store) == Map("a" -> 1, "first" -> 1))
    store.abort()
    val opened = FileCounts.events(location).toArray.map(_.toString).filter(_.contains("open"))
    assert(
      opened.nonEmpty && opened.forall(_.contains(s"2_${first.stateStoreCkptId.get}.changelog"))
    )
  }

  for ((format, extra) <- Seq("v1" -> Map.empty[String, String], "v2" -> Providers.v2))
    test(
      s"a store that comes back after another executor went on replays what it missed ($format)"
    ) {
      val here = open(extra)
      var id = commit(here, 0, Map("a" -> 0)).stateStoreCkptId
      id = commit(here, 1, Map("b" -> 1), id).stateStoreCkptId
      val elsewhere = open(extra)
      for (v <- 2 to 4) id = commit(elsewhere, v, Map(s"v$v" -> v), id).stateStoreCkptId
      FileCounts.reset()
      // Version 2 is prepared here and not confirmed: one more delta.
      val store = here.getStore(5, id)
      assert(rows(store) == Map("a" -> 0, "b" -> 1, "v2" -> 2, "v3" -> 3, "v4" -> 4))
      store.abort()
      assert(FileCounts.lists(location) == 0, "a restore lists snapshots")
    }

  test("on a cluster, a prepared version whose changelog another executor replaced is not taken") {
    JvmState.runsOnCluster.set(() => true)
    try {
      val here = open()
      commit(here, 0, Map("a" -> 0)): Unit
      commit(here, 1, Map("ours" -> 1)): Unit
      val elsewhere = open()
      commit(elsewhere, 1, Map("theirs, and longer" -> 2)): Unit
      val store = here.getStore(2)
      assert(rows(store) == Map("a" -> 0, "theirs, and longer" -> 2))
      store.abort()
      // What nobody replaced is confirmed: its file is compared, and not replayed.
      commit(here, 2, Map("b" -> 3)): Unit
      assert(countingReads(here.getStore(3).abort()) == 1)
      assert(here.asInstanceOf[StatemarkStateStoreProvider].keeper.load.replayed == 0)
    } finally JvmState.runsOnCluster.clear()
  }

  test("the counting file system does see a reload of Spark's own provider") {
    val extra =
      Map("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled" -> "true")
    val provider = open(extra, Providers.sparksOwn)
    commit(provider, 0, Map("a" -> 1)): Unit
    val opens = countingReads {
      val aborted = provider.getStore(1)
      aborted.abort()
      provider.getStore(1).abort()
    }
    assert(opens > 0)
  }

  private def countingReads(body: => Unit): Long = {
    FileCounts.reset()
    body
    FileCounts.opens(location) + FileCounts.lists(location)
  }

  private def metricsOf(
      provider: StateStoreProvider,
      version: Long,
      name: String,
      base: StateStoreCheckpointInfo
  ): Long = {
    // The rolled back transaction shows with the next commit on the same base.
    val store = provider.getStore(version - 1, base.stateStoreCkptId)
    store.abort()
    val last = provider.getStore(version - 1, base.stateStoreCkptId)
    last.commit(): Unit
    last.metrics.customMetrics.collectFirst { case (m, v) if m.name == name => v }.getOrElse(-1L)
  }
}
