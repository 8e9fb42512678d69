package statemark.spark.offline.verify

import statemark.engine.VersionId
import statemark.spark.checkpoint.{RepairLimits, StoreFile}

/** The ways to restore a store: in the layout of the RocksDB providers, and of the HDFS-backed one. */
final case class Chains(rocksDb: StoreChain, hdfs: StoreChain) {
  private def isHdfs: Boolean =
    rocksDb.snapshots.isEmpty && rocksDb.changelogs.isEmpty && (hdfs.snapshots ++ hdfs.changelogs).nonEmpty

  def path(at: VersionId): Either[VersionId, RestorePath] =
    rocksDb.path(at).left.flatMap { missing =>
      // A checkpoint that was switched has both for the versions around the switch.
      hdfs.path(at).left.map(other => if (isHdfs) other else missing)
    }

  /** How a provider restores a version where some files fail when they are read. */
  def restored(at: VersionId, bad: BadFiles, limits: RepairLimits): Option[RestorePath] =
    rocksDb.restored(at, bad, limits).orElse(hdfs.restored(at, bad, limits))

  def has(at: VersionId): Boolean =
    Seq(rocksDb, hdfs).exists(c => c.snapshots(at) || c.changelogs(at))

  /** The name of the file that ought to restore a version and does not exist. */
  def missingName(at: VersionId): String =
    if (isHdfs) s"${at.version}.delta"
    else {
      val lowest = (rocksDb.snapshots ++ rocksDb.changelogs).map(_.version).minOption
      val isBase = at.version > 1 && lowest.exists(_ > at.version)
      if (rocksDb.changelogs.isEmpty || isBase) StoreFile.snapshotName(at)
      else StoreFile.changelogName(at)
    }
}

/** Says for each committed version of a store whether it can be restored, and for each problem which
  * versions it concerns.
  *
  * @param snapshotsOf for a shared file, the snapshots that name it
  * @param limits of the repair that a load may do
  */
