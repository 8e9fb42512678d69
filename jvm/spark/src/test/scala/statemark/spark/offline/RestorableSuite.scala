package statemark.spark.offline

import java.nio.file.{Files, Path, StandardCopyOption}
import java.util.UUID
import org.apache.hadoop.conf.Configuration
import org.apache.spark.sql.execution.streaming.state.{
  StateStore,
  StateStoreConf,
  StateStoreProvider
}
import org.apache.spark.sql.internal.SQLConf
import org.scalatest.funsuite.AnyFunSuite
import scala.util.control.NonFatal
import scala.util.Random
import statemark.common.{Causes, StoreUnusableException}
import statemark.spark.{DeniedFileSystem, Line, LocalStores, Providers, SnapshotBytes}
import statemark.spark.offline.verify.{
  CommittedVersion,
  FindingKind,
  StoreReport,
  StoreTask,
  StoreVerifier,
  VerifySettings
}
import statemark.spark.snapshot.SnapshotSearch

/** What `verify` says of a version is what a provider without local state does: where the verdict is that it can be
  * restored, it has the right rows, and all that it restored from is whole; elsewhere the load fails, the rows are
  * others, or a later read of the store may meet damage.
  */
class RestorableSuite extends AnyFunSuite with LocalStores {
  import RestorableSuite._

  private val stateStore = "spark.sql.streaming.stateStore"
  private val newest = 12
  private val everyThree = Map(
    s"$stateStore.minDeltasForSnapshot" -> "3",
    s"$stateStore.rocksdb.mergeOperatorVersion" -> "2"
  )
  private val repairs = Map(s"$stateStore.autoSnapshotRepair.enabled" -> "true")
  private val noRepair = Map(s"$stateStore.autoSnapshotRepair.enabled" -> "false")
  private def replays(most: Int) =
    repairs + (s"$stateStore.autoSnapshotRepair.maxChangeFileReplay" -> most.toString)
  private val few = Map(
    "spark.sql.streaming.minBatchesToRetain" -> "4",
    s"$stateStore.minVersionsToDelete" -> "0",
    "spark.sql.streaming.ratioExtraSpaceAllowedInCheckpoint" -> "0"
  )
  private val noChecksumFiles =
    Map("spark.sql.streaming.checkpoint.fileChecksum.enabled" -> "false")
  // A cache of its own for each store: what another has read hides damage.
  private val ownCache = Map(s"$stateStore.rocksdb.boundedMemoryUsage" -> "false")
  private val formats = Seq("v1" -> Map.empty[String, String], "v2" -> Providers.v2)

  private def written(conf: Map[String, String]): Written = {
    val provider = open(everyThree ++ conf)
    val ids = (0 until newest).foldLeft(Vector(Option.empty[String])) { (ids, v) =>
      val next = commits(provider, v to v, ids)
      provider.doMaintenance()
      next
    }
    provider.getStore(newest.toLong, ids.last).abort()
    provider.doMaintenance()
    provider.close()
    Written(ids, (0 until newest).toVector)
  }

