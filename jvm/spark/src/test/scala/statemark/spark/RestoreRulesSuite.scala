package statemark.spark

import org.scalatest.funsuite.AnyFunSuite
import statemark.engine.VersionId
import statemark.spark.checkpoint.{
  Before,
  ChangelogSignature,
  FileBytes,
  ListedVersions,
  NamedChangelog,
  RepairLimits,
  RestoreRules,
  SnapshotWriter,
  VersionWriters
}

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

  /** Versions 1 to 9 in checkpoint format v1, each with a changelog of ten bytes. */
  private final class Written(
      snapshots: Map[Long, SnapshotWriter],
      foreign: Set[Long] = Set.empty,
      before: Map[Long, Before] = Map.empty,
      damaged: Set[Long] = Set.empty
  ) extends VersionWriters {
    override val listed: ListedVersions = ListedVersions(
      snapshots.keys.map(VersionId(_, None)).toSeq,
      (1L to 9L).map(_ -> 10L).toMap
    )
    override def changelog(version: Long): Option[ChangelogSignature] =
      Option.when(!foreign(version) && !damaged(version))(
        ChangelogSignature(ofRun(1, version), before.getOrElse(version, Before.Own))
      )
    override def isWhole(version: Long): Boolean = !damaged(version)
    override def snapshot(version: Long): SnapshotWriter = snapshots(version)
  }

  private def ofRun(run: Long, random: Long) = (run << 32) | random
  private def signed(id: Long) = SnapshotWriter.Own(Some(NamedChangelog.Signed(id)))
  private def unsigned(length: Long) =
    SnapshotWriter.Own(Some(NamedChangelog.Unsigned(FileBytes(length, 1))))
  private val own = signed(ofRun(1, 3))
  private val rewritten = signed(ofRun(2, 3))

  test(
    "a snapshot is stale where it is ours, and names a changelog of another run than the one that is there"
  ) {
    val all = Map(
      1L -> signed(ofRun(1, 99)),
      2L -> signed(ofRun(2, 2)),
      3L -> unsigned(10),
      4L -> unsigned(11),
      5L -> SnapshotWriter.Own(None),
      6L -> SnapshotWriter.Foreign,
      7L -> SnapshotWriter.Unknown
    )
    def stale(writers: VersionWriters) =
      all.keys.toSeq.sorted.filter(RestoreRules.isStale(_, writers))
    val every = (1L to 9L).toSet
    assert(stale(new Written(all)) == Seq(2, 3, 4))
    assert(stale(new Written(all, foreign = every)) == Seq(1, 2, 4))
    // What cannot be read says nothing against what can.
    assert(stale(new Written(all, damaged = every)).isEmpty)
  }

  test(
    "a changelog of ours beside a snapshot of another's leads nowhere, ours beside any other does"
  ) {
    def overtaken(snapshot: SnapshotWriter, foreign: Long*) =
      RestoreRules.overtaken(3, 9, new Written(Map(3L -> own, 6L -> snapshot), foreign.toSet))
    assert(overtaken(SnapshotWriter.Foreign).contains(6L))
    assert(overtaken(SnapshotWriter.Foreign, 6).isEmpty)
    assert(overtaken(signed(ofRun(1, 6))).isEmpty && overtaken(rewritten).isEmpty)
    assert(overtaken(SnapshotWriter.Unknown).isEmpty)
    assert(RestoreRules.overtaken(6, 9, new Written(Map(6L -> own))).isEmpty)
  }

  test("a changelog on a version of ours does not go on from a snapshot of another's") {
    def overtaken(before: Before) = RestoreRules.overtaken(
      6,
      9,
      new Written(Map(6L -> SnapshotWriter.Foreign), before = Map(7L -> before))
    )
    assert(overtaken(Before.Own).contains(7L))
    assert(overtaken(Before.Foreign).isEmpty)
    val same = new Written(Map(6L -> SnapshotWriter.Foreign))
    assert(RestoreRules.overtaken(6, 6, same).isEmpty)
  }

  test("local state counts where both files of a version are ours") {
    val all = Map(3L -> own, 4L -> SnapshotWriter.Foreign, 5L -> SnapshotWriter.Unknown)
    assert(all.keys.toSeq.filter(RestoreRules.areOwn(_, new Written(all))) == Seq(3L))
    assert(!RestoreRules.areOwn(3, new Written(all, foreign = Set(3L))))
  }

  test("a repair goes no further than it may, and does not try the same snapshot again") {
    val eligible = Vector(v(6), v(3), empty)
    def tried(limits: RepairLimits) = RestoreRules.forRepair(eligible, v(6), v(8), limits)
    assert(tried(RepairLimits(isEnabled = true, 50)) == Vector(v(3), empty))
    assert(tried(RepairLimits(isEnabled = true, 5)) == Vector(v(3)))
    assert(tried(RepairLimits(isEnabled = true, 4)).isEmpty && tried(RepairLimits.never).isEmpty)
  }
}
