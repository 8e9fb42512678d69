package statemark.spark

import java.nio.file.{Files, Path}
import java.util.UUID
import org.apache.spark.sql.execution.streaming.state.{StateStoreConf, StateStoreProvider}
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.SparkException
import org.scalatest.funsuite.AnyFunSuite
import statemark.common.Causes
import statemark.spark.checkpoint.ChangelogSignature
import statemark.spark.errors.StoreException
import statemark.spark.local.LoadSource
import statemark.spark.offline.verify.{
  CommittedVersion,
  StoreReport,
  StoreTask,
  StoreVerifier,
  VerifySettings
}
import statemark.spark.snapshot.SnapshotSearch

/** I6 in checkpoint format v1, where changelog and snapshot of a version may be of two histories: Spark's provider writes
  * the one and leaves the other standing.
  *
  * Statemark writes versions 1 to 10; the query is rolled back to version 6, and Spark's provider writes 7 to 10 anew.
  */
class MixedHistoriesSuite extends AnyFunSuite with LocalStores {
  private val stateStore = "spark.sql.streaming.stateStore"
  private val own = classOf[StatemarkStateStoreProvider].getName
  private val repairs = Map(
    s"$stateStore.minDeltasForSnapshot" -> "3",
    s"$stateStore.autoSnapshotRepair.enabled" -> "true"
  )
  private val withChangelogs =
    Map(s"$stateStore.rocksdb.changelogCheckpointing.enabled" -> "true")
  private val withoutChangelogs =
    Map(s"$stateStore.rocksdb.changelogCheckpointing.enabled" -> "false")
  private val rollback = 6
  private val newest = 10
  private var hosts = 0

  /** The rows at a version of the history that counts. */
  private def rewritten(version: Int, salt: Int = 100): Map[String, Int] =
    expected(math.min(version, rollback)) ++
      (rollback until version).map(v => s"k$v" -> (v + salt))

  private def elsewhere: Map[String, String] = {
    hosts += 1
    repairs + (localDir -> queryDir.resolve(s"host$hosts").toString)
  }

  /** Statemark's versions, snapshots as they come due. */
  private def first(versions: Int = newest, extra: Map[String, String] = repairs): Unit = {
    val provider = open(extra)
    (0 until versions).foreach { v =>
      commit(provider, v.toLong, Map(s"k$v" -> v)): Unit
      provider.getStore(v + 1L, None).abort()
      provider.doMaintenance()
    }
    provider.close()
  }

  /** Versions after `from` of Spark's provider. */
  private def sparks(
      from: Int = rollback,
      to: Int = newest,
      salt: Int = 100,
      extra: Map[String, String] = withoutChangelogs
  ): Unit = {
    val provider =
      open(extra + (s"$stateStore.minDeltasForSnapshot" -> "100"), Providers.sparksOwn)
    (from until to).foreach { v =>
      commit(provider, v.toLong, Map(s"k$v" -> (v + salt))): Unit
      provider.doMaintenance()
    }
    provider.close()
  }

  private def checkElsewhere(version: Int, wanted: Map[String, Int]): Unit = {
    val provider = open(elsewhere)
    check(provider, version, Vector.fill(version + 1)(None), wanted)
    provider.close()
  }

  private def assertRefused(version: Int, names: String*): Unit = {
    val e = intercept[Exception] {
      val provider = open(elsewhere)
      val store = provider.getStore(version.toLong, None)
      try fail(s"it has ${rows(store)}")
      finally store.abort()
    }
    val messages = Causes.of(e).flatMap(c => c +: c.getSuppressed.toSeq).map(_.toString).toSeq
    assert(names.forall(n => messages.exists(_.contains(n))), messages)
    assert(
      Causes.of(e).exists {
        case _: StoreException => true
        case s: SparkException =>
          Option(s.getCondition).exists(_.startsWith("CANNOT_LOAD_STATE_STORE"))
        case _ => false
      },
      messages
    )
  }

  private def zip(version: Int): Path = storeDir.resolve(s"$version.zip")
  private def changelog(version: Int): Path = storeDir.resolve(s"$version.changelog")

  private def deleteSidecars(file: Path): Unit =
    Seq(s"${file.getFileName}.crc", s".${file.getFileName}.crc")
      .foreach(name => Files.deleteIfExists(file.resolveSibling(name)): Unit)

