package statemark.spark

import java.nio.file.attribute.{FileTime, PosixFilePermissions}
import java.nio.file.{Files, Path}
import java.time.temporal.ChronoUnit
import java.util.concurrent.ScheduledThreadPoolExecutor
import org.apache.spark.sql.execution.streaming.state._
import org.scalatest.funsuite.AnyFunSuite
import scala.jdk.CollectionConverters._
import scala.ref.WeakReference
import statemark.common.{Causes, RejectReason}
import statemark.IsolationLevel
import statemark.spark.local.{FlushPolicy, LoadSource, ReusableStores, StoreDirectory}
import statemark.spark.process.{BackgroundThreads, JvmState}
import statemark.spark.reads.LiveRead
import statemark.testkit.FileCounts
import statemark.transaction.CommitPhase

/** I6: what an earlier process or run left of a store is used when identity and history prove it, and only
  * then; either way the answer is right.
  *
  * A killed process is played by a copy of its local directory as it was at that moment.
  */
class LocalStateSuite extends AnyFunSuite with LocalStores {

  for ((format, extra) <- Seq("v1" -> Map.empty[String, String], "v2" -> Providers.v2)) {

    test(s"a restart opens the directory and reads the checkpoint for its proof alone ($format)") {
      val ids = write(3, extra)
      val after = open(extra)
      FileCounts.reset()
      check(after, 3, ids, expected(3))
      // The file of its version and the one before: a status, and all of its bytes.
      val files = if (format == "v1") 2 else 0
      assert(FileCounts.opens(location) == files)
      // Which versions have a changelog and a snapshot.
      assert(FileCounts.lists(location) == (if (format == "v1") 1 else 0))
      assert(FileCounts.statuses(location) == files)
      assertServed(after, 3, ids, LoadSource.Local, replayed = 0)
    }

    test(s"after a kill only what was not flushed is replayed ($format)") {
      val provider = open(extra)
      val ids = commits(provider, 0 until 12)
      awaitFlush(provider)
      val killed = copyOfLocal()
      val after = open(extra + (localDir -> killed.toString))
      check(after, 12, ids, expected(12))
      val figures = served(after)
      assert(figures("statemarkLoadLocalCount") == 1)
      assert(figures("statemarkReplayedChangelogCount") <= FlushPolicy.MaxVersions + 1)
    }

    test(s"after a kill before the first flush nothing is proven ($format)") {
      val provider = open(extra)
      val ids = commits(provider, 0 until 2)
      val killed = copyOfLocal()
      val after = open(extra + (localDir -> killed.toString))
      check(after, 2, ids, expected(2))
      assertServed(after, 2, ids, LoadSource.Checkpoint, RejectReason.Unproven)
    }

    test(s"counts, column families and further commits of a reopened store ($format)") {
      val provider = open(extra, usesFamilies = true)
      def families(p: StateStoreProvider, v: Long, id: Option[String]) = {
        val store = p.getStore(v, id)
        val spec = NoPrefixKeyStateEncoderSpec(Providers.keySchema)
        store.createColFamilyIfAbsent(s"family$v", Providers.keySchema, Providers.valueSchema, spec)
        store.put(Providers.key(s"k$v"), Providers.value(v.toInt), s"family$v")
        store.commit(): Unit
        (store.getStateStoreCheckpointInfo().stateStoreCkptId, store.metrics.numKeys)
      }
      val (first, _) = families(provider, 0, None)
      val (second, _) = families(provider, 1, first)
      provider.close()
      val after = open(extra, usesFamilies = true)
      val (third, keys) = families(after, 2, second)
      assert(keys == 3)
      after.close()
      val sparks = open(extra, Providers.sparksOwn, usesFamilies = true)
      val store = sparks.getStore(3, third)
      for (v <- 0 to 2) {
        val spec = NoPrefixKeyStateEncoderSpec(Providers.keySchema)
        store.createColFamilyIfAbsent(s"family$v", Providers.keySchema, Providers.valueSchema, spec)
        assert(store.get(Providers.key(s"k$v"), s"family$v").getInt(0) == v)
      }
      store.abort()
    }

    test(s"rows are not counted for a while, and then again ($format)") {
      def numKeys(counts: Boolean, version: Long, id: Option[String]): (Long, Option[String]) = {
        val key = "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows"
        val provider = open(extra + (key -> counts.toString))
        val store = provider.getStore(version, id)
        put(store, Map(s"k$version" -> 1))
        store.commit(): Unit
        provider.close()
        (store.metrics.numKeys, store.getStateStoreCheckpointInfo().stateStoreCkptId)
      }
      val (first, a) = numKeys(counts = true, 0, None)
      val (second, b) = numKeys(counts = false, 1, a)
      assert((first, second) == ((1, -1)), "as Spark's provider says it")
      val (third, c) = numKeys(counts = true, 2, b)
      val (fourth, _) = numKeys(counts = true, 3, c)
      assert((third, fourth) == ((3, 4)))
    }

    test(s"a new run in the same process starts from the open store of the one before ($format)") {
      val before = open(extra)
      val ids = commits(before, 0 until 3)
      val after = open(extra)
      check(after, 3, ids, expected(3))
      assertServed(after, 3, ids, LoadSource.Local, replayed = 1)
      // The earlier run's store is its own still.
      check(before, 3, ids, expected(3))
    }

    test(s"a store that is closed before its flush is due leaves the heap ($format)") {
      val provider = open(extra)
      commits(provider, 0 until 3): Unit
      val store = new WeakReference(keeperOf(provider).generation.get.store)
      provider.close()
      assert((1 to 20).exists { _ => System.gc(); store.get.isEmpty })
    }

    test(
      s"a store that another replaces leaves the heap, and the other is flushed in time ($format)"
    ) {
      val provider = open(extra)
      provider.getStore(0, None).abort()
      def flushes = BackgroundThreads.background.asInstanceOf[ScheduledThreadPoolExecutor]
      def await(): Unit = flushes.submit((() => ()): Runnable).get(): Unit // what is due at once
      def store = keeperOf(provider).generation.get.store
      await()
      val ids = commits(provider, 0 until 3)
      val replaced = new WeakReference(store)
      check(provider, 1, ids, expected(1)) // as a zombie asks
      await()
      assert((1 to 20).exists { _ => System.gc(); replaced.get.isEmpty })
      check(provider, 2, ids, expected(2))
      assert(store.base.version == 2 && store.flushed == 1)
      flushes.getQueue.forEach(_.run()) // half a minute later
      assert(store.flushed == 2)
    }

    for ((when, isUnloadedLate) <- Seq("before" -> false, "after" -> true))
      test(s"runs of one batch leave one home, each unloaded $when the next one starts ($format)") {
        val runs = (0 until 5).scanLeft((open(extra), Vector(Option.empty[String]))) {
          case ((before, ids), v) =>
            if (!isUnloadedLate) before.close()
            val run = open(extra)
            val now = commits(run, v until v + 1, ids)
            if (isUnloadedLate) before.close()
            (run, now)
        }
        runs.last._1.close()
        assert(homes.size == 1)
        val after = open(extra)
        check(after, 5, runs.last._2, expected(5))
        assertLoad(after, LoadSource.Local)
      }

    test(s"of several homes the newest is opened, and no other ($format)") {
      val ids = write(3, extra)
      val older = queryDir.resolve("older")
      LocalStores.copyTree(homes.head, older)
      flipByte(named(older.resolve("base"), "MANIFEST"), 20)
      val provider = open(extra)
      val more = commits(provider, 3 until 6, ids)
      provider.close()
      LocalStores.copyTree(older, homes.head.resolveSibling("older"))
      val after = open(extra)
      check(after, 6, more, expected(6))
      assertLoad(after, LoadSource.Local)
      // It goes when the next version is confirmed, or with the run.
      commits(after, 6 until 7, more): Unit
      after.close()
      assert(homes.size == 1)
    }

    test(
      s"a version older than the local one is restored, and the local one is used again ($format)"
    ) {
      val ids = write(4, extra)
      val zombie = open(extra)
      check(zombie, 2, ids, expected(2))
      assertLoad(zombie, LoadSource.Checkpoint, RejectReason.Ahead)
      zombie.close()
      val after = open(extra)
      check(after, 4, ids, expected(4))
      assertServed(after, 4, ids, LoadSource.Local)
    }

    test(s"another number of partitions is another store ($format)") {
      val ids = write(3, extra)
      JvmState.runningTask.set(() => query.copy(partitions = 16))
      val after = open(extra)
      check(after, 3, ids, expected(3))
      assertServed(after, 3, ids, LoadSource.Checkpoint, RejectReason.OtherStore)
    }

    test(s"a query with another id does not see the directory ($format)") {
      val ids = write(3, extra)
      JvmState.runningTask.set(() => query.copy(queryId = "another"))
      val after = open(extra)
      check(after, 3, ids, expected(3))
      assertServed(after, 3, ids, LoadSource.Checkpoint)
    }

    test(s"a history that was rolled back and written anew is not continued ($format)") {
      val ids = write(5, extra)
      // Batches 3 and 4 again, with other rows: as another executor writes them.
      val elsewhere = open(extra + (localDir -> queryDir.resolve("elsewhere").toString))
      var rewritten = ids.take(4)
      for (v <- 3 until 5) {
        // A file system tells times in milliseconds, and two runs are further apart than one.
        val info = commit(elsewhere, v, Map(s"other$v" -> v), rewritten.last)
        touchLater(v + 1L)
        rewritten = rewritten :+ info.stateStoreCkptId
      }
      elsewhere.close()
      val after = open(extra)
      check(after, 5, rewritten, expected(3) ++ Map("other3" -> 3, "other4" -> 4))
      assertServed(after, 5, rewritten, LoadSource.Checkpoint, RejectReason.OtherHistory)
    }

    for ((what, damage) <- damages) test(s"$what: restored from the checkpoint ($format)") {
      val ids = write(3, extra)
      damage(base)
      val after = open(extra)
      check(after, 3, ids, expected(3))
      assertServed(after, 3, ids, LoadSource.Checkpoint, RejectReason.Damaged)
      assert(homes.size == 1, "what was refused is deleted once a version is confirmed")
    }

    test(s"a flipped byte among the rows fails the task, and the next attempt restores ($format)") {
      val many = (0 until 5000).map(i => f"row$i%06d" -> i).toMap
      val provider = open(extra)
      val id = commit(provider, 0, many).stateStoreCkptId
      provider.getStore(1, id).abort()
      provider.close()
      val rowFile = sstFiles(base).maxBy(Files.size(_))
      flipByte(rowFile, (Files.size(rowFile) / 3).toInt)
      val after = open(extra)
      val damaged = after.getStore(1, id)
      assert(keeperOf(after).load.source == LoadSource.Local)
      val e = intercept[Exception](rows(damaged))
      assert(Causes.of(e).exists(_.getMessage.contains("cannot read")))
      damaged.abort()
      check(after, 1, Vector(None, id), many)
      assertServed(after, 1, Vector(None, id), LoadSource.Checkpoint)
    }

    test(s"a changelog that is missing between: restored, or refused by name ($format)") {
      val provider = open(extra)
      val ids = commits(provider, 0 until 2)
      provider.close()
      val elsewhere = open(extra + (localDir -> queryDir.resolve("elsewhere").toString))
      val more = commits(elsewhere, 2 until 4, ids)
      elsewhere.close()
      files(".changelog").filter(_.startsWith("3")).foreach(n => Files.delete(storeDir.resolve(n)))
      val after = open(extra)
      val e = intercept[Exception](check(after, 4, more, expected(4)))
      assert(e.getMessage.contains("CANNOT_LOAD_STATE_STORE") || e.getMessage.contains("3"))
    }
  }

