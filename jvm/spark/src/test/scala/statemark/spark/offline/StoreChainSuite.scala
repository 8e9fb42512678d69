package statemark.spark.offline

import org.scalatest.funsuite.AnyFunSuite
import scala.collection.immutable.AbstractMap
import statemark.engine.VersionId
import statemark.spark.offline.verify.{RestorePath, StoreChain}

/** The way back from a version, as headers tell it. */
class StoreChainSuite extends AnyFunSuite {
  private val newest = 10
  private def v(version: Int) = VersionId(version.toLong, Some(s"a$version"))
  private def headerOf(version: Int) = (math.max(1, version - 3) until version).map(v).toVector

  /** Headers that can be asked as often as there are versions: a way back that asks more often goes in a circle. */
  private final class Bounded(headers: Map[VersionId, Vector[VersionId]])
      extends AbstractMap[VersionId, Vector[VersionId]] {
    private var asked = 0

    override def get(at: VersionId): Option[Vector[VersionId]] = {
      asked += 1
      assert(asked <= newest, "it goes in a circle")
      headers.get(at)
    }
    override def iterator: Iterator[(VersionId, Vector[VersionId])] = headers.iterator
    override def removed(at: VersionId): Map[VersionId, Vector[VersionId]] = headers.removed(at)
    override def updated[V >: Vector[VersionId]](at: VersionId, value: V): Map[VersionId, V] =
      headers.updated(at, value)
  }

  /** Changelogs of format v2 alone, one of them in the place of another. */
  private def chain(places: (Int, Int)*): StoreChain = {
    val standing = places.toMap
    val all = 1 to newest
    StoreChain(
      snapshots = Set.empty,
      changelogs = all.map(v).toSet,
      headers = new Bounded(all.map(i => v(i) -> headerOf(standing.getOrElse(i, i))).toMap)
    )
  }

  test("headers lead from a version to the empty store") {
    assert(chain().path(v(newest)) == Right(RestorePath(None, (1 to newest).map(v).toVector)))
  }

  for ((from, named) <- Seq(5 -> "itself", 6 -> "the next one", 9 -> "later ones"))
    test(s"a way back ends where a header names $named") {
      assert(chain(4 -> from).path(v(newest)) == Left(v(4)))
      assert(chain(4 -> from).path(v(4)) == Left(v(4)))
      assert(chain(4 -> from).path(v(3)).isRight)
    }

  test("a way back ends where a header names earlier ones") {
    assert(chain(7 -> 3).path(v(newest)) == Left(v(7)))
  }

  test("what a header counts on is one of the versions that lead to its own") {
    assert(chain().snapshotOf(v(8)).contains(v(5)))
    assert(chain(8 -> 10).snapshotOf(v(8)).isEmpty)
    assert(chain().lineageProblem(v(8)).isEmpty)
    assert(chain(8 -> 10).lineageProblem(v(8)).exists(_.contains("names versions 7-9")))
  }
}
