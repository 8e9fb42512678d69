package statemark.spark

import java.io.{File, RandomAccessFile}
import java.nio.file.{Files, Path}
import java.nio.file.attribute.PosixFilePermissions
import java.util.concurrent.{Callable, Executors, TimeUnit}
import org.apache.spark.sql.execution.streaming.state.StateStoreId
import org.scalatest.BeforeAndAfterEach
import org.scalatest.funsuite.AnyFunSuite
import scala.util.{Try, Using}
import statemark.common.InvalidInputException
import statemark.engine.VersionId
import statemark.spark.cluster.LocalInventory
import statemark.spark.conf.{LocalRoot, StoreSettings}
import statemark.spark.local.{LocalCollector, LocalDirectory, StoreDirectories, StoreDirectory}
import statemark.spark.stress.OtherProcess

/** Homes of a store that others make, look for and delete at the same moment. */
class HomesSuite extends AnyFunSuite with BeforeAndAfterEach {
  private val Rounds = 2000
  private var root: File = new File(".")

  override protected def beforeEach(): Unit =
    root = Files.createTempDirectory("statemark-homes-").toFile

  override protected def afterEach(): Unit = LocalDirectory.deleteTree(root)

  private def store = StateStoreId("file:/checkpoint", 0, 0)

  private def homes =
    new StoreDirectories(Some(LocalRoot(root, isNamed = true)), "query", store)

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

