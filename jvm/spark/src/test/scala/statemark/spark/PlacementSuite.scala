package statemark.spark

import java.util.UUID
import org.apache.spark.sql.execution.streaming.state.{
  StateStoreId,
  StateStoreProviderId,
  StatemarkBridge
}
import org.scalatest.BeforeAndAfterEach
import org.scalatest.funsuite.AnyFunSuite
import statemark.spark.cluster.{LocalInventory, LocalStore, Placement}
import statemark.spark.process.JvmState

/** Which executor is preferred for which store. That tasks follow is tested on a cluster
  * (tests/cluster/test_coming_home.py).
  */
class PlacementSuite extends AnyFunSuite with BeforeAndAfterEach with OneSession {
  override protected def beforeEach(): Unit = JvmState.clear()

  private def inventory(executor: String, host: String, stores: LocalStore*): Unit =
    Placement.add(LocalInventory(executor, host, stores.toVector))

  test("the executor that used a store last is preferred") {
    inventory("1", "host1", LocalStore("q", "0-0-default", 10), LocalStore("q", "0-1-default", 99))
    inventory(
      "2",
      "host2",
      LocalStore("q", "0-0-default", 20),
      LocalStore("other", "0-1-default", 100)
    )
    val found = Placement.of("q").map { case (store, holder) => store -> holder.executorId }
    assert(found == Map("0-0-default" -> "2", "0-1-default" -> "1"))
  }

  test("executors that share a disk divide its stores") {
    val stores = (0 until 64).map(i => LocalStore("q", s"0-$i-default", 10))
    inventory("1", "host", stores: _*)
    inventory("2", "host", stores: _*)
    val shares = Placement.of("q").values.groupBy(_.executorId).map(_._2.size)
    assert(shares.size == 2 && shares.forall(_ >= 16))
  }

  test("the coordinator is told once for each run, joins by name of store") {
    inventory("7", "host7", LocalStore("q", "3-5-left-keyToNumValues", 10))
    val run = UUID.randomUUID()
    Placement.seed(spark, "q", run, "/checkpoint/state")
    val id = StateStoreId("/checkpoint/state", 3, 5, "left-keyToNumValues")
    val location = StatemarkBridge.locationOf(spark, StateStoreProviderId(id, run))
    assert(location.exists(l => l.contains("host7") && l.contains("7")))
    inventory("8", "host8", LocalStore("q", "3-5-left-keyToNumValues", 20))
    Placement.seed(spark, "q", run, "/checkpoint/state")
    assert(StatemarkBridge.locationOf(spark, StateStoreProviderId(id, run)) == location)
  }
}
