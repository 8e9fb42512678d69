package statemark.spark

import java.nio.file.{Files, Path}
import java.util.UUID
import org.apache.hadoop.conf.Configuration
import org.apache.spark.SparkException
import org.apache.spark.sql.execution.streaming.state.StateStoreProvider
import org.scalatest.funsuite.AnyFunSuite
import scala.jdk.CollectionConverters._
import statemark.common.{Causes, ScratchFullException}
import statemark.spark.conf.StoreSettings
import statemark.spark.errors.FailureKinds
import statemark.spark.local.{LoadSource, LocalCollector, LocalDirectory}
import statemark.spark.process.JvmState
import statemark.transaction.CommitPhase

/** A disk without room, or without leave to write: the task fails and says where, or goes on where it can; with
  * room again the same version is served, and rightly.
  */
class FullDiskSuite extends AnyFunSuite with LocalStores {
  private val formats = Seq("v1" -> Map.empty[String, String], "v2" -> Providers.v2)
  private val forced = Map("spark.sql.streaming.stateStore.minDeltasForSnapshot" -> "3")

  private val Full = "the local disk is full"
  private var mounted = Option.empty[Tmpfs]
  @volatile private var isForced = false

  override protected def hadoopConf(runId: UUID): Configuration =
    FullFileSystem.in(super.hadoopConf(runId))

  override protected def afterEach(): Unit = {
    FullFileSystem.isFull = _ => false
    super.afterEach()
  }

