package statemark.spark

import java.util.UUID
import org.scalatest.funsuite.AnyFunSuite
import scala.collection.mutable
import statemark.engine.VersionId
import statemark.spark.cluster.{StoreChange, StoreReport}
import statemark.spark.process.JvmState

/** What an executor tells the driver of its stores; what the driver makes of it [[PlacementSuite]] tests. */
class StoreReportsSuite extends AnyFunSuite with LocalStores with OneSession {
  import StoreChange._

  private val reports = mutable.ArrayBuffer.empty[StoreReport]

  override protected def beforeEach(): Unit = {
    super.beforeEach()
    reports.clear()
    assert(!spark.sparkContext.isStopped) // an executor has a name and a host
    JvmState.tellDriver.set(Some {
      case report: StoreReport => reports += report: Unit
      case other => fail(s"$other is no report")
    })
  }

  /** The reports since this was asked last; a time is 0. */
  private def changes(): Seq[StoreChange] = {
    val found = reports.toVector.map(_.change).map {
      case Closed(at, usedAtMs) =>
        assert(usedAtMs > 0)
        Closed(at, 0)
      case other => other
    }
    reports.clear()
    found
  }

  for ((format, extra) <- Seq("v1" -> Map.empty[String, String], "v2" -> Providers.v2)) {

    test(
      s"a store is reported with the first batch that goes on from it, and as it is closed ($format)"
    ) {
      val provider = open(extra)
      val ids = commits(provider, 0 until 3)
      assert(reports.map(r => (r.executorId, r.queryId)) == Seq(("driver", query.queryId)))
      assert(reports.forall(r => r.host.nonEmpty && r.address.partition == 0))
      assert(changes() == Seq(Opened(VersionId(0, None))))
      provider.getStore(3, ids(3)).abort()
      provider.close()
      assert(changes() == Seq(Closed(VersionId(3, ids(3)), 0)))

      val restarted = open(extra)
      commit(restarted, 3, Map("k3" -> 3), ids(3))
      assert(changes() == Seq(Opened(VersionId(3, ids(3)))))
    }

    test(s"a store that had fallen behind is reported with the next batch ($format)") {
      val run = UUID.randomUUID()
      val first = open(extra, runId = run)
      val begun = commits(first, 0 until 2)
      val other = open(extra, runId = run)
      val ids = commits(other, 2 until 4, begun)
      changes(): Unit
      commit(first, 4, Map("k4" -> 4), ids(4))
      assert(changes() == Seq(Opened(VersionId(4, ids(4)))))
    }
  }

  test("a store that is only read is not reported") {
    write(3, Map.empty)
    changes(): Unit
    assert(rowsAt(3) == expected(3))
    assert(changes().isEmpty)
  }

  test("a store of which nothing is left is reported as such, with its run") {
    val first = open()
    commits(first, 0 until 3)
    val runs = reports.map(_.address.runId).toSet
    val second = open()
    commit(second, 3, Map("k3" -> 3))
    changes(): Unit
    // The later run's store, made from the first one's, replaces that.
    first.close()
    assert(reports.map(_.address.runId).toSet == runs)
    assert(changes() == Seq(Discarded))
  }

  test("a store that was never on disk is reported as gone") {
    val provider = open()
    commits(provider, 0 until 1)
    provider.close()
    assert(changes() == Seq(Opened(VersionId(0, None)), Discarded))
  }

  test("a driver that cannot be told fails no batch") {
    var asked = 0
    JvmState.tellDriver.set(Some { _ =>
      asked += 1
      throw new IllegalStateException("the driver is gone")
    })
    val provider = open()
    commits(provider, 0 until 3)
    provider.close()
    assert(asked == 2)
    assert(rowsAt(3) == expected(3))
  }

  test("stores that do not outlive their executor are not reported") {
    JvmState.runningTask.set(() => query.copy(hasTemporaryCheckpoint = true))
    val provider = open()
    commits(provider, 0 until 2)
    provider.close()
    assert(changes().isEmpty)
  }
}
