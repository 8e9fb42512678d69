package statemark.spark

import java.nio.file.attribute.FileTime
import java.nio.file.{Files, Path}
import java.util.UUID
import java.util.concurrent.{CompletableFuture, CountDownLatch, TimeUnit}
import org.apache.hadoop.conf.Configuration
import org.apache.spark.sql.execution.streaming.state.{StateStoreConf, StateStoreProvider}
import org.apache.spark.sql.internal.SQLConf
import org.scalatest.funsuite.AnyFunSuite
import statemark.engine.VersionId
import statemark.spark.checkpoint.StoreFile
import statemark.spark.conf.StoreConf
import statemark.spark.local.LoadSource
import statemark.spark.process.JvmState
import statemark.spark.provider.OverdueSnapshots
import statemark.spark.snapshot.SnapshotTaker
import statemark.testkit.{FileCounts, FileEvent}

/** Stores of processes that end before maintenance comes to them get their snapshots concurrently with the first batch,
  * or at the end of the application. Each provider is a process; the commit log names its batches.
  */
class OverdueSnapshotSuite extends AnyFunSuite with LocalStores {
  private val formats = Seq("v1" -> Map.empty[String, String], "v2" -> Providers.v2)
  private var keepsHomes = true
  private def everyThree = Map("spark.sql.streaming.stateStore.minDeltasForSnapshot" -> "3")

  override protected def settings: Map[String, String] =
    if (keepsHomes) super.settings else super.settings - localDir

  override protected def hadoopConf(runId: UUID): Configuration =
    FullFileSystem.in(super.hadoopConf(runId))

  override protected def beforeEach(): Unit = {
    super.beforeEach()
    JvmState.runningTask.set(() => query.copy(isOfBatch = true))
    Files.createDirectories(log): Unit
  }

  override protected def afterEach(): Unit = {
    FullFileSystem.isFull = _ => false
    keepsHomes = true
    super.afterEach()
  }

  private def log: Path = queryDir.resolve("commits")

  /** The batch that makes a version is in the commit log. */
  private def logged(version: Long, id: Option[String]): Unit =
    Files.write(log.resolve((version - 1).toString), Providers.commitEntry(id).getBytes): Unit

  /** One batch on the last version, and its entry in the commit log. */
  private def batch(
      provider: StateStoreProvider,
      ids: Vector[Option[String]]
  ): Vector[Option[String]] = {
    val version = ids.length - 1
    val all = commits(provider, version until version + 1, ids)
    logged(version + 1L, all.last)
    all
  }

  /** Does what the background does with a store that was loaded, or waits for it to be done. */
  private def settle(provider: StateStoreProvider): Unit =
    provider.asInstanceOf[StatemarkStateStoreProvider].takeOverdueSnapshot(isEnd = false)

  private def batches(count: Int, extra: Map[String, String]): Vector[Option[String]] = {
    val provider = open(extra)
    val ids = (0 until count).foldLeft(Vector(Option.empty[String])) { (ids, _) =>
      val all = batch(provider, ids)
      provider.doMaintenance()
      all
    }
    provider.close()
    ids
  }

  private def snapshots: Seq[Long] = files(".zip").map(_.takeWhile(_.isDigit).toLong).sorted

  private def waits(latch: CountDownLatch): Unit =
    assert(latch.await(60, TimeUnit.SECONDS), "nothing came here")

  /** Has each upload wait; the first value tells that one has come, the second lets all go on. */
  private def gated(): (CountDownLatch, CountDownLatch) = {
    val (came, opens) = (new CountDownLatch(1), new CountDownLatch(1))
    FullFileSystem.isFull = path => {
      if (path.contains("SSTs") || path.contains(".zip")) {
        came.countDown()
        waits(opens)
      }
      false
    }
    (came, opens)
  }

  /** Runs that end as `ends` says, which is handed a run's settings and store, and returns settings of the next run. */
  private def sevenRuns(extra: Map[String, String], source: LoadSource)(
      ends: (Map[String, String], StateStoreProvider) => Map[String, String]
  ): Unit = {
    var ids = Vector(Option.empty[String])
    var settings = extra
    for (run <- 0 until 7) {
      val provider = open(settings)
      ids = batch(provider, ids)
      settle(provider)
      assert(snapshots == (1 to run), s"after run $run")
      assert(keeperOf(provider).load.replayed <= 1)
      // The first version of a home never went to its disk.
      if (run > 1) assert(keeperOf(provider).load.source == source)
      // The header of the next changelog names these.
      assert(keeperOf(provider).generation.get.store.base.lineage.length <= 2)
      settings = ends(settings, provider)
    }
    closeAll()
    keepsHomes = false
    val ours = classOf[StatemarkStateStoreProvider].getName
    for (v <- 1 to 7; className <- Seq(Providers.sparksOwn, ours))
      assert(rowsAt(v, ids(v), extra, className) == expected(v), s"version $v by $className")
  }

