package statemark.spark.offline.verify

import java.io.File
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.apache.spark.sql.execution.streaming.state.{RocksDBCheckpointMetadata, StatemarkBridge}
import scala.collection.mutable
import statemark.common.{Disk, DiskWrites}
import statemark.engine.VersionId
import statemark.spark.checkpoint.{FileWriters, ListedVersions, StoreFile}
import statemark.spark.local.LocalDirectory
import statemark.spark.offline.checkpoint.{ListedFile, StoreListing}

/** Verifies one store: every file whole, every committed version restorable, nothing that is nobody's.
  *
  * ''Thread:'' one.
  */
final class StoreVerifier(task: StoreTask, settings: VerifySettings, hadoopConf: Configuration) {
  private val scratch = StatemarkBridge.newLocalDirectory("statemark-verify-")
  private val codec = StatemarkBridge.codec(settings.codec)
  private val changelogCheck =
    new ChangelogCheck(codec, settings.hasRowChecksums, settings.mergeDelimiter.length)
  private val problems = mutable.ArrayBuffer.empty[Problem]
  private val files = new StoreFiles(
    new Path(task.directory),
    hadoopConf,
    scratch,
    settings.readsChecksumFiles,
    unread = problems += _
  )

  /** Files whose damage is damage of these snapshots. */
  private val snapshotsOf = mutable.Map.empty[String, Set[VersionId]].withDefaultValue(Set.empty)

  def run(): StoreReport =
    try DiskWrites.to(Disk.Local, scratch.getPath)(verified())
    finally LocalDirectory.deleteTree(scratch)

  private def verified(): StoreReport = {
    val listed = StoreListing.filesOf(files.manager, files.directory, withShared = true)
    val byKind = listed.map(f => (f, StoreFile.of(f.name)))
    val snapshots = byKind.collect { case (f, StoreFile.Snapshot(at)) => at -> f }.toMap
    val changelogs = byKind.collect { case (f, StoreFile.Changelog(at)) => at -> f }.toMap
    val deltas = byKind.collect { case (f, StoreFile.Delta(v)) => VersionId(v, None) -> f }.toMap
    val maps = byKind.collect { case (f, StoreFile.FullMap(v)) => VersionId(v, None) -> f }.toMap

    val whole = changelogs.toSeq.sortBy(_._1.version).flatMap { case (at, f) =>
      changelogFacts(at, f.name).map(at -> _)
    }.toMap
    val headers = whole.collect { case (at, ChangelogFacts(Some(lineage), _)) => at -> lineage }
    deltas.values.foreach(f => checked(f.name)(changelogCheck.map(_, isDelta = true)))
    maps.values.foreach(f => checked(f.name)(changelogCheck.map(_, isDelta = false)))
    val checks = new SnapshotSetCheck(files, settings, listed, problems += _, relate)
    val metadata = checks.run(snapshots.keys.toSeq)
    val writers = new FileWriters(
      files.directory,
      hadoopConf,
      ListedVersions.of(listed.map(f => (f.name, f.bytes))),
      // A load fails where it cannot be had, and does not use the snapshot beside it.
      version => {
        val at = VersionId(version, None)
        whole.contains(at) || files.isAway(StoreFile.changelogName(at))
      }
    )
    if (settings.isDeep) {
      val chain = StoreChain(Set.empty, whole.keySet, headers, writers = writers)
      val rows = checks.rows.filterNot { case (at, _) => chain.isStale(at) }
      new DeepCheck(task, settings, hadoopConf, problems += _).run(chain, rows, metadata)
    }

    val chains = Chains(
      StoreChain(
        snapshots.keySet,
        changelogs.keySet,
        headers,
        metadata.map { case (at, m) => at -> m.columnFamilyMapping.fold(noFamilies)(_.toMap) },
        writers
      ),
      StoreChain(maps.keySet, deltas.keySet, Map.empty)
    )
    val verdict =
      new RestoreVerdict(task, chains, problems.toSeq, snapshotsOf.toMap, settings.repair)
    val loose = new LooseFiles(byKind, metadata, task.formats).run()
    problems ++= loose.problems
    StoreReport(
      task,
      verdict.findings ++ loose.problems.map(verdict.finding),
      verdict.restorable,
      listed.count(f => StoreFile.of(f.name) != StoreFile.Hidden),
      files.bytesRead,
      snapshots.size + maps.size,
      loose.leftovers.size,
      loose.leftovers.map(_.bytes).sum,
      listed.map(f => (f.name, f.bytes, f.modified)).toSet.hashCode
    )
  }

  private def noFamilies: Map[String, Short] = Map.empty

  private def relate(file: String, snapshot: VersionId): Unit =
    snapshotsOf(file) = snapshotsOf(file) + snapshot