  test("v1: a flush that nobody planned proves its version as well") {
    val provider = open()
    val ids = commits(provider, 0 until 3)
    keeperOf(provider).generation.foreach(_.store.flush())
    val killed = copyOfLocal()
    val after = open(Map(localDir -> killed.toString))
    check(after, 3, ids, expected(3))
    assertServed(after, 3, ids, LoadSource.Local, replayed = 1)
  }

  test("v1: a checkpoint that was made anew at the same path, with files of the same bytes") {
    val ids = write(3, Map.empty)
    val changelog = storeDir.resolve("3.changelog")
    Files.setLastModifiedTime(
      changelog,
      FileTime.fromMillis(Files.getLastModifiedTime(changelog).toMillis + 1)
    )
    val after = open()
    check(after, 3, ids, expected(3))
    assertServed(after, 3, ids, LoadSource.Checkpoint, RejectReason.OtherHistory)
  }

  test("the first snapshot after a restart uploads only what is new") {
    val extra = Map("spark.sql.streaming.stateStore.minDeltasForSnapshot" -> "3")
    val provider = open(extra)
    var ids = commits(provider, 0 until 5)
    provider.doMaintenance()
    val uploaded = sstFiles(storeDir.resolve("SSTs")).map(_.getFileName.toString).toSet
    assert(uploaded.nonEmpty)
    provider.close()
    val after = open(extra)
    ids = commits(after, 5 until 9, ids)
    after.doMaintenance()
    val snapshot = files(".zip").map(_.takeWhile(_.isDigit).toLong).max
    assert(snapshot > 5)
    assert(uploaded.subsetOf(sstFiles(storeDir.resolve("SSTs")).map(_.getFileName.toString).toSet))
    assert(rowsAt(9, className = Providers.sparksOwn) == expected(9))
    assert(metrics(after, 9, ids)("rocksdbFilesReused") >= 0)
  }

