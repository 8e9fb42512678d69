package statemark.spark

import java.nio.file.attribute.FileTime
import java.nio.file.{Files, Path}
import java.util.concurrent.ScheduledThreadPoolExecutor
import java.util.UUID
import org.apache.hadoop.conf.Configuration
import org.apache.spark.SparkException
import org.apache.spark.sql.execution.streaming.state.StateStoreProvider
import org.rocksdb.{CompressionType, LRUCache}
import org.scalatest.funsuite.AnyFunSuite
import statemark.common.RejectReason
import statemark.engine.{EngineOptions, FormatVersion, OffsetsColumnFamily, RocksEngine}
import statemark.spark.conf.StoreSettings
import statemark.spark.load.CheckpointMark
import statemark.spark.local.{LoadSource, ReusableStores}
import statemark.spark.process.{BackgroundThreads, JvmState}
import statemark.transaction.CommitPhase

/** I6 in checkpoint format v1, where a run after a rollback writes files of the same names: whatever the moment at which
  * it replaces them, a store that was open meanwhile has the rows of before, and is not taken for a store of today.
  *
  * Another executor's run is a provider with another local directory.
  */
class ReplacedFilesSuite extends AnyFunSuite with LocalStores {
  private val spilling = Map(StoreSettings.Prefix + "maxUncommittedBytes" -> "1k")
  private val snapshots = Map("spark.sql.streaming.stateStore.minDeltasForSnapshot" -> "1")

  override protected def hadoopConf(runId: UUID): Configuration =
    MomentsFileSystem.in(super.hadoopConf(runId))

  /** The rows of the history that counts: with what another run has committed as version 3. */
  private val rewritten = expected(2) ++ Map("other2" -> 2)

  /** What happens to a store of before, that stands at version 3, once another run has replaced the file. */
  private val ends = Seq[(String, StateStoreProvider => Path)](
    "is closed" -> { before => before.close(); local },
    "is flushed in time, and killed" -> { before =>
      BackgroundThreads.background.asInstanceOf[ScheduledThreadPoolExecutor].getQueue.forEach(
        _.run()
      )
      awaitFlush(before)
      copyOfLocal()
    },
    "is copied by the next start" -> (_ => local),
    "is caught by the exit hook" -> { _ => ReusableStores.flushAll(); copyOfLocal() },
    "has an image taken, and is killed" -> { before =>
      keeperOf(before).generation.foreach(_.store.snapshot(
        keeperOf(before).generation.get.store.base.at,
        queryDir.resolve("image").toFile
      ))
      copyOfLocal()
    }
  )

  for ((how, end) <- ends) {
    test(s"another run replaces a version, then the store that wrote it $how") {
      val before = open()
      val ids = commits(before, 0 until 3)
      check(before, 3, ids, expected(3)) // confirms version 3
      replace()
      checkNext(end(before))
    }

    test(s"another run replaces a version, then the store that replayed it $how") {
      val first = open()
      val ids = commits(first, 0 until 2)
      val before = open(Map(localDir -> queryDir.resolve("first").toString))
      commits(before, 2 until 3, ids): Unit
      check(first, 2, ids, expected(2))
      commits(before, 3 until 4, ids :+ None): Unit
      // Replays version 3.
      check(first, 3, ids :+ None, expected(3))
      replace()
      checkNext(end(first))
    }

    test(s"another run replaces a version, then the store that restored it $how") {
      val writer = open(snapshots + (localDir -> queryDir.resolve("writer").toString))
      val ids = commits(writer, 0 until 3)
      check(writer, 3, ids, expected(3))
      writer.doMaintenance()
      assert(files(".zip") == Seq("3.zip"))
      val before = open()
      check(before, 3, ids, expected(3))
      assertLoad(before, LoadSource.Checkpoint)
      assert(keeperOf(before).load.replayed == 0)
      keeperOf(before).committed(keeperOf(before).generation.get.store.base) // as one that is kept
      replace()
      checkNext(end(before))
    }
  }