  test("an inventory has the version that was noted for a home, and none of one that is in use") {
    val free = homes.create()
    free.note(12)
    free.release()
    val used = homes.create()
    used.note(15)
    used.release()
    Using.resource(new OtherProcess) { other =>
      assert(other.use(used.path.toPath.resolve(StoreDirectory.LockName)))
      val inventory = LocalInventory.of("1", "host", root)
      assert(inventory.stores.map(s => (s.queryId, s.store)).distinct == Seq((
        "query",
        "0-0-default"
      )))
      assert(inventory.stores.map(_.at).toSet == Set(Some(VersionId(12, None)), None))
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

  private val steps = Seq("query", "query/0-0-default", "query/0-0-default/home")

  for (step <- steps)
    test(
      s"a link that another user put below a root that all may write to is not followed: $step"
    ) {
      all(root.toPath, "rwxrwxrwx")
      val elsewhere = Files.createTempDirectory("statemark-elsewhere-")
      try {
        all(elsewhere, "rwxr-xr-x")
        val link = placed(step)
        Files.createSymbolicLink(link, elsewhere)
        val e = intercept[InvalidInputException] {
          homes.abandoned(): Unit
          homes.create(): Unit
        }
        assert(e.getMessage.contains(s"$link is a link to $elsewhere"))
        assert(e.getMessage.contains("Remove it, or name another directory"))
        assert(modeOf(elsewhere) == "rwxr-xr-x" && elsewhere.toFile.list.isEmpty)
        assert(Files.isSymbolicLink(link))
      } finally LocalDirectory.deleteTree(elsewhere.toFile)
    }

  for (step <- steps)
    test(s"a directory of another user is refused, and stays as it is: $step") {
      assume(System.getProperty("user.name") == "root", "only root may give files away")
      all(root.toPath, "rwxrwxrwx")
      val directory = Files.createDirectory(placed(step))
      all(directory, "rwxr-xr-x")
      val users = root.toPath.getFileSystem.getUserPrincipalLookupService
      Files.setOwner(directory, users.lookupPrincipalByName("nobody"))
      val e = intercept[InvalidInputException] {
        homes.abandoned(): Unit
        homes.create(): Unit
      }
      assert(e.getMessage.contains(s"$directory belongs to nobody and not to root"))
      assert(e.getMessage.contains("or name another directory"))
      assert(modeOf(directory) == "rwxr-xr-x" && directory.toFile.list.isEmpty)
    }

  for (step <- steps.take(2))
    test(s"a file in the place of a directory is refused by name: $step") {
      val file = Files.createFile(placed(step))
      val e = intercept[InvalidInputException](homes.create())
      assert(e.getMessage.contains(s"$file is no directory") && Files.isRegularFile(file))
    }

  for (
    (kind, make) <- Seq[(String, (Path, Path) => Unit)](
      "is a link" -> { (base, own) => Files.createSymbolicLink(base, own): Unit },
      "is no directory" -> { (base, _) => Files.createFile(base): Unit },
      "belongs to nobody and not to root" -> { (base, _) =>
        assume(System.getProperty("user.name") == "root", "only root may give files away")
        val users = base.getFileSystem.getUserPrincipalLookupService
        Files.setOwner(Files.createDirectory(base), users.lookupPrincipalByName("nobody")): Unit
      }
    )
  )
    test(s"a home is refused by name where its base $kind") {
      val home = homes.create()
      home.release()
      val own = Files.createDirectory(root.toPath.resolve("query/0-0-default/own"))
      make(home.base.toPath, own)
      val e = intercept[InvalidInputException](homes.abandoned())
      assert(e.getMessage.contains(s"${home.base} $kind"))
    }

  test("a lock that is no regular file is not opened: its home is in use, as far as can be told") {
    val home = homes.create()
    home.release()
    val lock = home.path.toPath.resolve(StoreDirectory.LockName)
    for (kind <- Seq("pipe", "link")) {
      Files.delete(lock)
      if (kind == "pipe") assert(new ProcessBuilder("mkfifo", lock.toString).start().waitFor() == 0)
      else Files.createSymbolicLink(lock, Files.createTempFile(root.toPath, "else", "where"))
      assert(StoreDirectory.isInUse(home.path) && StoreDirectory.notedVersion(home.path).isEmpty)
      assert(StoreDirectory.tryHold(home.path).isEmpty && StoreDirectory.all(root).isEmpty)
    }
  }

  test("a directory of this user that others may look into is closed to them") {
    val home = homes.create()
    home.release()
    val own = steps.map(root.toPath.resolve).take(2) :+ home.path.toPath
    own.foreach(all(_, "rwxrwxrwx"))
    homes.abandoned().foreach(_.release())
    assert(own.map(modeOf) == own.map(_ => "rwx------"))
  }

  test("the root may be a link, and what all may write to") {
    val link = root.toPath.resolveSibling(s"${root.getName}-link")
    Files.createSymbolicLink(link, root.toPath)
    try {
      all(root.toPath, "rwxrwxrwx")
      val linked =
        new StoreDirectories(Some(LocalRoot(link.toFile, isNamed = true)), "query", store)
      assert(linked.create().delete())
      assert(modeOf(root.toPath) == "rwxrwxrwx")
    } finally Files.delete(link)
  }

  test("the collector deletes nothing that a link leads to, whatever it is swapped for meanwhile") {
    val home = homes.create()
    home.release()
    val elsewhere = Files.createTempDirectory("statemark-elsewhere-")
    try {
      Files.move(root.toPath.resolve("query"), elsewhere.resolve("query"))
      Files.createSymbolicLink(root.toPath.resolve("query"), elsewhere.resolve("query"))
      assert(!LocalCollector.delete(root, home.path))
      assert(elsewhere.resolve(root.toPath.relativize(home.path.toPath)).toFile.exists)
    } finally LocalDirectory.deleteTree(elsewhere.toFile)
  }

  /** A path below the root whose parents are this user's. */
  private def placed(step: String): Path = {
    val path = root.toPath.resolve(step)
    val made = Iterator.iterate(path.getParent)(_.getParent).takeWhile(_ != root.toPath).toSeq
    made.reverse.foreach { directory =>
      Files.createDirectory(directory)
      all(directory, "rwx------")
    }
    path
  }

  private def all(path: Path, mode: String): Unit =
    Files.setPosixFilePermissions(path, PosixFilePermissions.fromString(mode)): Unit

  private def modeOf(path: Path): String =
    PosixFilePermissions.toString(Files.getPosixFilePermissions(path))

  private def openFiles: Seq[String] = {
    val list = Files.list(Path.of("/proc/self/fd"))
    try list.toArray.toSeq.collect { case p: Path =>
        Try(Files.readSymbolicLink(p).toString).getOrElse("")
      }
    finally list.close()
  }
}