  for ((format, extra) <- formats) {
    test(s"the checkpoint is full when a changelog is written ($format)") {
      val provider = open(extra)
      val ids = commits(provider, 0 until 2)
      val before = files("")
      FullFileSystem.isFull = _.contains(".changelog")
      val store = provider.getStore(2, ids.last)
      put(store, Map("k2" -> 2))
      val e = intercept[Exception](store.commit())
      assert(says(e, "No space left on device") && says(e, "CANNOT_WRITE_STATE_STORE"))
      store.abort()
      assert(files("") == before, "no part of a file is left under its name")
      FullFileSystem.isFull = _ => false
      val all = commits(provider, 2 until 4, ids)
      check(provider, 4, all, expected(4))
      provider.close()
      check(open(extra), 4, all, expected(4))
      assert(rowsAt(4, all.last, extra, Providers.sparksOwn) == expected(4))
    }

    for (part <- Seq(".zip", ".sst")) {
      test(s"the checkpoint is full when maintenance uploads a snapshot's $part ($format)") {
        val provider = open(extra ++ forced)
        val ids = commits(provider, 0 until 4)
        FullFileSystem.isFull = _.contains(part)
        provider.doMaintenance()
        assert(files(".zip").isEmpty)
        val all = commits(provider, 4 until 5, ids)
        FullFileSystem.isFull = _ => false
        provider.doMaintenance()
        assert(files(".zip").nonEmpty)
        assert(rowsAt(5, all.last, extra, Providers.sparksOwn) == expected(5))
      }

      if (Line.hasStoreOf42)
        test(s"the checkpoint is full when a commit uploads its snapshot's $part ($format)") {
          val provider = open(extra)
          val ids = commits(provider, 0 until 2)
          FullFileSystem.isFull = _.contains(part)
          val store = Line.getStore(provider, 2, ids.last, force = true)
          put(store, Map("lost" -> 2))
          val e = intercept[Exception](store.commit())
          assert(says(e, "No space left on device"))
          store.abort()
          FullFileSystem.isFull = _ => false
          val again = commit(provider, 2, Map("k2" -> 2), ids.last, force = true)
          val all = ids :+ again.stateStoreCkptId
          check(provider, 3, all, expected(3))
          assert(rowsAt(3, all.last, extra, Providers.sparksOwn) == expected(3))
        }
    }

    for ((name, disk) <- disks) {
      test(s"$name while a store is flushed: no batch is lost ($format)") {
        val provider = open(extra)
        val ids = commits(provider, 0 until 3)
        val during = disk.refusing {
          disk.assertSays(intercept[Exception](flush(provider)))
          attempts(provider, ids, upTo = 12, assertSays = disk.assertSays(_))
        }
        info(s"at version ${during.length - 1} when there was room again")
        val all = commits(provider, during.length - 1 until 14, during)
        check(provider, 14, all, expected(14))
        provider.close()
        check(open(extra), 14, all, expected(14))
      }

      test(s"$name while memtables fill up and are confirmed: no batch is lost ($format)") {
        val small = extra + ("spark.sql.streaming.stateStore.rocksdb.writeBufferSizeMB" -> "1")
        val provider = open(small)
        def rowsOf(batch: Int) = (0 until 2000).map(i => s"${"x" * 300}-$batch-$i" -> i).toMap
        val ids = attempts(provider, Vector(None), upTo = 2, rowsOf)
        val before = homes
        val during = disk.refusing(attempts(provider, ids, upTo = 8, rowsOf, disk.assertSays(_)))
        if (disk.isFull) assert(before.forall(homes.contains(_)), "a home stays")
        info(s"at version ${during.length - 1} when there was room again")
        // RocksDB itself notices a while later that there is room.
        val all = Iterator.iterate(during)(attempts(provider, _, upTo = 8, rowsOf))
          .take(3).dropWhile(_.length < 9).nextOption().getOrElse(fail("it does not go on"))
        val wanted = (0 until 8).flatMap(rowsOf).toMap
        check(provider, 8, all, wanted)
        provider.close()
        check(open(small), 8, all, wanted)
      }

      test(s"$name while a batch spills: the task fails, the base stands ($format)") {
        val limited = extra + (StoreSettings.Prefix + "maxUncommittedBytes" -> "64k")
        val provider = open(limited)
        val ids = commits(provider, 0 until 3)
        val many = (0 until 3000).map(i => s"many-$i" -> i).toMap
        disk.refusing {
          val store = provider.getStore(3, ids.last)
          val e = intercept[ScratchFullException](put(store, many))
          assert(says(e, "maxUncommittedBytes") && says(e, local.toString))
          store.abort()
        }
        check(provider, 3, ids, expected(3))
        assertServed(provider, 3, ids, LoadSource.Memory)
        val all = ids :+ commit(provider, 3, many, ids.last).stateStoreCkptId
        check(provider, 4, all, expected(3) ++ many)
      }

      test(s"$name while a store is restored: refused, and right with room ($format)") {
        val ids = write(3, extra)
        LocalDirectory.deleteTree(local.resolve(query.queryId).toFile)
        val provider = open(extra)
        val e = disk.refusing(intercept[Exception](provider.getStore(3, ids.last)))
        assert(says(e, "CANNOT_LOAD_STATE_STORE") && says(e, local.toString))
        disk.assertSays(e)
        check(provider, 3, ids, expected(3))
        assertServed(provider, 3, ids, LoadSource.Checkpoint)
      }

      test(s"$name while a home is opened: refused, and the home is used with room ($format)") {
        val ids = write(3, extra)
        val provider = open(extra)
        val e = disk.refusing(intercept[Exception](provider.getStore(3, ids.last)))
        assert(says(e, "CANNOT_LOAD_STATE_STORE") && says(e, local.toString))
        disk.assertSays(e)
        check(provider, 3, ids, expected(3))
        assertServed(provider, 3, ids, LoadSource.Local)
      }
    }

    test(s"$Full when a run begins beside the open store of another: it waits for room ($format)") {
      val earlier = open(extra)
      val ids = commits(earlier, 0 until 3)
      earlier.getStore(3, ids.last).abort()
      val provider = open(extra)
      val e = fullDisk.refusing(intercept[Exception](provider.getStore(3, ids.last)))
      fullDisk.assertSays(e)
      check(provider, 3, ids, expected(3))
      val all = commits(provider, 3 until 5, ids)
      check(provider, 5, all, expected(5))
    }

    test(s"$Full while a new store is made, or has no file left: no home is left behind ($format)") {
      for (use <- Seq[(Tmpfs => Unit)](_.fill(), _.takeAllFiles())) {
        val provider = open(extra)
        val before = homesThere
        use(mounted.get)
        val e = intercept[Exception](provider.getStore(0))
        mounted.foreach(_.empty())
        fullDisk.assertSays(e)
        assert(homesThere == before)
        check(provider, 0, Vector(None), Map.empty)
        provider.close()
      }
    }

    if (Line.hasStoreOf42)
      test(s"$Full when a commit takes its snapshot: the base stands ($format)") {
        JvmState.observer.set { phase =>
          if (phase == CommitPhase.ChangelogDurable && isForced) mounted.foreach(_.fill())
        }
        val provider = open(extra)
        val ids = commits(provider, 0 until 3)
        val store = Line.getStore(provider, 3, ids.last, force = true)
        put(store, Map("lost" -> 3))
        isForced = true
        val e =
          try intercept[Exception](store.commit())
          finally isForced = false
        fullDisk.assertSays(e)
        store.abort()
        mounted.foreach(_.empty())
        assert(homes.length == 1)
        val all = commits(provider, 3 until 5, ids)
        check(provider, 5, all, expected(5))
        assert(rowsAt(5, all.last, extra, Providers.sparksOwn) == expected(5))
      }

    test(s"$Full: a collection makes room ($format)") {
      write(3, extra)
      mounted.foreach(_.fill())
      val settings = StoreSettings.from(
        Map(StoreSettings.Prefix + "localDirMaxBytes" -> "1b"),
        1L << 30
      )
      assert(LocalCollector.collect(local.toFile, settings, nowMs = 0).length == 1)
    }
  }