  test("another run replaces a version on disk before its writer confirms it") {
    val many = (0 until 500).map(i => s"many-$i" -> i).toMap
    val before = open(spilling)
    commits(before, 0 until 2): Unit
    commit(before, 2, many): Unit
    assert(keeperOf(before).generation.exists(_.store.prepared.exists(_.file.isDefined)))
    replace()
    before.getStore(3, None).abort()
    checkNext(copyOfLocal())
  }

  for ((rows, how) <- Seq(Map("k2" -> 72) -> "as long", Map("longer" -> 72) -> "longer"))
    test(s"another run replaces a file, with one that is $how, before its writer learns of it") {
      val before = open()
      commits(before, 0 until 2): Unit
      MomentsFileSystem.beforeStatusOf("3.changelog")(replace(rows)) {
        commit(before, 2, Map("k2" -> 71)): Unit
        before.getStore(3, None).abort()
        before.close()
      }
      val distrust = if (how == "longer") RejectReason.Unproven else RejectReason.OtherHistory
      checkNext(local, expected(2) ++ rows, Some(distrust))
    }

  test("another run replaces a file between its status and its reader's open") {
    val first = open()
    val ids = commits(first, 0 until 2)
    check(first, 2, ids, expected(2))
    val before = open(Map(localDir -> queryDir.resolve("first").toString))
    commits(before, 2 until 3, ids): Unit
    MomentsFileSystem.beforeStatusOf("3.changelog")(replace(Map("k2" -> 7))) {
      first.getStore(3, None).abort()
      first.close()
    }
    // What was read was the new file.
    checkNext(local, expected(2) ++ Map("k2" -> 7))
  }

  test("the same bytes on another base, at the same time") {
    val before = open()
    commit(before, 0, Map("a" -> 1)): Unit
    commit(before, 1, Map("b" -> 1)): Unit
    commit(before, 2, Map.empty): Unit
    check(before, 3, Vector.fill(4)(None), Map("a" -> 1, "b" -> 1))
    before.close()
    val (bytes, time) = (bytesOf(3), timeOf(3))
    replace(Map("b" -> 2), at = 1)
    replace(Map.empty, at = 2)
    // Files of Statemark's differ by their signatures at least; a provider that signs none writes the same.
    assert(bytesOf(3).length == bytes.length && !bytesOf(3).sameElements(bytes))
    Files.write(file(3), bytes)
    setTime(3, time)
    checkNext(local, Map("a" -> 1, "b" -> 2), Some(RejectReason.OtherHistory))
  }

  test("the same bytes on another base, before its writer learns of the file that was replaced") {
    val before = open()
    commit(before, 0, Map("a" -> 1)): Unit
    commit(before, 1, Map("b" -> 1)): Unit
    MomentsFileSystem.beforeStatusOf("3.changelog") {
      replace(Map("b" -> 2), at = 1)
      replace(Map.empty, at = 2)
    } {
      commit(before, 2, Map.empty): Unit
      before.getStore(3, None).abort()
      before.close()
    }
    checkNext(local, Map("a" -> 1, "b" -> 2), Some(RejectReason.OtherHistory))
  }

  test("the same second: another content of the same length") {
    val before = open()
    commits(before, 0 until 2): Unit
    commit(before, 2, Map("k2" -> 71)): Unit
    before.getStore(3, None).abort()
    before.close()
    val (bytes, time) = (bytesOf(3), timeOf(3))
    replace(Map("k2" -> 72))
    assert(bytesOf(3).length == bytes.length && !bytesOf(3).sameElements(bytes))
    setTime(3, time)
    checkNext(local, expected(2) ++ Map("k2" -> 72), Some(RejectReason.OtherHistory))
  }

  test("the same second: the same bytes on another base, where times are whole seconds") {
    MomentsFileSystem.withTimes(_ => 1700000000000L) {
      val before = open()
      commit(before, 0, Map("a" -> 1)): Unit
      commit(before, 1, Map("b" -> 1)): Unit
      commit(before, 2, Map.empty): Unit
      commit(before, 3, Map.empty): Unit
      before.getStore(4, None).abort()
      before.close()
      val bytes = Seq(3L, 4L).map(v => v -> bytesOf(v))
      replace(Map("b" -> 2), at = 1)
      replace(Map.empty, at = 2)
      replace(Map.empty, at = 3)
      bytes.foreach { case (v, before) => Files.write(file(v), before) }
      checkNext(local, Map("a" -> 1, "b" -> 2), Some(RejectReason.Unproven), version = 4)
    }
  }