  private def rewrite(file: Path)(change: Array[Byte] => Array[Byte]): Unit = {
    Files.write(file, change(Files.readAllBytes(file)))
    deleteSidecars(file)
  }

  private def halve(file: Path): Unit = rewrite(file)(bytes => bytes.take(bytes.length / 2))

  private def report(isDeep: Boolean, committed: Int = newest): StoreReport = {
    val conf = new SQLConf()
    repairs.foreach { case (key, value) => conf.setConfString(key, value) }
    val versions = (1 to committed).map(v => CommittedVersion(v.toLong, None))
    val task = StoreTask(0, 0, "default", s"$location/0/0", "state/0/0", versions)
    val limits = SnapshotSearch.limits(new StateStoreConf(conf))
    val settings = VerifySettings("lz4", false, ",", 5, repairs, limits, true, isDeep)
    new StoreVerifier(task, settings, hadoopConf(UUID.randomUUID())).run()
  }

  private val all = (1L to newest.toLong).toSeq

  // ---- Spark's provider without changelogs leaves those of Statemark

  test("a snapshot that was uploaded beside commits is not taken for another history's") {
    lazy val provider = open(repairs)
    besideSnapshot {
      (rollback + 1 to rollback + 2).foreach { v =>
        commit(provider, v.toLong, Map(s"k$v" -> v)): Unit
      }
    } {
      (0 to rollback).foreach(v => commit(provider, v.toLong, Map(s"k$v" -> v)): Unit)
      provider.getStore(rollback + 1L, None).abort()
      provider.doMaintenance()
    }
    provider.close()
    assert(files(".zip") == Seq(s"${rollback + 1}.zip"))
    sparks(extra = withChangelogs)
    for (v <- rollback + 1 to newest) checkElsewhere(v, rewritten(v))
  }

  test("a home of a history that was rolled back is not proven by the changelog it left") {
    first()
    sparks()
    assert(changelog(newest).toFile.exists && zip(newest).toFile.exists)
    val provider = open(repairs)
    check(provider, newest, Vector.fill(newest + 1)(None), rewritten(newest))
    assert(keeperOf(provider).load.source == LoadSource.Checkpoint)
    // The query goes on, here and on another machine.
    commit(provider, newest.toLong, Map("next" -> 1)): Unit
    commit(provider, newest + 1L, Map("after" -> 2)): Unit
    provider.close()
    checkElsewhere(newest + 2, rewritten(newest) ++ Map("next" -> 1, "after" -> 2))
  }

  for (upTo <- rollback + 1 to newest)
    test(s"a home at version $upTo of before goes over no changelog of before") {
      first(upTo)
      // Another machine wrote the rest of that history.
      val other = open(elsewhere)
      (upTo until newest).foreach(v => commit(other, v.toLong, Map(s"k$v" -> v)): Unit)
      other.close()
      sparks()
      val provider = open(repairs)
      check(provider, newest, Vector.fill(newest + 1)(None), rewritten(newest))
    }

  test("a home at the version to which the query was rolled back") {
    first(rollback)
    val other = open(elsewhere)
    (rollback until newest).foreach(v => commit(other, v.toLong, Map(s"k$v" -> v)): Unit)
    other.close()
    sparks()
    val provider = open(repairs)
    check(provider, newest, Vector.fill(newest + 1)(None), rewritten(newest))
  }

  test("Spark's provider runs a batch whose state was committed here and whose sink failed") {
    val provider = open(repairs)
    (0 until newest).foreach(v => commit(provider, v.toLong, Map(s"k$v" -> v)): Unit)
    provider.close()
    sparks(from = newest - 1)
    val wanted = expected(newest - 1) + (s"k${newest - 1}" -> (newest - 1 + 100))
    val again = open(repairs)
    check(again, newest, Vector.fill(newest + 1)(None), wanted)
    commit(again, newest.toLong, Map("next" -> 1)): Unit
    again.close()
    checkElsewhere(newest + 1, wanted + ("next" -> 1))
  }

  test("a snapshot of Spark's is not proven by a changelog of before") {
    first()
    sparks()
    val provider = open(repairs)
    check(provider, newest, Vector.fill(newest + 1)(None), rewritten(newest))
    keeperOf(
      provider
    ).committed(keeperOf(provider).generation.get.store.base) // as one that is kept
    provider.close()
    sparks(salt = 200)
    check(open(repairs), newest, Vector.fill(newest + 1)(None), rewritten(newest, 200))
  }