  // ---- helpers

  /** A way in which the local directory takes no more. */
  private trait Disk {

    /** While `body` runs. */
    def refusing[A](body: => A): A

    def isFull: Boolean

    /** Checks that a failure says which disk it is, why, and what to do; nothing of damage. */
    def assertSays(failure: Throwable): Unit = if (isFull) {
      val said = s"${FailureKinds.whyOf(failure)} ${FailureKinds.remedyOf(failure)}"
      assert(FailureKinds.nameOf(failure) == "DiskUnwritable", failure)
      assert(said.startsWith("The local directory is full: "))
      Seq(
        local.toString,
        "No space left on device",
        "bytes are free",
        "Make room there",
        "Nothing is lost"
      ).foreach(words => assert(said.contains(words)))
      Seq("damaged", "cannot be loaded", "given up").foreach(words =>
        assert(!failure.getMessage.contains(words))
      )
    }
  }

  private lazy val fullDisk: Disk = new Disk {
    override val isFull: Boolean = true
    override def refusing[A](body: => A): A = {
      mounted.foreach(_.fill())
      try body
      finally mounted.foreach(_.empty())
    }
  }

  private def disks: Seq[(String, Disk)] = Seq(
    Full -> fullDisk,
    "the local directory is read-only" -> new Disk {
      override val isFull: Boolean = false
      override def refusing[A](body: => A): A = {
        val directories = tree(local).filter(Files.isDirectory(_))
        directories.foreach(writable(_, isAllowed = false))
        try body
        finally directories.foreach(writable(_, isAllowed = true))
      }
    }
  )

  override protected def withFixture(test: NoArgTest) =
    if (!test.name.startsWith(Full)) super.withFixture(test)
    else {
      mounted = Tmpfs.mount(local, "size=24m,nr_inodes=500")
      assume(mounted.isDefined, "needs mount: no file system plays a full disk for RocksDB")
      try super.withFixture(test)
      finally {
        closeAll()
        mounted.foreach(_.unmount())
        mounted = None
      }
    }

  /** Permissions do not bind root, an attribute does. */
  private def writable(directory: Path, isAllowed: Boolean): Unit =
    if (System.getProperty("user.name") == "root")
      assume(Tmpfs.ran("chattr", if (isAllowed) "-i" else "+i", directory.toString), "needs chattr")
    else assert(directory.toFile.setWritable(isAllowed))

  private def homesThere: Seq[Path] =
    if (Files.exists(local.resolve(query.queryId))) homes else Nil

  private def tree(root: Path): Seq[Path] = {
    val walk = Files.walk(root)
    try walk.iterator.asScala.toVector
    finally walk.close()
  }

  private def flush(provider: StateStoreProvider): Unit =
    keeperOf(provider).generation.foreach(_.store.flush())

  /** Commits, each tried three times as Spark tries a task, up to a version or one that fails by name. */
  private def attempts(
      provider: StateStoreProvider,
      ids: Vector[Option[String]],
      upTo: Int,
      rowsOf: Int => Map[String, Int] = batch => Map(s"k$batch" -> batch),
      assertSays: Throwable => Unit = _ => ()
  ): Vector[Option[String]] = {
    var done = ids
    var failures = 0
    while (done.length <= upTo && failures < 3)
      try {
        val batch = done.length - 1
        done = done :+ commit(provider, batch, rowsOf(batch), done.last).stateStoreCkptId
        failures = 0
      } catch {
        case e: SparkException =>
          assert(says(e, "CANNOT_LOAD_STATE_STORE") && says(e, local.toString))
          assertSays(e)
          failures += 1
      }
    done
  }

  private def says(e: Throwable, words: String): Boolean =
    Causes.of(e).exists(c => c.toString.contains(words))
}
