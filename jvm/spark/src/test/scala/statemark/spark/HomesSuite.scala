package statemark.spark

import java.io.{File, RandomAccessFile}
import java.nio.file.{Files, Path}
import java.util.concurrent.{Callable, Executors, TimeUnit}
import org.apache.spark.sql.execution.streaming.state.StateStoreId
import org.scalatest.BeforeAndAfterEach
import org.scalatest.funsuite.AnyFunSuite
import scala.util.Try
import statemark.spark.conf.StoreSettings
import statemark.spark.local.{LocalCollector, LocalDirectory, StoreDirectories, StoreDirectory}

/** Homes of a store that others make, look for and delete at the same moment. */
class HomesSuite extends AnyFunSuite with BeforeAndAfterEach {
  private val Rounds = 2000
  private var root: File = new File(".")

  override protected def beforeEach(): Unit =
    root = Files.createTempDirectory("statemark-homes-").toFile

  override protected def afterEach(): Unit = LocalDirectory.deleteTree(root)

  private def homes =
    new StoreDirectories(Some(root), "query", StateStoreId("file:/checkpoint", 0, 0))

  test("a home is made while others of its store are collected, and their empty folders") {
    val threads = Executors.newFixedThreadPool(3)
    @volatile var isDone = false
    def until(body: => Any): Callable[Unit] = () => while (!isDone) body: Unit
    try {
      val parent = homes.parent.get
      val others = Seq(
        // As the collector does it with what it has emptied.
        threads.submit(until(Seq(parent, parent.getParentFile).foreach(_.delete()))),
        // As another run does that finds what was left.
        threads.submit(until(homes.abandoned().foreach(_.delete()))),
        threads.submit(until(LocalCollector.collect(root, StoreSettings.from(Map.empty, 1), 0)))
      )
      for (_ <- 0 until Rounds) {
        val home = homes.create()
        assert(home.path.exists && StoreDirectory.isInUse(home.path))
        assert(home.delete())
      }
      isDone = true
      others.foreach(_.get())
    } finally {
      isDone = true
      threads.shutdown()
      threads.awaitTermination(1, TimeUnit.MINUTES): Unit
    }
  }

  test(
    "to try a home over and over that another channel of the process has locked leaves no more files open"
  ) {
    val home = homes.create()
    home.release()
    val other = new RandomAccessFile(new File(home.path, StoreDirectory.LockName), "rw")
    val lock = other.getChannel.lock(0, 2, false)
    try {
      def open = openFiles.count(_ == new File(home.path, StoreDirectory.LockName).getCanonicalPath)
      for (_ <- 0 until 20) {
        assert(StoreDirectory.tryHold(home.path).isEmpty)
        assert(StoreDirectory.isInUse(home.path))
      }
      assert(open <= 3, "that of the test, and one for each way to try that must not be closed")
      lock.release()
      assert(!StoreDirectory.isInUse(home.path))
      val held = StoreDirectory.tryHold(home.path)
      assert(held.isDefined && StoreDirectory.isInUse(home.path))
      held.foreach(_.release())
      assert(!StoreDirectory.isInUse(home.path))
    } finally other.close()
  }

  private def openFiles: Seq[String] = {
    val list = Files.list(Path.of("/proc/self/fd"))
    try list.toArray.toSeq.collect { case p: Path =>
        Try(Files.readSymbolicLink(p).toString).getOrElse("")
      }
    finally list.close()
  }
}