  for ((format, extra) <- formats) {
    test(s"seven runs of one batch leave six snapshots ($format)") {
      sevenRuns(extra, LoadSource.Local) { (settings, provider) =>
        provider.close()
        settings
      }
    }

    test(s"seven runs of one batch leave six snapshots, without homes that stay ($format)") {
      keepsHomes = false
      sevenRuns(extra, LoadSource.Checkpoint) { (settings, provider) =>
        provider.close()
        settings
      }
    }

    test(s"seven runs of one batch that are killed leave six snapshots ($format)") {
      var runs = 0
      sevenRuns(extra, LoadSource.Local) { (settings, _) =>
        runs += 1
        val left = queryDir.resolve(s"killed-$runs")
        LocalStores.copyTree(settings.get(localDir).fold(local)(Path.of(_)), left)
        settings + (localDir -> left.toString)
      }
    }
  }

  for ((format, extra) <- formats) {
    test(s"retention deletes what such processes do not need any more ($format)") {
      val retains = Map(
        "spark.sql.streaming.minBatchesToRetain" -> "2",
        "spark.sql.streaming.ratioExtraSpaceAllowedInCheckpoint" -> "0"
      )
      var ids = Vector(Option.empty[String])
      for (_ <- 0 until 7) {
        val provider = open(extra ++ retains)
        ids = batch(provider, ids)
        settle(provider)
        provider.close()
      }
      assert(snapshots == Seq(5, 6))
      assert(files(".changelog").map(_.takeWhile(_.isDigit)) == Seq("5", "6", "7"))
      for (v <- 6 to 7)
        assert(rowsAt(v, ids(v), extra, Providers.sparksOwn) == expected(v))
    }

    test(s"the batch does not wait for the upload, and the end of the store does ($format)") {
      val ids = batches(1, extra)
      val (came, opens) = gated()
      val provider = open(extra)
      val all = batch(provider, ids)
      waits(came)
      // Two more batches, while the first has not sent a byte.
      val more = batch(provider, batch(provider, all))
      assert(snapshots.isEmpty)
      val closed = CompletableFuture.runAsync(() => provider.close())
      assert(!closed.isDone)
      opens.countDown()
      closed.get(60, TimeUnit.SECONDS)
      assert(snapshots == Seq(1))
      assert(homes.flatMap(home => home.toFile.list).forall(!_.startsWith("snapshot")))
      for (v <- 1 to 4) assert(rowsAt(v, more(v), extra, Providers.sparksOwn) == expected(v))
    }

    test(s"a batch that is aborted beside the upload leaves what it found ($format)") {
      val ids = batches(1, extra)
      val (came, opens) = gated()
      val provider = open(extra)
      val store = provider.getStore(1, ids(1))
      put(store, Map("lost" -> 1))
      waits(came)
      store.abort()
      val all = batch(provider, ids)
      opens.countDown()
      settle(provider)
      assert(snapshots == Seq(1))
      for (v <- 1 to 2) assert(rowsAt(v, all(v), extra, Providers.sparksOwn) == expected(v))
    }

    test(s"a version has its snapshot taken once, however often its batch is started ($format)") {
      val ids = batches(2, extra)
      for (start <- 0 until 3) {
        val provider = open(extra)
        FileCounts.reset()
        check(provider, 2, ids, expected(2))
        settle(provider)
        assert((FileCounts.count(FileEvent.Create.name, location) > 0) == (start == 0))
        provider.close()
      }
      assert(snapshots == Seq(2))
    }

    test(s"what fails is logged, and tried again by maintenance ($format)") {
      val ids = batches(1, extra)
      FullFileSystem.isFull = _.contains(".zip")
      val provider = open(extra)
      val all = batch(provider, ids)
      settle(provider)
      assert(snapshots.isEmpty)
      FullFileSystem.isFull = _ => false
      provider.doMaintenance()
      assert(snapshots == Seq(1))
      assert(rowsAt(2, all(2), extra, Providers.sparksOwn) == expected(2))
    }

    test(s"a query that went on for long and is started again takes none ($format)") {
      val long = everyThree ++ extra
      val ids = batches(8, long)
      assert(snapshots == Seq(3, 6))
      val provider = open(long)
      batch(provider, ids): Unit
      settle(provider)
      assert(snapshots == Seq(3, 6))
    }

    test(s"nor does a reader ($format)") {
      val ids = batches(1, extra)
      JvmState.runningTask.set(() => query)
      val provider = open(extra)
      check(provider, 1, ids, expected(1))
      settle(provider)
      assert(snapshots.isEmpty)
    }

    test(s"a version that the query was rolled back from gets none ($format)") {
      val ids = batches(2, extra)
      Files.delete(log.resolve("1"))
      val provider = open(extra)
      check(provider, 2, ids, expected(2))
      settle(provider)
      assert(snapshots.isEmpty)
    }

    test(
      s"at the end of the application the last version gets one, and the start replays nothing ($format)"
    ) {
      val first = open(extra)
      val ids = batch(first, Vector(None))
      OverdueSnapshots.applicationEnds()
      assert(snapshots == Seq(1))
      first.close()
      keepsHomes = false
      val next = open(extra)
      val all = batch(next, ids)
      assert(keeperOf(next).load.replayed == 0)
      assert(rowsAt(2, all(2), extra, Providers.sparksOwn) == expected(2))
    }

    test(s"at the end of the application a version that is not committed gets none ($format)") {
      val first = open(extra)
      commits(first, 0 until 1): Unit
      OverdueSnapshots.applicationEnds()
      assert(snapshots.isEmpty)
    }
  }

