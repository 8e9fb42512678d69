package statemark.spark

import java.nio.file.{Files, Path}
import java.util.UUID
import org.apache.hadoop.conf.Configuration
import org.scalatest.funsuite.AnyFunSuite
import statemark.common.Causes
import statemark.spark.conf.StoreSettings
import statemark.spark.local.{LoadSource, LocalDirectory, StoreDirectory}

/** A task that is killed is interrupted wherever it stands, as every task of a query that stops is: local state and
  * its lock stay what they were.
  */
class KilledTaskSuite extends AnyFunSuite with LocalStores {
  private val formats = Seq("v1" -> Map.empty[String, String], "v2" -> Providers.v2)

  override protected def hadoopConf(runId: UUID): Configuration =
    InterruptingFileSystem.in(super.hadoopConf(runId))

  for ((format, extra) <- formats) {

    test(s"while a version on disk is confirmed ($format)") {
      val limited = extra + (StoreSettings.Prefix + "maxUncommittedBytes" -> "1k")
      val many = (0 until 500).map(i => s"many-$i" -> i).toMap
      val provider = open(limited)
      val ids = Vector(None, commit(provider, 0, many).stateStoreCkptId)
      assert(keeperOf(provider).generation.exists(_.store.prepared.exists(_.file.isDefined)))
      onInterruptedThread(check(provider, 1, ids, many))
      assertServed(provider, 1, ids, LoadSource.Memory)
    }

    test(s"while changelogs are replayed onto a home ($format)") {
      val ids = elsewhere(extra, 3 until 5, write(3, extra))
      val after = open(extra)
      isInterrupted(_.endsWith(".changelog"))(after.getStore(5, ids.last))
      check(after, 5, ids, expected(5))
      assertServed(after, 5, ids, LoadSource.Local, replayed = 2)
    }

    test(s"while changelogs are replayed onto an open store ($format)") {
      val provider = open(extra)
      val before = commits(provider, 0 until 3)
      check(provider, 3, before, expected(3))
      val store = keeperOf(provider).generation.map(_.store)
      val ids = elsewhere(extra, 3 until 5, before)
      isInterrupted(_.split('/').last.startsWith("5"))(provider.getStore(5, ids.last))
      check(provider, 5, ids, expected(5))
      assert(keeperOf(provider).generation.map(_.store) == store, "the open store was given up")
      assertServed(provider, 5, ids, LoadSource.Memory)
    }

    test(s"while a snapshot is fetched, which is not passed over for that ($format)") {
      val snapshots = extra + ("spark.sql.streaming.stateStore.minDeltasForSnapshot" -> "1")
      val writer = open(snapshots)
      val ids = commits(writer, 0 until 4)
      writer.doMaintenance()
      writer.close()
      LocalDirectory.deleteTree(local.toFile)
      for (kind <- Seq(".zip", ".sst")) {
        val after = open(snapshots + (localDir -> queryDir.resolve(kind).toString))
        isInterrupted(_.endsWith(kind))(after.getStore(4, ids.last))
        check(after, 4, ids, expected(4))
        assert(!keeperOf(after).load.isRepaired && keeperOf(after).load.replayed <= 1)
        assertLoad(after, LoadSource.Checkpoint)
      }
    }

    test(s"two runs of one process name one directory in two ways ($format)") {
      val link = Files.createSymbolicLink(queryDir.resolve("link"), Files.createDirectories(local))
      val names = Seq(local, local.resolve("."), link, queryDir.resolve("link/../local"))
      val first = open(extra)
      val ids = commits(first, 0 until 3)
      for (name <- names) {
        val run = open(extra + (localDir -> name.toString))
        check(run, 3, ids, expected(3))
        assertLoad(run, LoadSource.Local)
        assert(isLocked(homes.head))
        run.close()
      }
      check(first, 3, ids, expected(3))
      assertServed(first, 3, ids, LoadSource.Memory)
    }
  }