  test("an empty batch has the same bytes in every history: its time tells them apart") {
    val provider = open()
    commit(provider, 0, Map("a" -> 1)): Unit
    commit(provider, 1, Map.empty): Unit
    commit(provider, 2, Map.empty): Unit
    provider.close()
    // The same numbers with another first batch.
    files(".changelog").foreach(n => Files.delete(storeDir.resolve(n)))
    val elsewhere = open(Map(localDir -> queryDir.resolve("elsewhere").toString))
    commit(elsewhere, 0, Map("b" -> 2)): Unit
    commit(elsewhere, 1, Map.empty): Unit
    commit(elsewhere, 2, Map.empty): Unit
    elsewhere.close()
    Seq(1L, 2L, 3L).foreach(touchLater)
    val after = open()
    check(after, 3, Vector.fill(4)(None), Map("b" -> 2))
  }

  for ((jump, years) <- Seq("forwards" -> 1, "back" -> -1))
    test(s"a clock that has jumped a year $jump since: times of a home mean nothing to a restart") {
      val ids = write(3, Map.empty)
      val moved =
        FileTime.from(Files.getLastModifiedTime(base).toInstant.plus(365L * years, ChronoUnit.DAYS))
      (homes.head.resolve(StoreDirectory.LockName).toFile +: base.toFile.listFiles)
        .foreach(f => Files.setLastModifiedTime(f.toPath, moved))
      val after = open()
      check(after, 3, ids, expected(3))
      assertServed(after, 3, ids, LoadSource.Local)
    }