  private val damages: Seq[(String, Path => Unit)] = Seq(
    "cut" -> halve,
    "gone" -> { f => Files.delete(f); deleteSidecars(f) },
    "empty" -> (rewrite(_)(_ => Array.emptyByteArray)),
    "without its SST files" -> { _ =>
      val shared = sstFiles(storeDir.resolve("SSTs"))
      shared.foreach { f => Files.delete(f); deleteSidecars(f) }
    }
  )

  for ((how, damage) <- damages)
    test(s"Spark's newest snapshot is $how: no changelog of before takes its place") {
      first()
      sparks()
      damage(zip(newest))
      assertRefused(newest)
      for (isDeep <- Seq(false, true)) {
        val found = report(isDeep)
        assert(!found.restorable.contains(newest.toLong), found.findings)
        assert(found.findings.exists(_.lost.contains(newest.toLong)), found.findings)
        if (how != "without its SST files")
          assert(found.restorable == all.filter(_ < newest), found.findings)
      }
    }

  if (Line.hasStoreOf42)
    test("Spark's two newest snapshots are empty: no changelog of before leads over them") {
      first()
      sparks()
      rewrite(zip(newest))(_ => Array.emptyByteArray)
      rewrite(zip(newest - 1))(_ => Array.emptyByteArray)
      assertRefused(newest, s"${newest - 1}.changelog")
      val found = report(isDeep = true)
      assert(found.restorable == all.filter(_ < newest - 1), found.findings)
    }

  for (isDeep <- Seq(false, true))
    test(s"verify of a healthy checkpoint finds nothing wrong, deep: $isDeep") {
      first()
      sparks()
      val found = report(isDeep)
      assert(found.findings.isEmpty)
      assert(found.restorable == all)
      for (v <- 1 to newest) checkElsewhere(v, rewritten(v))
    }

  // ---- Spark's provider with changelogs leaves snapshots of Statemark

  test("a snapshot of Statemark's whose changelog Spark's provider wrote anew is passed over") {
    first()
    val snapshots = files(".zip")
    assert(snapshots.exists(_.stripSuffix(".zip").toInt > rollback), snapshots)
    sparks(extra = withChangelogs)
    for (v <- rollback to newest) checkElsewhere(v, rewritten(v))
    check(open(repairs), newest, Vector.fill(newest + 1)(None), rewritten(newest))
    for (isDeep <- Seq(false, true)) {
      val found = report(isDeep)
      assert(found.findings.isEmpty)
      assert(found.restorable == all)
    }
  }

  test("a read that is to start at a snapshot of a history that is gone is refused by its name") {
    first()
    sparks(extra = withChangelogs)
    val stale = (rollback + 1 to newest).find(v => Files.exists(zip(v))).get
    val provider = open(elsewhere).asInstanceOf[StatemarkStateStoreProvider]
    val e = intercept[SparkException] {
      Line.replay(provider, stale.toLong, newest.toLong, readOnly = true, None, None)
    }
    val named = Causes.of(e).collect { case store: StoreException => store.getMessage }.toSeq
    assert(named.exists(_.contains(s"The snapshot $stale.zip cannot be loaded")), named)
    provider.close()
  }

  test("a stale snapshot is passed over whatever a repair may do") {
    first()
    sparks(extra = withChangelogs)
    val never = Map(s"$stateStore.autoSnapshotRepair.enabled" -> "false")
    val provider = open(elsewhere ++ never)
    check(provider, newest, Vector.fill(newest + 1)(None), rewritten(newest))
    assert(!keeperOf(provider).load.isRepaired)
  }

  test("a stale snapshot is none to a session of format v2 either") {
    first()
    sparks(extra = withChangelogs)
    for (v <- rollback + 1 to newest) {
      val provider = open(elsewhere ++ Providers.v2)
      check(provider, v, Vector.fill(v + 1)(None), rewritten(v))
      provider.close()
    }
  }

  // ---- what restored before does so now