  /** A history in format v1 or v2, and the settings of whoever restores it. */
  private final class History(
      conf: Map[String, String],
      restoring: Map[String, String],
      write: Map[String, String] => Written = written
  ) {
    private val kept = queryDir.resolve("kept")
    val versions: Written = write(conf)
    def ids: Vector[Option[String]] = versions.ids
    def newest: Int = versions.newest
    private val extra = everyThree ++ conf ++ restoring
    LocalStores.copyTree(storeDir, kept)

    /** Takes all damage back. */
    def heal(): Unit = {
      statemark.spark.local.LocalDirectory.deleteTree(storeDir.toFile)
      LocalStores.copyTree(kept, storeDir)
      denied = Set.empty
    }

    def report(isDeep: Boolean = false): StoreReport = {
      val conf = new SQLConf()
      extra.foreach { case (key, value) => conf.setConfString(key, value) }
      val committed = (1 to newest).map(v => CommittedVersion(v.toLong, ids(v).map(Set(_))))
      val task = StoreTask(0, 0, "default", s"$location/0/0", "state/0/0", committed)
      val limits = SnapshotSearch.limits(new StateStoreConf(conf))
      val reads = !restoring.toSet.intersect(noChecksumFiles.toSet).nonEmpty
      val settings = VerifySettings("lz4", false, "", 5, extra, limits, reads, isDeep)
      new StoreVerifier(task, settings, hadoopConf(UUID.randomUUID())).run()
    }

    /** What a provider elsewhere makes of a version: the right rows, from files that are whole to the last byte that
      * RocksDB may read; others; or a failure.
      */
    def outcome(version: Int): Outcome = {
      hosts += 1
      val host = Map(localDir -> queryDir.resolve(s"host$hosts").toString)
      val provider = open(extra ++ ownCache ++ host)
      def look(): Outcome = {
        val store = provider.getStore(version.toLong, ids(version))
        try {
          keeperOf(provider).generation.foreach(_.store.verify())
          val areRight = rows(store) == versions.rows(version) &&
            (0 until newest).forall(v => isFound(store, s"k$v") == v < version)
          if (areRight) Restored else WrongRows
        } finally store.abort()
      }
      try look()
      catch {
        // Damage that a read meets makes the next attempt look at every byte.
        case e: Exception if Causes.of(e).exists(_.isInstanceOf[StoreUnusableException]) =>
          try look()
          catch { case NonFatal(again) => Failed(again) }
        case NonFatal(e) => Failed(e)
      } finally provider.close()
    }

    def restores(version: Int): Boolean = outcome(version) == Restored

    def restored: Seq[Long] = (1 to newest).filter(restores).map(_.toLong)
  }
  private var hosts = 0

  private def isFound(store: StateStore, key: String): Boolean =
    Option(store.get(Providers.key(key))).isDefined

  /** Paths below the store that are there and may not be read. */
  @volatile private var denied = Set.empty[String]

  override protected def hadoopConf(runId: UUID): Configuration = {
    val conf = super.hadoopConf(runId)
    // Files are opened through the class above then.
    conf.unset("fs.AbstractFileSystem.counting.impl")
    DeniedFileSystem.settings.foreach { case (key, value) => conf.set(key, value) }
    conf
  }

  override protected def beforeEach(): Unit = {
    super.beforeEach()
    DeniedFileSystem.isDenied = path => denied.exists(name => path.endsWith(s"/0/0/$name"))
  }

  override protected def afterEach(): Unit = {
    denied = Set.empty
    isSpared = _ => false
    DeniedFileSystem.isDenied = _ => false
    super.afterEach()
  }

  private def file(version: Int, suffix: String): Path = storeDir.resolve(
    files(suffix).find(_.takeWhile(_.isDigit) == s"$version").getOrElse(
      fail(s"no $version$suffix among ${files(suffix)}")
    )
  )

  private def rewrite(file: Path)(change: Array[Byte] => Array[Byte]): Unit = {
    Files.write(file, change(Files.readAllBytes(file)))
    deleteSidecar(file)
  }

  private def deleteSidecar(file: Path): Unit =
    Seq(s"${file.getFileName}.crc", s".${file.getFileName}.crc")
      .foreach(name => Files.deleteIfExists(file.resolveSibling(name)): Unit)

  private def halve(file: Path): Unit = rewrite(file)(bytes => bytes.take(bytes.length / 2))

  // ---- ways that a verdict from files alone did not know