  test("where times are whole seconds, a version that is a second younger is proven") {
    // Milliseconds are seconds of this file system.
    MomentsFileSystem.withTimes(ms => ms % 100000000 * 1000) {
      val before = open()
      val ids = (0 until 3).foldLeft(Vector(Option.empty[String])) { (ids, v) =>
        if (v > 0) while (System.currentTimeMillis() <= timeOf(v.toLong).toMillis) {}
        commits(before, v until v + 1, ids)
      }
      check(before, 3, ids, expected(3))
      before.close()
      val next = open()
      check(next, 3, ids, expected(3))
      assertServed(next, 3, ids, LoadSource.Local, replayed = 0)
    }
  }

  for (moment <- Seq("before we learn of our file", "in the same second"))
    test(s"on a cluster without the plugin, another attempt with a file as long comes $moment") {
      JvmState.runsOnCluster.set(() => true)
      try {
        val here = open()
        commits(here, 0 until 2): Unit
        def ours() = commit(here, 2, Map("k2" -> 71)): Unit
        def theirs() = replace(Map("k2" -> 72))
        if (moment == "in the same second") {
          ours()
          val time = timeOf(3)
          theirs()
          setTime(3, time)
        } else MomentsFileSystem.beforeStatusOf("3.changelog")(theirs())(ours())
        check(here, 3, Vector.fill(4)(None), expected(2) ++ Map("k2" -> 72))
      } finally JvmState.runsOnCluster.clear()
    }

  test("another run replaces a version, then maintenance of the store that wrote it comes by") {
    val before = open(snapshots)
    check(before, 3, commits(before, 0 until 3), expected(3))
    replace()
    before.doMaintenance()
    assert(files(".zip").isEmpty)
    checkNext(queryDir.resolve("elsewhere"))
  }

  test("another run replaces a version while the store that wrote it uploads its snapshot") {
    var replacesIn = Option.empty[CommitPhase]
    JvmState.observer.set { phase =>
      if (replacesIn.contains(phase)) {
        replacesIn = None
        replace()
      }
    }
    val before = open(snapshots)
    check(before, 3, commits(before, 0 until 3), expected(3))
    replacesIn = Some(CommitPhase.SnapshotStarted)
    before.doMaintenance()
    assert(replacesIn.isEmpty && files(".zip").isEmpty)
    checkNext(queryDir.resolve("elsewhere"))
  }

  test(
    "another run replaces a version while the store that wrote it uploads its snapshot, and is killed then"
  ) {
    val killed = new LinkageError("killed")
    JvmState.observer.set { phase =>
      if (phase == CommitPhase.SnapshotStarted) {
        JvmState.observer.clear()
        replace()
        MomentsFileSystem.atStatusOf("3.changelog")(throw killed)
      }
    }
    val before = open(snapshots)
    check(before, 3, commits(before, 0 until 3), expected(3))
    assert(intercept[LinkageError](before.doMaintenance()) eq killed)
    assert(files(".zip") == Seq("3.zip"))
    checkNext(queryDir.resolve("elsewhere"))
  }

  if (Line.hasStoreOf42)
    test("the second action of a batch, on another executor, makes no snapshot as the first did") {
      JvmState.runsOnCluster.set(() => true)
      try {
        val second = open()
        commits(second, 0 until 2): Unit
        val first = open(Map(localDir -> queryDir.resolve("first").toString))
        commit(first, 2, Map("lost" -> 1), force = true): Unit
        commit(second, 2, Map("other2" -> 2)): Unit
        assert(rowsAt(3, className = Providers.sparksOwn) == rewritten)
        assert(rowsAt(3, extra = Map(localDir -> queryDir.resolve("third").toString)) == rewritten)
      } finally JvmState.runsOnCluster.clear()
    }