  test("a home that is held stays held when another provider of the process looks for homes") {
    val holder = open()
    val ids = commits(holder, 0 until 2)
    // Both probe what the first one holds.
    for (_ <- 0 until 2) {
      val other = open()
      check(other, 2, ids, expected(2))
      other.close()
    }
    val probe = new ProcessBuilder(
      "python3",
      "-c",
      "import fcntl,sys; fcntl.lockf(open(sys.argv[1], 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)",
      homes.head.resolve(StoreDirectory.LockName).toString
    ).redirectError(ProcessBuilder.Redirect.DISCARD).start()
    assert(probe.waitFor() == 1, "another process could take the home")
    assert(homes.size == 1, "providers that only read leave nothing")
  }

  test("a live read in a task of the query takes and leaves nothing in its directory") {
    val ids = write(3, Map.empty)
    val before = homes
    val reader = LiveRead(IsolationLevel.ReadCommitted).during(open())
    check(reader, 3, ids, expected(3))
    assertLoad(reader, LoadSource.Checkpoint)
    assert(homes == before)
    val after = open()
    check(after, 3, ids, expected(3))
    assertLoad(after, LoadSource.Local)
  }

  test("a store that is interrupted while it closes lets go of its home all the same") {
    var isInterrupted = false
    JvmState.observer.set { phase =>
      if (isInterrupted && phase == CommitPhase.FlushStarted)
        throw new InterruptedException("the flush of a store that closes")
    }
    val provider = open()
    val ids = commits(provider, 0 until 3)
    check(provider, 3, ids, expected(3))
    val parent = homes.head.getParent.toFile.getCanonicalFile
    assert(ReusableStores.of(parent).size == 1)
    isInterrupted = true
    intercept[InterruptedException](provider.close())
    assert(ReusableStores.of(parent).isEmpty && !StoreDirectory.isInUse(homes.head.toFile))
    isInterrupted = false
    val after = open()
    check(after, 3, ids, expected(3))
    // Nothing was flushed: what is left proves nothing.
    assertLoad(after, LoadSource.Checkpoint, RejectReason.Unproven)
  }