  for ((format, more) <- formats) {
    test(s"the newest snapshot is cut, and retention has deleted what came first ($format)") {
      val history = new History(more ++ few, repairs)
      assert(!files(".changelog").exists(_.takeWhile(_.isDigit) == "1"))
      halve(file(newest, ".zip"))
      assert(history.restores(newest) == Line.hasStoreOf42)
      assert(history.report().restorable == history.restored)
    }

    test(s"the newest snapshot is cut, and a header in the middle is gone ($format)") {
      val history = new History(more, repairs)
      halve(file(newest, ".zip"))
      Files.delete(file(5, ".changelog"))
      assert(history.restores(newest) == Line.hasStoreOf42)
      assert(history.report().restorable == history.restored)
    }

    test(s"the older snapshot is further than a repair goes ($format)") {
      val history = new History(more, replays(2))
      halve(file(newest, ".zip"))
      assert(!history.restores(newest))
      val report = history.report()
      assert(report.restorable == history.restored)
      assert(report.findings.exists(f => f.lost == Seq(newest.toLong)), report.findings)
    }

    test(s"automatic repair is off ($format)") {
      val history = new History(more, noRepair)
      halve(file(newest, ".zip"))
      assert(!history.restores(newest))
      assert(history.report().restorable == history.restored)
    }

    test(s"a snapshot that headers count on is gone, and no repair may do without ($format)") {
      val history = new History(more, noRepair)
      Files.delete(file(9, ".zip"))
      val report = history.report()
      assert(report.restorable == history.restored)
      val lost = (1L to newest.toLong).diff(report.restorable)
      assert(lost.forall(v => report.findings.exists(_.lost.contains(v))), report.findings)
      assert((format == "v1") == lost.isEmpty)
    }

    test(s"a file whose name is of the other format is passed over, and reported ($format)") {
      val history = new History(more, repairs)
      val name = if (format == "v1") s"11_${UUID.randomUUID()}.zip" else "11.zip"
      Files.copy(file(9, ".zip"), storeDir.resolve(name))
      assert(history.restores(newest) && history.restores(11))
      val report = history.report()
      assert(report.restorable == history.restored)
      assert(report.findings.map(f => (f.file, f.kind)) ==
        Seq((s"state/0/0/$name", FindingKind.Foreign)))
    }

    test(s"--deep: two ways give other rows, and neither is promised ($format)") {
      val history = new History(more, repairs)
      // With its signature format v1 tells that it is another version's.
      rewrite(file(9, ".zip"))(_ =>
        SnapshotBytes.withoutSignature(Files.readAllBytes(file(6, ".zip")))
      )
      assert(!history.restores(9) && !history.restores(11))
      val report = history.report(isDeep = true)
      val wrong = report.findings.filter(_.kind == FindingKind.WrongRows)
      assert(wrong.exists(f => f.detail.contains("6") && f.detail.contains(".changelog")), wrong)
      assert(Seq(9L, 10L, 11L).forall(v => !report.restorable.contains(v)))
      assert(Seq(6L, 12L).forall(report.restorable.contains))
      assert(report.restorable.forall(history.restored.contains))
    }

    test(s"--deep: a changelog in the place of one whose version has a snapshot ($format)") {
      val history = new History(more, repairs)
      for (from <- Seq(1, 8, 10)) {
        rewrite(file(9, ".changelog"))(_ => Files.readAllBytes(file(from, ".changelog")))
        val report = history.report(isDeep = true)
        withClue(s"the changelog of $from, ${report.findings}: ") {
          assert(report.findings.exists(f => f.kind != FindingKind.Missing))
          assert(report.restorable.diff(history.restored).isEmpty)
        }
        history.heal()
      }
    }
  }

  test("a header that names later versions leads to none of them") {
    val history = new History(Providers.v2, repairs)
    rewrite(file(4, ".changelog"))(_ => Files.readAllBytes(file(10, ".changelog")))
    val provider =
      open(ownCache ++ everyThree ++ Providers.v2 ++ repairs + (localDir -> s"$queryDir/other"))
    intercept[Exception](provider.getStore(4, history.ids(4)).abort())
    assert(!history.report().restorable.contains(4L))
    assert(history.report().restorable == history.restored)
    // The changelog of 5 leads from 4 to 4, that of 10 past the next snapshot.
    for (from <- Seq(5, 10)) {
      history.heal()
      rewrite(file(4, ".changelog"))(_ => Files.readAllBytes(file(from, ".changelog")))
      val report = history.report(isDeep = true)
      withClue(s"the changelog of $from, ${report.findings}: ") {
        assert(report.findings.exists(f =>
          f.kind == FindingKind.BrokenLineage && f.file.contains("/4_")
        ))
        assert(report.restorable.diff(history.restored).isEmpty)
      }
    }
  }

  // ---- any damage

  private type Damage = (String, Random => Unit)

  /** Names of files that no random damage meets. */
  private var isSpared: String => Boolean = _ => false

  private def one(random: Random, suffix: String): Option[Path] = {
    val all =
      if (suffix == ".sst") sstFiles(storeDir.resolve("SSTs")).sortBy(_.toString)
      else files(suffix).filterNot(isSpared).map(storeDir.resolve)
    Option.when(all.nonEmpty)(all(random.nextInt(all.length)))
  }

