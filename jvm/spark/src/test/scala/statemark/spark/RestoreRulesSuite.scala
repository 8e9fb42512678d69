package statemark.spark

import org.scalatest.funsuite.AnyFunSuite
import statemark.engine.VersionId
import statemark.spark.checkpoint.{RepairLimits, RestoreRules}

/** What a restore may start with, and what leads from there. */
class RestoreRulesSuite extends AnyFunSuite {
  private def v(version: Long, attempt: String = "a") = VersionId(version, Some(attempt))
  private val empty = VersionId(0, None)
  private def initial(at: VersionId, header: VersionId*) =
    RestoreRules.initial(at, _ => false, _ => header.toVector)

  test("a header is used as far back as it has no gap, and never beyond its version") {
    assert(initial(v(4), v(2), v(3)) == Some(Vector(v(2), v(3), v(4))))
    assert(initial(v(4), v(1), v(3)) == Some(Vector(v(3), v(4))))
    assert(initial(v(4), v(9)) == Some(Vector(v(4))))
    assert(initial(v(4), v(3), v(4, "b")) == Some(Vector(v(4))))
    assert(initial(v(4), v(3), v(3, "b")) == Some(Vector(v(3, "b"), v(4))))
    assert(initial(VersionId(4, None), v(3)).isEmpty)
  }

  test("headers are followed to one that is gone, or leads nowhere") {
    val headers = Map(v(9) -> Vector(v(7), v(8)), v(7) -> Vector(v(6)), v(6) -> Vector(v(2)))
    assert(RestoreRules.reached(1, v(9), headers.get) == Vector(6, 7, 8, 9).map(v(_)))
    assert(RestoreRules.reached(7, v(9), headers.get) == Vector(7, 8, 9).map(v(_)))
    assert(RestoreRules.reached(1, v(9), headers.removed(v(7)).get) == Vector(7, 8, 9).map(v(_)))
  }

  test("no snapshot of a later version, of another attempt or of the other format is eligible") {
    val snapshots = Seq(v(3), v(6), v(6, "b"), v(9), VersionId(5, None), VersionId(9, None))
    val lineage = Some(Vector(v(3), v(6), v(8), v(9)))
    assert(RestoreRules.eligible(snapshots, v(8), lineage) == Vector(v(6), v(3), empty))
    assert(RestoreRules.eligible(snapshots, VersionId(8, None), None) ==
      Vector(VersionId(5, None), empty))
  }

  test("a repair goes no further than it may, and does not try the same snapshot again") {
    val eligible = Vector(v(6), v(3), empty)
    def tried(limits: RepairLimits) = RestoreRules.forRepair(eligible, v(6), v(8), limits)
    assert(tried(RepairLimits(isEnabled = true, 50)) == Vector(v(3), empty))
    assert(tried(RepairLimits(isEnabled = true, 5)) == Vector(v(3)))
    assert(tried(RepairLimits(isEnabled = true, 4)).isEmpty && tried(RepairLimits.never).isEmpty)
  }
}