  test(
    "an attempt that is killed before its snapshot leaves that of an earlier attempt of the run"
  ) {
    val run = UUID.randomUUID()
    def attempt(place: String) = open(
      Map(localDir -> queryDir.resolve(place).toString),
      usesFamilies = true,
      runId = run
    )
    // Column families are in the snapshot alone.
    commit(attempt("first"), 0, Map("k0" -> 0)): Unit
    JvmState.observer.set { phase =>
      if (phase == CommitPhase.ChangelogDurable) throw new LinkageError("killed")
    }
    val second = attempt("second").getStore(0, None)
    put(second, Map("k0" -> 0))
    assertThrows[SparkException](second.commit())
    second.abort()
    JvmState.observer.clear()
    assert(files(".zip") == Seq("1.zip") && files(".changelog") == Seq("1.changelog"))
    check(attempt("third"), 1, Vector(None, None), expected(1))
  }

  test("a store of format 2 is restored, once") {
    val ids = write(3, Map.empty)
    writeFormat(FormatVersion.V2)
    val next = open()
    check(next, 3, ids, expected(3))
    assertServed(next, 3, ids, LoadSource.Checkpoint, RejectReason.OtherFormat)
    next.close()
    val again = open()
    again.getStore(4, None).abort()
    assertLoad(again, LoadSource.Local)
  }

  test("a store of format 3, which remembers no mark, goes on where the checkpoint has none") {
    val ids = write(3, Map.empty)
    writeFormat(FormatVersion.V3)
    val next = open()
    check(next, 3, ids, expected(3))
    assertLoad(next, LoadSource.Local)
    next.close()
    val mark = queryDir.resolve("_statemark/mark")
    Files.createDirectories(mark.getParent)
    Files.write(mark, CheckpointMark.encode(UUID.randomUUID()))
    val marked = open()
    check(marked, 3, ids, expected(3))
    assertLoad(marked, LoadSource.Checkpoint, RejectReason.OtherHistory)
  }

  // ---- helpers

  /** Has the store say that it is of another format, and nothing that this format does not know. */
  private def writeFormat(format: FormatVersion): Unit = {
    val cache = new LRUCache(1 << 20)
    val options = EngineOptions(
      cache,
      writeBufferManager = None,
      isMemoryBounded = false,
      blockSizeBytes = 4096,
      writeBufferBytes = 0,
      maxWriteBuffers = 0,
      CompressionType.NO_COMPRESSION,
      tableFormatVersion = 5,
      mergeDelimiter = ",",
      maxOpenFiles = 16,
      allowFallocate = false
    )
    val engine = RocksEngine.reopen(base.toFile, options)
    // No decoder takes an empty record.
    engine.note(Seq(
      OffsetsColumnFamily.FormatKey -> OffsetsColumnFamily.encodeFormat(format),
      OffsetsColumnFamily.MarkKey -> Array.emptyByteArray
    ))
    engine.flush()
    engine.close()
    cache.close()
  }

  /** Another run commits `rows` on version `at`, as the query was rolled back to it by hand. */
  private def replace(rows: Map[String, Int] = Map("other2" -> 2), at: Long = 2): Unit = {
    val other = open(Map(localDir -> queryDir.resolve(s"other-${UUID.randomUUID()}").toString))
    commit(other, at, rows): Unit
    other.close()
  }

  /** The next start, in which `place` is the local directory, has the rows that count. */
  private def checkNext(
      place: Path,
      rows: Map[String, Int] = rewritten,
      why: Option[RejectReason] = None,
      version: Int = 3
  ): Unit = {
    val next = open(Map(localDir -> place.toString))
    check(next, version, Vector.fill(version + 1)(None), rows)
    why.foreach(reason => assertLoad(next, LoadSource.Checkpoint, reason))
  }

  private def file(version: Long) = storeDir.resolve(s"$version.changelog")
  private def bytesOf(version: Long) = Files.readAllBytes(file(version))
  private def timeOf(version: Long) = Files.getLastModifiedTime(file(version))
  private def setTime(version: Long, time: FileTime): Unit =
    Files.setLastModifiedTime(file(version), time): Unit
}