  private def changing(suffix: String, name: String)(
      change: (Random, Array[Byte]) => Array[Byte]
  ): Damage =
    (
      s"$name $suffix",
      random =>
        one(random, suffix).foreach { file =>
          Files.write(file, change(random, Files.readAllBytes(file)))
          if (random.nextBoolean()) deleteSidecar(file)
        }
    )

  private val SstFooter = 53

  private def flipped(bytes: Array[Byte], at: Int, mask: Int): Array[Byte] = {
    if (at < bytes.length) bytes(at) = (bytes(at) ^ mask).toByte
    bytes
  }

  private val damages: Seq[Damage] = {
    val gone = Seq(".changelog", ".zip", ".sst").map(s =>
      (s"gone $s", (r: Random) => one(r, s).foreach(Files.delete(_)))
    )
    val cut = Seq(".changelog", ".zip", ".sst").map(s =>
      changing(s, "cut")((random, bytes) => bytes.take(random.nextInt(bytes.length)))
    )
    // What stands behind the last byte that a load reads.
    val end = Seq(".changelog", ".zip").flatMap(s =>
      Seq(
        changing(s, "end cut")((random, bytes) => bytes.dropRight(1 + random.nextInt(12))),
        changing(s, "longer")((_, bytes) => bytes ++ Array[Byte](1, 2, 3))
      )
    )
    val bits = Seq(".changelog", ".zip").map(s =>
      changing(s, "flipped") { (random, bytes) =>
        flipped(bytes, random.nextInt(math.max(bytes.length, 1)), 1 << random.nextInt(8))
      }
    )
    val row = changing(".sst", "flipped row in")((_, bytes) => flipped(bytes, 20, 1))
    // Of a table that says that it has no checksums, nobody knows whether it is damaged.
    val block = changing(".sst", "flipped") { (random, bytes) =>
      val at = random.nextInt(math.max(bytes.length, 1))
      if (at == bytes.length - SstFooter) bytes else flipped(bytes, at, 1 << random.nextInt(8))
    }
    val refused = Seq(".changelog", ".zip", ".sst").map(s =>
      (
        s"denied $s",
        (r: Random) => one(r, s).foreach(f => denied = denied + s"${storeDir.relativize(f)}")
      )
    )
    val sidecars: Damage = (
      "wrong checksum file",
      random =>
        one(random, ".crc").foreach { file =>
          val other = one(random, ".crc").getOrElse(file)
          Files.copy(other, file, StandardCopyOption.REPLACE_EXISTING)
          deleteSidecar(file)
        }
    )
    val named: Damage = (
      "other format",
      random =>
        one(random, ".zip").foreach { zip =>
          val version = 1 + random.nextInt(newest)
          val name =
            if (zip.getFileName.toString.contains("_")) s"$version.zip"
            else s"${version}_${UUID.randomUUID()}.zip"
          Files.copy(zip, storeDir.resolve(name), StandardCopyOption.REPLACE_EXISTING): Unit
        }
    )
    gone ++ cut ++ end ++ bits ++ refused ++ Seq(row, block, sidecars, named)
  }

  // 4 for each history in the tests; more by -Dstatemark.restorable.seeds.
  private val seeds = Integer.getInteger("statemark.restorable.seeds", 4).intValue

  for {
    (format, more) <- formats
    (retained, retention) <- Seq("all" -> Map.empty[String, String], "few" -> few)
    (how, restoring) <- Seq(
      "repair" -> repairs,
      "3 replays" -> (replays(3) ++ noChecksumFiles),
      "none" -> noRepair
    )
  } test(s"random damage: format $format, $retained batches retained, repair: $how") {
    val history = new History(more ++ retention, restoring)
    assert(history.report().findings.isEmpty)
    for (seed <- 0 until seeds) {
      val random = new Random(s"$format $retained $how $seed".hashCode.toLong)
      val chosen = Seq.fill(1 + random.nextInt(3))(damages(random.nextInt(damages.length)))
      chosen.foreach(_._2(random))
      val report = history.report()
      withClue(s"seed $seed, ${chosen.map(_._1).mkString(", ")}, ${report.findings}: ") {
        val restored = history.restored
        assert(report.restorable == restored)
      }
      history.heal()
    }
  }

