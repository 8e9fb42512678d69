package statemark.spark

import java.util.UUID
import org.apache.spark.sql.execution.streaming.state.{
  StateStoreId,
  StateStoreProviderId,
  StatemarkBridge
}
import org.scalatest.BeforeAndAfterEach
import org.scalatest.funsuite.AnyFunSuite
import statemark.engine.VersionId
import statemark.spark.checkpoint.StoreAddress
import statemark.spark.cluster._
import statemark.spark.process.JvmState
import statemark.spark.process.Relocated.StatefulOperatorStateInfo

/** Which executor is preferred for which store. That tasks follow is tested on a cluster
  * (tests/cluster/test_coming_home.py).
  */
class PlacementSuite extends AnyFunSuite with BeforeAndAfterEach with OneSession {
  override protected def beforeEach(): Unit = JvmState.clear()

  private def inventory(executor: String, host: String, stores: LocalStore*): Unit =
    Placement.add(LocalInventory(executor, host, stores.toVector))

  private def stored(query: String, store: String, version: Long, usedAtMs: Long = 0) =
    LocalStore(query, store, Some(VersionId(version, None)), usedAtMs)

  private def report(executor: String, run: UUID, change: StoreChange): Unit = {
    val address = StoreAddress(run, 0, 0, "default")
    Placement.add(StoreReport(executor, s"host$executor", address, "q", change))
  }

  private def preferred(version: Long = 50, ids: Seq[String] = Nil) =
    Placement.of("q", _ => AskedVersion(version, ids)).map { case (store, holder) =>
      store -> holder.executorId
    }

  private val store = "0-0-default"
  private val run1 = UUID.randomUUID()
  private val run2 = UUID.randomUUID()

  test("the executor with the newest version is preferred, of the same the one that used it last") {
    inventory("1", "host1", stored("q", store, 12, 99), stored("q", "0-1-default", 9, 99))
    inventory("2", "host2", stored("q", store, 14, 10), stored("q", "0-1-default", 9, 100))
    inventory("3", "host3", stored("other", store, 15, 100), LocalStore("q", store, None, 200))
    assert(preferred() == Map(store -> "2", "0-1-default" -> "2"))
  }

  test("of several homes on one executor the newest counts") {
    inventory("1", "host1", stored("q", store, 14, 10), stored("q", store, 2, 99))
    inventory("2", "host2", stored("q", store, 13, 50))
    assert(preferred() == Map(store -> "1"))
  }

  test("a version that the asked one cannot follow is preferred last") {
    inventory("1", "host1", stored("q", store, 31))
    inventory("2", "host2", stored("q", store, 5))
    assert(preferred(30) == Map(store -> "2"))
    assert(preferred(31) == Map(store -> "1"))
  }

  test("a version with another id than the asked one is preferred last") {
    report("1", run1, StoreChange.Closed(VersionId(7, Some("old history")), 99))
    report("2", run1, StoreChange.Closed(VersionId(7, Some("new history")), 10))
    report("3", run1, StoreChange.Closed(VersionId(6, Some("before")), 10))
    assert(preferred(7, Seq("new history", "of another store")) == Map(store -> "2"))
    Placement.removed("2")
    assert(preferred(7, Seq("new history")) == Map(store -> "3"))
  }

  test("a store that was opened elsewhere since is preferred there") {
    inventory("1", "host1", stored("q", store, 7, 10))
    report("1", run1, StoreChange.Opened(VersionId(9, None)))
    report("2", run1, StoreChange.Opened(VersionId(20, None)))
    assert(preferred() == Map(store -> "2"))
    // The first has fallen behind by then, and is unloaded.
    report("1", run1, StoreChange.Closed(VersionId(20, None), 100))
    assert(preferred() == Map(store -> "2"), "the store that is open goes on")
    report("1", run1, StoreChange.Opened(VersionId(25, None)))
    assert(preferred() == Map(store -> "1"))
  }

  test("a store that is discarded is preferred nowhere") {
    report("1", run1, StoreChange.Opened(VersionId(0, None)))
    report("1", run1, StoreChange.Discarded)
    assert(preferred().isEmpty)
  }

  test("the end of an earlier run's store leaves that of a later run") {
    report("1", run1, StoreChange.Opened(VersionId(0, None)))
    report("1", run2, StoreChange.Opened(VersionId(9, None)))
    report("2", run1, StoreChange.Closed(VersionId(8, None), 10))
    report("1", run1, StoreChange.Discarded)
    assert(preferred() == Map(store -> "1"))
    report("1", run1, StoreChange.Closed(VersionId(3, None), 10))
    assert(preferred() == Map(store -> "1"))
  }

  test("an executor that is gone is not preferred") {
    report("1", run1, StoreChange.Opened(VersionId(9, None)))
    inventory("2", "host2", stored("q", store, 8))
    Placement.removed("1")
    assert(preferred() == Map(store -> "2"))
  }

  test("executors that share a disk divide its stores") {
    val stores = (0 until 64).map(i => stored("q", s"0-$i-default", 10))
    inventory("1", "host", stores: _*)
    inventory("2", "host", stores: _*)
    val shares = preferred().values.groupBy(identity).map(_._2.size)
    assert(shares.size == 2 && shares.forall(_ >= 16))
  }

  test("the coordinator is told once for each run, joins by name of store") {
    inventory("7", "host7", stored("q", "3-5-left-keyToNumValues", 10))
    val operators =
      Seq(new StatefulOperatorStateInfo("/checkpoint/state", run1, 3, 11, 6, None, None))
    Placement.seed(spark, "q", operators)
    val id = StateStoreId("/checkpoint/state", 3, 5, "left-keyToNumValues")
    val location = StatemarkBridge.locationOf(spark, StateStoreProviderId(id, run1))
    assert(location.exists(l => l.contains("host7") && l.contains("7")))
    inventory("8", "host8", stored("q", "3-5-left-keyToNumValues", 11))
    Placement.seed(spark, "q", operators)
    assert(StatemarkBridge.locationOf(spark, StateStoreProviderId(id, run1)) == location)
  }

  test("the coordinator is told of an executor that has the version with the asked id") {
    val change = (id: String) => StoreChange.Closed(VersionId(7, Some(id)), 10)
    report("1", run1, change("old history"))
    report("2", run1, change("new history"))
    val ids = Some(Array(Array("new history")))
    Placement.seed(
      spark,
      "q",
      Seq(new StatefulOperatorStateInfo("/checkpoint/state", run2, 0, 7, 1, None, ids))
    )
    val id = StateStoreProviderId(StateStoreId("/checkpoint/state", 0, 0, "default"), run2)
    assert(StatemarkBridge.locationOf(spark, id).exists(_.contains("host2")))
  }
}