  test("a flush notes its version on an interrupted thread, and the home stays locked") {
    val provider = open()
    commits(provider, 0 until 3): Unit
    val home = keeperOf(provider).generation.get.home
    onInterruptedThread {
      home.note(7)
      assert(home.noted.contains(7L))
    }
    assert(isLocked(homes.head) && home.noted.contains(7L))
  }

  test("a provider is closed on an interrupted thread") {
    val provider = open()
    val ids = commits(provider, 0 until 3)
    assert(isLocked(homes.head))
    onInterruptedThread(provider.close())
    assert(!isLocked(homes.head))
    val after = open()
    check(after, 3, ids, expected(3))
    assertLoad(after, LoadSource.Local)
  }

  test("a home is taken, and given up, on an interrupted thread") {
    val path = newHome()
    val home = onInterruptedThread(StoreDirectory.tryHold(path.toFile).get)
    assert(isLocked(path))
    onInterruptedThread(home.release())
    assert(!isLocked(path))
  }

  test("a home that is held is held under every name, and asking for it does not lose the lock") {
    val path = newHome()
    val links = Files.createDirectories(queryDir.resolve("links"))
    val others = Seq(
      path.resolve("../home/."),
      Files.createSymbolicLink(links.resolve("home"), path),
      Files.createSymbolicLink(links.resolve("parent"), path.getParent).resolve("home")
    )
    // Another directory with the same lock file, as a second mount has it.
    val mounted = Files.createDirectories(links.resolve("mounted"))
    Files.createLink(
      mounted.resolve(StoreDirectory.LockName),
      path.resolve(StoreDirectory.LockName)
    )
    val home = StoreDirectory.tryHold(path.toFile).get
    for (other <- path +: others :+ mounted) {
      assert(StoreDirectory.tryHold(other.toFile).isEmpty && StoreDirectory.isInUse(other.toFile))
      assert(StoreDirectory.notedVersion(other.toFile).isEmpty)
      assert(isLocked(path), s"asking for $other lost the lock")
    }
    home.release()
    for (other <- path +: others :+ mounted) {
      val again = StoreDirectory.tryHold(other.toFile).get
      assert(StoreDirectory.tryHold(path.toFile).isEmpty && isLocked(path))
      again.release()
    }
  }

  test("a lock that this process has in a way we do not know of is not lost by asking for it") {
    val path = newHome()
    val channel =
      new java.io.RandomAccessFile(path.resolve(StoreDirectory.LockName).toFile, "rw").getChannel
    channel.lock(): Unit
    assert(StoreDirectory.tryHold(path.toFile).isEmpty && StoreDirectory.isInUse(
      path.toFile
    ) && isLocked(path))
    channel.close()
  }

  // ---- helpers

  private def onInterruptedThread[A](body: => A): A = {
    Thread.currentThread.interrupt()
    try body
    finally Thread.interrupted(): Unit
  }

  /** The first who opens such a file is interrupted, and says so. */
  private def isInterrupted(path: String => Boolean)(load: => Any): Unit = {
    val e = intercept[Exception](InterruptingFileSystem.interrupting(path)(load))
    assert(Causes.of(e).exists(_.isInstanceOf[InterruptedException]), e.toString)
  }

  /** Further versions, by another executor. */
  private def elsewhere(
      extra: Map[String, String],
      versions: Range,
      before: Vector[Option[String]]
  ): Vector[Option[String]] = {
    val other = open(extra + (localDir -> queryDir.resolve("elsewhere").toString))
    val ids = commits(other, versions, before)
    other.close()
    ids
  }

  private def newHome(): Path = {
    val path = Files.createDirectories(queryDir.resolve("some/home"))
    Files.createFile(path.resolve(StoreDirectory.LockName))
    path
  }

  /** Whether another process is kept from the home. */
  private def isLocked(home: Path): Boolean = {
    val script =
      "import fcntl,sys; fcntl.lockf(open(sys.argv[1], 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    val words = Seq("python3", "-c", script, home.resolve(StoreDirectory.LockName).toString)
    new ProcessBuilder(words: _*).redirectError(ProcessBuilder.Redirect.DISCARD).start()
      .waitFor() == 1
  }
}