  // A whole file in the place of another is found by its rows only.
  for ((format, more) <- formats) test(s"--deep: a file in the place of another ($format)") {
    val history = new History(more, repairs)
    for (seed <- 0 until seeds) {
      val random = new Random(s"$format swapped $seed".hashCode.toLong)
      val suffix = if (random.nextBoolean()) ".zip" else ".changelog"
      val (from, to) = (one(random, suffix).get, one(random, suffix).get)
      val bytes = Files.readAllBytes(from)
      // A snapshot that names another changelog than the one beside it is passed over, whatever it holds.
      val isOther = from != to && suffix == ".zip"
      rewrite(to)(_ => if (isOther) SnapshotBytes.withoutSignature(bytes) else bytes)
      val report = history.report(isDeep = true)
      withClue(s"seed $seed, ${from.getFileName} as ${to.getFileName}, ${report.findings}: ") {
        assert(report.findings.nonEmpty == (from != to))
        assert(report.restorable.diff(history.restored).isEmpty)
      }
      history.heal()
    }
  }

  // ---- histories of both providers

  private val changelogsKey = s"$stateStore.rocksdb.changelogCheckpointing.enabled"
  private val mostSegments = 5
  private val mostVersions = 3

  /** Segments of some versions, each by either provider on a host of its own, most after a rollback by hand. */
  private final class Mixed(random: Random, conf: Map[String, String], log: StringBuilder) {
    private val isV1 = !conf.contains(Providers.v2.head._1)
    private var now = Written(Vector(None), Vector.empty)

    /** By version and by file: the segment that wrote it last. */
    private var writtenIn = Map.empty[Int, Int]
    private var changedIn = Map.empty[String, Int]
    private var bytes = Map.empty[String, Seq[Byte]]
    private var sparks = Map(".zip" -> Set.empty[Int], ".changelog" -> Set.empty[Int])
    private var misleadsSpark = false

    def written(): Written = {
      (0 until mostSegments).foreach { at =>
        if (now.newest > 1 && random.nextInt(3) > 0) {
          now = now.take(now.newest - 1 - random.nextInt(math.min(mostVersions, now.newest - 1)))
          log ++= s"rolled back to ${now.newest}; "
        }
        segment(at, isSpark = random.nextInt(5) < 3)
      }
      now
    }

    private def versionOf(name: String): Int = name.takeWhile(_.isDigit).toInt

    private def segment(at: Int, isSpark: Boolean): Unit = {
      def stale(suffix: String) = files(suffix).map(versionOf).filter(isV1 && _ > now.newest)
      // A snapshot and a changelog of Spark's own, of two histories: nothing tells that they are.
      def isClear(left: String) = !stale(left).exists(sparks(left))
      val hasChangelogs =
        !isSpark || isClear(".zip") && (random.nextBoolean() || !isClear(".changelog"))
      val isSparks = isSpark && isClear(if (hasChangelogs) ".zip" else ".changelog")
      misleadsSpark ||= isSparks && hasChangelogs && stale(".zip").nonEmpty
      val times = 1 + random.nextInt(mostVersions)
      log ++= s"${if (isSparks) s"Spark's, changelogs $hasChangelogs" else "ours"}, $times versions; "
      hosts += 1
      val settings = everyThree ++ conf ++ repairs ++ Map(
        s"$stateStore.minDeltasForSnapshot" -> "2",
        changelogsKey -> hasChangelogs.toString,
        localDir -> queryDir.resolve(s"host$hosts").toString
      )
      val provider =
        if (isSparks) open(settings, className = Providers.sparksOwn) else open(settings)
      val done =
        Iterator.continually(version(provider, at, isSparks)).take(times).takeWhile(identity)
      try done.foreach { _ =>
          if (isSparks)
            (if (hasChangelogs) sparks.keys.toSeq else Seq(".zip"))
              .foreach(kind => sparks += kind -> (sparks(kind) + now.newest))
          if (random.nextInt(3) > 0) provider.doMaintenance()
        }
      finally provider.close()
      changes(at)
    }

    /** Whether a version was written: not where Spark's provider is misled by what a history left. */
    private def version(provider: StateStoreProvider, at: Int, isSparks: Boolean): Boolean = {
      val store = Line.getStore(provider, now.newest.toLong, now.head, force = false)
      val there = rows(store)
      if (isSparks && misleadsSpark && there != now.rows(now.newest)) {
        log ++= "(misled) "
        store.abort()
        false
      } else {
        assert(there == now.rows(now.newest), log)
        val value = at * 1000 + now.newest
        put(store, Map(s"k${now.newest}" -> value))
        store.commit(): Unit
        writtenIn += now.newest + 1 -> at
        val id = store.getStateStoreCheckpointInfo().stateStoreCkptId
        now = Written(now.ids :+ id, now.values :+ value)
        true
      }
    }

