package statemark.spark

import java.io.File
import java.nio.file.Files
import java.util.concurrent.TimeUnit
import org.scalatest.BeforeAndAfterEach
import org.scalatest.funsuite.AnyFunSuite
import statemark.common.Clock
import statemark.spark.conf.StoreSettings
import statemark.spark.local.{DiskUse, LocalCollector, LocalDirectory, StoreDirectory}
import statemark.spark.process.BackgroundThreads

/** Homes that nobody uses go by age and size; one that is held stays whatever its age. */
class LocalCollectorSuite extends AnyFunSuite with BeforeAndAfterEach {
  private val now = 1700000000000L
  private val hour = 3600L * 1000
  private var root: File = _

  override protected def beforeEach(): Unit =
    root = Files.createTempDirectory("statemark-gc-").toFile

  override protected def afterEach(): Unit = LocalDirectory.deleteTree(root)

  test("by age: seven days unless it is set") {
    val (old, young) = (home("q1", hoursAgo = 8 * 24), home("q2", hoursAgo = 6 * 24))
    assert(collect() == Seq(old) && !old.exists && young.exists)
    assert(!new File(root, "q1").exists, "directories that are empty go too")
    assert(collect("localDirMaxAge" -> "5d") == Seq(young))
  }

  test("by size: the oldest first") {
    val homes = (1 to 4).map(i => home(s"q$i", hoursAgo = 10 - i, bytes = 1000))
    val bytes = DiskUse.of(homes.head).bytes
    assert(collect("localDirMaxBytes" -> s"${bytes * 5 / 2}b") == homes.take(2))
    assert(homes.map(_.exists) == Seq(false, false, true, true))
  }

  test("by size: a file that two homes share goes with the second, and counts once") {
    val homes = (1 to 3).map(i => home(s"q$i", hoursAgo = 10 - i, bytes = 1 << 20))
    val shared = new File(homes(1), "data").toPath
    Files.delete(shared)
    Files.createLink(shared, new File(homes.head, "data").toPath): Unit
    assert(collect("localDirMaxBytes" -> "2200k").isEmpty, "two files of a MiB are there")
    assert(collect("localDirMaxBytes" -> "1200k") == homes.take(2))
  }

  test("by size: homes that are old and in use count") {
    val (used, idle) = (home("q1", hoursAgo = 1000), home("q2", hoursAgo = 1))
    val held = StoreDirectory.tryHold(used).get
    assert(collect("localDirMaxBytes" -> s"${DiskUse.of(idle).bytes * 3 / 2}b") == Seq(idle))
    held.release()
  }

  test("the directory of a query goes with the last of its stores") {
    val stores = (0 to 2).map(p => home("q", hoursAgo = 1000, store = s"0-$p-default"))
    assert(collect().toSet == stores.toSet && !new File(root, "q").exists)
  }

  test("a home that somebody holds stays") {
    val used = home("q", hoursAgo = 1000)
    val held = StoreDirectory.tryHold(used).get
    // The lock's time is what a holder writes now and then.
    assert(collect("localDirMaxBytes" -> "1b").isEmpty && used.exists)
    held.release()
    assert(collect("localDirMaxBytes" -> "1b") == Seq(used))
  }

  test("a clock that jumps by a year, either way: what is held stays, the rest goes or waits") {
    val year = 365 * 24 * hour
    val (used, idle) = (home("q1", hoursAgo = 1), home("q2", hoursAgo = 1))
    val held = StoreDirectory.tryHold(used).get
    assert(collectAt(now - year).isEmpty && idle.exists)
    assert(collectAt(now + year) == Seq(idle) && used.exists)
    held.release()
  }

  test("the hour between two collections is not the wall clock's") {
    var (monotonicHours, wallHours) = (0L, now / hour)
    val clock = new Clock {
      override def nanos(): Long = TimeUnit.HOURS.toNanos(monotonicHours)
      override def epochMs(): Long = wallHours * hour
    }
    def isCollectedAfter(hours: Long, wall: Long): Boolean = {
      val old = home("q", hoursAgo = 10 * 365 * 24)
      monotonicHours += hours
      wallHours += wall
      LocalCollector.tick(root, settings(), clock)
      // It runs on this thread's queue.
      BackgroundThreads.background.submit((() => ()): Runnable).get()
      val isGone = !old.exists
      LocalDirectory.deleteTree(old)
      isGone
    }
    val year = 365 * 24L
    assert(isCollectedAfter(hours = 0, wall = 0), "the first time")
    assert(!isCollectedAfter(hours = 0, wall = year), "the clock was put forward")
    assert(isCollectedAfter(hours = 1, wall = -2 * year), "the clock was put back")
  }

  private def collectAt(nowMs: Long): Seq[File] = LocalCollector.collect(root, settings(), nowMs)

  private def collect(confs: (String, String)*): Seq[File] =
    LocalCollector.collect(root, settings(confs: _*), now)

  private def settings(confs: (String, String)*): StoreSettings = {
    val keys = confs.map { case (k, v) => (StoreSettings.Prefix + k) -> v }.toMap
    StoreSettings.from(keys, 1L << 30)
  }

  private def home(
      query: String,
      hoursAgo: Long,
      bytes: Int = 10,
      store: String = "0-0-default"
  ): File = {
    val path = new File(root, s"$query/$store/unique")
    Files.createDirectories(path.toPath)
    Files.write(new File(path, "data").toPath, new Array[Byte](bytes))
    val lock = new File(path, StoreDirectory.LockName)
    Files.createFile(lock.toPath)
    assert(lock.setLastModified(now - hoursAgo * hour))
    path
  }
}