  test("directories are private to the user, and another user's are refused") {
    write(1, Map.empty): Unit
    val query = local.resolve(this.query.queryId)
    assert(PosixFilePermissions.toString(Files.getPosixFilePermissions(query)) == "rwx------")
    assert(Files.getPosixFilePermissions(homes.head).asScala.forall(_.name.startsWith("OWNER")))
    assume(System.getProperty("user.name") == "root", "only root may give files away")
    val nobody =
      Files.getFileAttributeView(query, classOf[java.nio.file.attribute.FileOwnerAttributeView])
    nobody.setOwner(
      query.getFileSystem.getUserPrincipalLookupService.lookupPrincipalByName("nobody")
    )
    val e = intercept[Exception](open().getStore(1, None))
    assert(Causes.of(e).exists(_.getMessage.contains("belongs to nobody")))
  }

  test("a root that cannot be written is refused with its name") {
    val file = Files.createFile(queryDir.resolve("file"))
    val e =
      intercept[Exception](open(Map(localDir -> file.resolve("x").toString)).getStore(0, None))
    assert(Causes.of(e).exists(c =>
      c.getMessage.contains("localDir is") && c.getMessage.contains("file/x")
    ))
  }

  private def damages: Seq[(String, Path => Unit)] = Seq(
    "an SST file is gone" -> (base => sstFiles(base).foreach(Files.delete)),
    "an SST file is cut short" -> { base =>
      sstFiles(base).foreach(f => Files.write(f, Files.readAllBytes(f).dropRight(30)))
    },
    "the MANIFEST has a flipped byte" -> (base => flipByte(named(base, "MANIFEST-"), 12)),
    "the MANIFEST is gone" -> (base => Files.delete(named(base, "MANIFEST-"))),
    "CURRENT names nothing" -> (base =>
      Files.write(base.resolve("CURRENT"), Array.emptyByteArray): Unit
    )
  )
}