  /** What a load gets from a changelog; it stops at the mark of the end, whatever follows. */
  private def changelogFacts(at: VersionId, name: String): Option[ChangelogFacts] = {
    var read = Option.empty[ChangelogFacts]
    files.withCopy(name) { copy =>
      changelogCheck.changelog(copy, mayBeSigned = at.checkpointId.isEmpty).left.map { detail =>
        read = changelogCheck.upToMark(copy)
        val effect = if (read.isDefined) Effect.None else Effect.FailsLoad
        Problem(name, FindingKind.Damaged, detail, effect)
      }
    } match {
      case Right(facts) => Some(facts)
      case Left(problem) =>
        problems += problem
        read
    }
  }

  private def checked[A](name: String)(check: File => Either[String, A]): Option[A] =
    files.withCopy(name)(check(_).left.map(Problem(name, FindingKind.Damaged, _))) match {
      case Right(facts) => Some(facts)
      case Left(problem) =>
        problems += problem
        None
    }
}

/** Verifies the snapshots of one store together: files that they share are read once.
  *
  * @param report is told of each problem
  * @param relate is told which shared file is part of which snapshot
  */
final class SnapshotSetCheck(
    files: StoreFiles,
    settings: VerifySettings,
    listed: Seq[ListedFile],
    report: Problem => Unit,
    relate: (String, VersionId) => Unit
) {
  private val sizes = listed.map(f => f.name -> f.bytes).toMap
  private val shared = mutable.Map.empty[String, Option[File]]
  private val rows_ = mutable.Map.empty[VersionId, RowFacts]

  /** In the deep check, the rows of each whole snapshot. */
  def rows: Map[VersionId, RowFacts] = rows_.toMap

  /** The metadata of all snapshots that have some. */
  def run(snapshots: Seq[VersionId]): Map[VersionId, RocksDBCheckpointMetadata] =
    snapshots.sortBy(_.version).flatMap(at => check(at).map(at -> _)).toMap

  private def check(at: VersionId): Option[RocksDBCheckpointMetadata] = {
    val name = StoreFile.snapshotName(at)
    val image = files.fresh()
    try {
      val unpacked = files.withCopy(name) { zip =>
        SnapshotCheck.parts(zip, image).left.map(Problem(name, FindingKind.Damaged, _))
      }
      unpacked.left.foreach(report)
      unpacked.toOption.map { case (metadata, unread) =>
        // A load reads a zip as a stream, without its directory.
        unread.foreach(d => report(Problem(name, FindingKind.Damaged, d, Effect.None)))
        open(at, name, image, metadata)
        metadata
      }
    } finally SnapshotCheck.delete(image)
  }

  private def open(
      at: VersionId,
      name: String,
      image: File,
      metadata: RocksDBCheckpointMetadata
  ): Unit = {
    val parts = metadata.immutableFiles.map { f =>
      val path = SnapshotSetCheck.path(f.dfsFileName)
      relate(path, at)
      sizes.get(path).filter(_ != f.sizeBytes).foreach { size =>
        report(Problem(
          path,
          FindingKind.WrongSize,
          s"it has $size bytes, and $name says ${f.sizeBytes}"
        ))
      }
      f.dfsFileName -> shared.getOrElseUpdate(path, fetched(path)).filter(_.length == f.sizeBytes)
    }.toMap
    if (parts.values.forall(_.isDefined)) {
      val reading = Option.when(settings.isDeep)(
        RowReading(settings.mergeDelimiter, settings.hasRowChecksums)
      )
      SnapshotCheck.opened(image, metadata, f => parts(f).getOrElse(image), reading) match {
        case Left(detail) => report(Problem(name, FindingKind.Damaged, detail))
        case Right(facts) => facts.foreach(count(at, name, metadata, _))
      }
    }
  }

  private def count(
      at: VersionId,
      name: String,
      metadata: RocksDBCheckpointMetadata,
      facts: RowFacts
  ): Unit = {
    rows_(at) = facts
    if (facts.badChecksums > 0) {
      report(Problem(
        name,
        FindingKind.Damaged,
        s"${facts.badChecksums} rows have a wrong checksum",
        Effect.DoubtsRows(Set.empty)
      ))
    }
    val said = (metadata.numKeys, metadata.numInternalKeys)
    if (metadata.numKeys >= 0 && said != ((facts.keys, facts.internalKeys))) {
      report(Problem(
        name,
        FindingKind.WrongRows,
        s"its metadata says ${said._1} rows and ${said._2} internal ones, and it holds " +
          s"${facts.keys} and ${facts.internalKeys}",
        Effect.None
      ))
    }
  }

  private def fetched(path: String): Option[File] =
    files.copied(path) match {
      case Left(problem) =>
        report(problem)
        None
      case Right(file) =>
        val problem =
          if (path.endsWith(".sst")) SstCheck.problem(file, settings.formatVersion) else None
        problem.foreach { case (detail, effect) =>
          report(Problem(path, FindingKind.Damaged, detail, effect))
        }
        Option.when(problem.forall(_._2 != Effect.FailsLoad))(file)
    }
}

object SnapshotSetCheck {

  /** Where a shared file lies, relative to the directory of the store. */
  def path(name: String): String = if (name.endsWith(".log")) s"logs/$name" else s"SSTs/$name"
}
