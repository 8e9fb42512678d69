package statemark.spark.offline

import org.scalatest.funsuite.AnyFunSuite
import statemark.engine.VersionId
import statemark.spark.checkpoint.RepairLimits
import statemark.spark.offline.verify.{
  Chains,
  CommittedVersion,
  FindingKind,
  RestoreVerdict,
  StoreChain,
  StoreTask
}

/** What the verdict says of files that lead nowhere. */
class RestoreVerdictSuite extends AnyFunSuite {
  private val ids = Seq("a", "b").map(Some(_))

  /** Versions 1 and 2 in format v1, then two in format v2, as if the setting had been changed. */
  private val committed = Seq(
    CommittedVersion(1, None),
    CommittedVersion(2, None),
    CommittedVersion(3, Some(Set("a"))),
    CommittedVersion(4, Some(Set("b")))
  )
  private val third = VersionId(3, ids.head)
  private val fourth = VersionId(4, ids.last)
  private val chain = StoreChain(
    snapshots = Set.empty,
    changelogs = Set(VersionId(1, None), VersionId(2, None), third, fourth),
    headers = Map(third -> Vector.empty, fourth -> Vector(third))
  )
  private val nothing = StoreChain(Set.empty, Set.empty, Map.empty)

  test("a changelog without a way back names the versions that are lost with it") {
    val task = StoreTask(0, 0, "default", "/store", "state/0/0", committed)
    val verdict =
      new RestoreVerdict(task, Chains(chain, nothing), Nil, Map.empty, RepairLimits.never)
    assert(verdict.restorable == Seq(1, 2))
    val finding = verdict.findings.find(_.file == "state/0/0/3_a.changelog").get
    assert(finding.kind == FindingKind.BrokenLineage)
    assert(finding.versions == Seq(3, 4) && finding.lost == Seq(3, 4))
    assert(finding.remedy.endsWith("the newest batch before them that can be restored is 1"))
  }
}