    private def changes(at: Int): Unit = {
      val read = (files(".zip") ++ files(".changelog"))
        .map(name => name -> Files.readAllBytes(storeDir.resolve(name)).toSeq)
      read.filterNot(bytes.toSet).foreach { case (name, _) => changedIn += name -> at }
      bytes = read.toMap
    }

    /** Versions with a file of a history that was left: what their other file says cannot be told without it. */
    def ofTwoHistories: Set[Int] = changedIn.collect {
      case (name, at) if isV1 && writtenIn.get(versionOf(name)).exists(_ > at) => versionOf(name)
    }.toSet
  }

  /** Histories in each format. In number 59 files of Spark's provider lie above the last committed version. */
  private val mixed = (0 until sys.env.get("STATEMARK_MIXED").fold(3)(_.toInt)) :+ 59

  /** What `verify` says is what a restore does: right rows, or a failure. */
  private def agrees(history: History): Unit = {
    val outcomes = (1 to history.newest).map(v => v.toLong -> history.outcome(v))
    assert(!outcomes.exists(_._2 == WrongRows), outcomes)
    says(history, outcomes.collect { case (v, Restored) => v })
  }

  private def says(history: History, restored: Seq[Long]): Unit =
    for (isDeep <- Seq(false, true)) {
      val report = history.report(isDeep)
      withClue(s"deep $isDeep, ${report.findings}: ")(assert(report.restorable == restored))
      val lost = report.findings.flatMap(_.lost).toSet
      withClue(s"deep $isDeep, ${report.findings}: ") {
        assert(restored.forall(v => !lost(v)))
      }
    }

  for ((format, more) <- formats)
    test(s"both providers, rolled back, whole and damaged ($format)") {
      val faults = mixed.distinct.flatMap { seed =>
        val random = new Random(s"$format mixed $seed".hashCode.toLong)
        val log = new StringBuilder(s"seed $seed: ")
        val writer = new Mixed(random, more, log)
        try {
          val history = new History(more, repairs, _ => writer.written())
          says(history, 1L to history.newest.toLong)
          assert(Seq(history.newest, 1 + random.nextInt(history.newest)).forall(history.restores))
          val shared = writer.ofTwoHistories
          isSpared = name => shared(name.takeWhile(_.isDigit).toInt)
          val besideStale = files(".zip").filter { name =>
            val version = name.takeWhile(_.isDigit).toInt
            shared(version) && version <= history.newest
          }
          if (besideStale.nonEmpty) {
            // So little that it can still be told who has written it.
            val name = besideStale(random.nextInt(besideStale.size))
            log ++= s"the end of $name cut "
            rewrite(storeDir.resolve(name))(_.dropRight(1 + random.nextInt(12)))
          } else {
            val (name, damage) = damages(random.nextInt(damages.length))
            log ++= s"$name "
            damage(random)
          }
          agrees(history)
          None
        } catch {
          case e: org.scalatest.exceptions.TestFailedException => Some(s"$log\n  ${e.getMessage}")
        } finally {
          closeAll()
          denied = Set.empty
          isSpared = _ => false
          statemark.spark.local.LocalDirectory.deleteTree(queryDir.toFile)
          Files.createDirectories(queryDir)
        }
      }
      assert(faults.isEmpty, faults.mkString("\n", "\n", ""))
    }
}

private object RestorableSuite {

  /** The committed versions of a history: the id of each, and the value of the key `kv` that version `v + 1` added. */
  final case class Written(ids: Vector[Option[String]], values: Vector[Int]) {
    def newest: Int = values.size
    def head: Option[String] = ids.last
    def take(versions: Int): Written = Written(ids.take(versions + 1), values.take(versions))
    def rows(version: Int): Map[String, Int] =
      values.take(version).zipWithIndex.map { case (value, v) => s"k$v" -> value }.toMap
  }

  /** What a restore of a version makes of it. */
  sealed trait Outcome
  case object Restored extends Outcome
  case object WrongRows extends Outcome
  final case class Failed(why: Throwable) extends Outcome
}