  if (Line.hasStoreOf42) test("a snapshot of Statemark's beside its own changelog is repaired") {
    first()
    val newestZip = files(".zip").map(_.stripSuffix(".zip").toInt).max
    for (damage <- Seq[Path => Unit](halve, rewrite(_)(_ => Array.emptyByteArray))) {
      damage(zip(newestZip))
      checkElsewhere(newest, expected(newest))
      assert(report(isDeep = true).restorable == all)
    }
  }

  if (Line.hasStoreOf42)
    test("a snapshot of Statemark's is repaired after Spark's provider has run") {
      sparks(from = 0, to = 3)
      val provider = open(repairs)
      (3 until newest).foreach { v =>
        commit(provider, v.toLong, Map(s"k$v" -> v)): Unit
        provider.getStore(v + 1L, None).abort()
        provider.doMaintenance()
      }
      provider.close()
      val wanted = (0 until newest).map(v => s"k$v" -> (if (v < 3) v + 100 else v)).toMap
      val newestZip = files(".zip").map(_.stripSuffix(".zip").toInt).max
      assert(newestZip > 3)
      halve(zip(newestZip))
      checkElsewhere(newest, wanted)
    }

  for ((how, damage) <- damages.take(3)) test(
    s"a changelog of Statemark's is $how: the snapshot of its version restores as it did"
  ) {
    first()
    val newestZip = files(".zip").map(_.stripSuffix(".zip").toInt).max
    damage(changelog(newestZip))
    checkElsewhere(newest, expected(newest))
    assert(report(isDeep = true).restorable.contains(newest.toLong))
  }

  /** Makes files what Statemark 0.1 would have written. */
  private def takeSignaturesOff(): Unit = {
    files(".changelog").map(storeDir.resolve).foreach { file =>
      rewrite(file) { bytes =>
        assert(ChangelogSignature.of(bytes).isDefined)
        bytes.dropRight(ChangelogSignature.Length)
      }
    }
    files(".zip").map(storeDir.resolve).foreach(rewrite(_)(SnapshotBytes.withoutSignature))
  }

  test("a changelog of Statemark's with a damaged signature says nothing against its snapshot") {
    val provider = open(elsewhere, usesFamilies = true)
    // Column families are in the snapshot alone.
    commit(provider, 0, Map("k0" -> 0)): Unit
    provider.close()
    val whole = Files.readAllBytes(changelog(1))
    def flipped(at: Int) = whole.updated(at, (whole(at) ^ 1).toByte)
    val start = whole.length - ChangelogSignature.Length
    for (
      damaged <-
        Seq(0, 3, 9, 17).map(n => flipped(start + n)) ++ Seq(3, 17).map(n => whole.take(start + n))
    ) {
      rewrite(changelog(1))(_ => damaged)
      val next = open(elsewhere, usesFamilies = true)
      check(next, 1, Vector(None, None), expected(1))
      next.close()
    }
  }

  if (Line.hasStoreOf42)
    test("a checkpoint of 0.1, without signatures, restores and is repaired as before") {
      first()
      takeSignaturesOff()
      for (v <- 1 to newest) checkElsewhere(v, expected(v))
      assert(report(isDeep = true).findings.isEmpty)
      val newestZip = files(".zip").map(_.stripSuffix(".zip").toInt).max
      halve(zip(newestZip))
      checkElsewhere(newest, expected(newest))
      assert(report(isDeep = true).restorable == all)
      // The next release goes on from there.
      val provider = open(elsewhere)
      commit(provider, newest.toLong, Map("next" -> 1)): Unit
      provider.close()
      checkElsewhere(newest + 1, expected(newest) + ("next" -> 1))
    }

  private def lastRows(provider: StateStoreProvider, at: Int): Map[String, Int] = {
    val store = provider.getStore(at.toLong, None)
    try rows(store)
    finally store.abort()
  }

  test("each provider goes on from the other's files, in turns") {
    var wanted = Map.empty[String, Int]
    for (turn <- 0 until 6) {
      val isOwn = turn % 2 == 0
      val provider =
        if (isOwn) open(repairs) else open(withoutChangelogs, Providers.sparksOwn)
      for (v <- turn * 2 until turn * 2 + 2) {
        assert(lastRows(provider, v) == wanted, s"$own $isOwn at $v")
        wanted += s"k$v" -> v
        commit(provider, v.toLong, Map(s"k$v" -> v)): Unit
      }
      provider.close()
    }
    checkElsewhere(12, wanted)
  }
}