final class RestoreVerdict(
    task: StoreTask,
    chains: Chains,
    problems: Seq[Problem],
    snapshotsOf: Map[String, Set[VersionId]],
    limits: RepairLimits
) {
  private val committed: Seq[VersionId] = task.committed.map { c =>
    c.ids.fold(VersionId(c.version, None)) { ids =>
      val candidates = ids.toSeq.sorted.map(id => VersionId(c.version, Some(id)))
      candidates.find(chains.has).getOrElse(candidates.headOption.getOrElse(VersionId(
        c.version,
        None
      )))
    }
  }
  private val whole = BadFiles(Set.empty, Set.empty)
  private val paths = committed.map { at =>
    at -> chains.path(at).flatMap { byFiles =>
      chains.restored(at, whole, limits).orElse(Some(byFiles).filter(_ => counted(at).isEmpty))
        .toRight(counted(at).getOrElse(at))
    }
  }
  private val oldest = paths.collectFirst { case (at, Right(_)) => at.version }
  private val idOf: Map[Long, Option[String]] =
    committed.map(c => c.version -> c.checkpointId).toMap

  private val lineage: Seq[Problem] = committed.flatMap(lineageProblem)
  private val missing: Seq[(String, Long)] = paths.collect {
    // Files lead there, by a way that no load takes without this snapshot.
    case (at, Left(end)) if isHole(at) && chains.path(at).isRight =>
      StoreFile.snapshotName(end) -> at.version
    case (at, Left(end)) if isHole(at) && !isBroken(end) => chains.missingName(end) -> at.version
  }
  private val broken: Seq[Problem] = problems ++ lineage
  private val bad = BadFiles(
    broken.filter(_.effect == Effect.FailsLoad).flatMap(p => snapshotUnits(p.file)).toSet,
    broken.filter(_.effect == Effect.FailsLoad).flatMap(p => changelogUnit(p.file)).toSet
  )

  /** Committed versions that a provider restores, with rows that nothing speaks against. */
  val restorable: Seq[Long] = committed.filter { at =>
    chains.restored(at, bad, limits).exists(path => !broken.exists(isDoubted(path, _)))
  }.map(_.version)

  /** Changelogs of another history, where nothing else leads to a committed version. */
  private val overtaken: Seq[Problem] = for {
    at <- committed if chains.restored(at, bad, limits).isEmpty
    path <- chains.path(at).toSeq
    version <- chains.rocksDb.overtaken(path.snapshot.fold(0L)(_.version), at)
  } yield Problem(
    StoreFile.changelogName(version),
    FindingKind.BrokenLineage,
    s"it is of a history that was rolled back, and the snapshot ${StoreFile.snapshotName(version)} of the one after it " +
      "is not there"
  )

  def findings: Seq[Finding] = {
    val holes = missing.groupBy(_._1).toSeq.sortBy(_._2.head._2).map { case (file, at) =>
      val versions = at.map(_._2)
      toFinding(Problem(file, FindingKind.Missing, "it is not there"), versions, versions)
    }
    holes ++ (broken ++ overtaken).distinctBy(p => (p.file, p.kind)).map(finding)
  }

  def finding(problem: Problem): Finding = {
    val snapshots = snapshotUnits(problem.file)
    val changelog = changelogUnit(problem.file)
    def needs(path: RestorePath) =
      path.snapshot.exists(snapshots) || path.changelogs.exists(changelog.contains) ||
        isDoubted(path, problem)
    val versions = paths.collect {
      case (at, Right(path)) if needs(path) => at.version
      // Nothing restores a version whose way back ends at the file.
      case (at, Left(end)) if Seq(at, end).exists(v => snapshots(v) || changelog.contains(v)) =>
        at.version
    }
    toFinding(problem, versions, versions.filterNot(restorable.toSet))
  }

  /** Two ways to a version give other rows: what goes either of them is in doubt. */
  private def isDoubted(path: RestorePath, problem: Problem): Boolean = problem.effect match {
    case Effect.DoubtsRows(changelogs) =>
      path.snapshot.exists(snapshotUnits(problem.file)) || path.changelogs.exists(changelogs)
    case _ => false
  }

  /** The snapshot that a load of `at` counts on and that is not there. */
  private def counted(at: VersionId): Option[VersionId] = chains.rocksDb.snapshotOf(at)

  private def toFinding(problem: Problem, versions: Seq[Long], lost: Seq[Long]): Finding =
    Finding(
      s"${task.relative}/${problem.file}",
      problem.kind,
      problem.detail,
      versions,
      lost,
      remedy(problem, versions, lost)
    )

  private def remedy(problem: Problem, versions: Seq[Long], lost: Seq[Long]): String =
    problem.kind match {
      case FindingKind.Orphan =>
        "delete it once the query is stopped, if no snapshot names it then"
      case FindingKind.Foreign => "move it out of the checkpoint: retention may fail on its name"
      case FindingKind.WrongChecksum if lost.isEmpty && versions.isEmpty =>
        "delete the checksum file, or bring both files back from a copy"
      case FindingKind.WrongRows if problem.effect == Effect.None =>
        "a wrong count harms metrics only"
      case FindingKind.WrongRows =>
        "which of the two is right is not known: restart from a batch that can be restored, or bring " +
          "both back from a copy"
      case _ if lost.nonEmpty =>
        val back =
          restorable.filter(_ < lost.min).lastOption.fold("no older batch can be restored") { v =>
            s"the newest batch before them that can be restored is ${v - 1}"
          }
        s"bring it back from a copy; $back"
      case _ if versions.nonEmpty =>
        "bring it back from a copy; until then older snapshots and changelogs restore these versions " +
          "(spark.sql.streaming.stateStore.autoSnapshotRepair.enabled)"
      case _ => "no committed version needs it; retention deletes it"
    }

  /** What retention has deleted is no hole. What stands before the oldest version without a way back
    * is one, unless retention may have been interrupted there: the commit log may be two batches longer
    * than the state.
    */
  private def isHole(at: VersionId): Boolean = oldest match {
    case None => at == committed.last || (chains.has(at) && isBeyondRetention(at))
    case Some(first) => at.version > first || (chains.has(at) && isBeyondRetention(at))
  }

  private def isBeyondRetention(at: VersionId): Boolean =
    committed.headOption.exists(first => first.version == 1 || first.version + 1 < at.version)

  /** The way back ends at a file that is there; what is wrong with it is reported by itself. */
  private def isBroken(end: VersionId): Boolean =
    chains.rocksDb.changelogs(end) && !chains.rocksDb.snapshots(end)

  private def lineageProblem(at: VersionId): Option[Problem] = {
    val rocksDb = chains.rocksDb
    val named = rocksDb.headers.get(at).flatMap(_.lastOption)
    val other =
      named.filter(n => idOf.get(n.version).exists(id => id.isDefined && id != n.checkpointId))
    rocksDb.lineageProblem(at).orElse(other.map { n =>
      s"its header continues attempt ${n.checkpointId.getOrElse("")} of version ${n.version}, and the " +
        s"commit log names ${idOf(n.version).getOrElse("")}"
    }).map(Problem(StoreFile.changelogName(at), FindingKind.BrokenLineage, _))
  }

  private def snapshotUnits(file: String): Set[VersionId] = StoreFile.of(mainFile(file)) match {
    case StoreFile.Snapshot(at) => Set(at)
    case StoreFile.FullMap(version) => Set(VersionId(version, None))
    case _ => snapshotsOf.getOrElse(file, Set.empty)
  }

  private def changelogUnit(file: String): Option[VersionId] = StoreFile.of(mainFile(file)) match {
    case StoreFile.Changelog(at) => Some(at)
    case StoreFile.Delta(version) => Some(VersionId(version, None))
    case _ => None
  }

  private def mainFile(file: String): String = file.stripSuffix(".crc")
}