  test("the end of the application waits for a bounded time") {
    val first = open()
    batch(first, Vector(None)): Unit
    val (came, opens) = gated()
    OverdueSnapshots.applicationEnds(seconds = 0)
    waits(came)
    assert(snapshots.isEmpty)
    opens.countDown()
    first.close()
    assert(snapshots == Seq(1))
  }

  test("a version that nothing came after for an interval of maintenance gets one") {
    val long = everyThree ++ Providers.v2
    val ids = batches(8, long)
    val changelog = storeDir.resolve(s"8_${ids(8).get}.changelog")
    Files.setLastModifiedTime(changelog, FileTime.fromMillis(System.currentTimeMillis - 61000))
    val provider = open(long)
    batch(provider, ids): Unit
    settle(provider)
    assert(snapshots == Seq(3, 6, 8))
  }

  test("what is overdue, by the files of a store") {
    val conf = new SQLConf()
    conf.setConfString("spark.sql.streaming.stateStore.minDeltasForSnapshot", "10")
    val settings = new StoreConf(new StateStoreConf(conf), usesFamilies = false)
    val minute = 60000L
    def isOverdue(version: Long, ageMs: Long, snapshots: Long*): Boolean =
      SnapshotTaker.isOverdue(
        VersionId(version, None),
        (StoreFile.Changelog(VersionId(version, None)) -> 1000L) +:
          snapshots.map(v => StoreFile.Snapshot(VersionId(v, None)) -> 1000L),
        settings,
        1000L + ageMs
      )
    assert(isOverdue(1, 0), "nothing is there")
    assert(isOverdue(2, 0, 1))
    assert(isOverdue(3, 0, 1, 2))
    assert(!isOverdue(3, 2 * minute, 1, 2, 3), "it is there")
    assert(isOverdue(7, 0, 5), "an end before maintenance came for the first time")
    assert(!isOverdue(14, 0, 10), "maintenance has come")
    assert(!isOverdue(29, 0, 10, 20))
    assert(isOverdue(30, 0, 10, 20), "so many are due in any case")
    assert(!isOverdue(24, minute, 10, 20) && isOverdue(24, minute + 1, 10, 20))
    assert(isOverdue(23, 0, 10, 20, 22), "a short run between")
    assert(!isOverdue(24, 0, 10, 20, 27), "what lies above is of another history")
    val other = StoreFile.Snapshot(VersionId(2, Some("b"))) -> 1000L
    assert(SnapshotTaker.isOverdue(VersionId(2, Some("a")), Seq(other), settings, 1000L))
  }
}
