package statemark.spark

import java.io.File
import java.nio.file.{Files, Path}
import java.nio.file.attribute.PosixFilePermissions
import org.apache.spark.sql.execution.streaming.state.StateStoreId
import org.scalatest.BeforeAndAfterEach
import org.scalatest.funsuite.AnyFunSuite
import statemark.common.InvalidInputException
import statemark.spark.conf.{LocalRoot, StoreSettings}
import statemark.spark.local.{LocalDirectory, StoreDirectories}
import statemark.spark.process.JvmState

/** Goal: where nobody named a directory, its lack ends no query. Method: caches of users who have none; what a query does
  * then is tested in tests/e2e/test_restart.py.
  */
class LocalRootSuite extends AnyFunSuite with BeforeAndAfterEach {
  private var directory: Path = Path.of("")

  override protected def beforeEach(): Unit =
    directory = Files.createTempDirectory("statemark-root-")

  override protected def afterEach(): Unit = {
    JvmState.clear()
    LocalDirectory.deleteTree(directory.toFile)
  }

  test(
    "the cache is the one that XDG_CACHE_HOME names, where it is a path, else that in the home directory"
  ) {
    assert(LocalRoot.cache(Some("/caches"), "/home/me") == new File("/caches/statemark"))
    for (none <- Seq(None, Some(""), Some("caches")))
      assert(LocalRoot.cache(none, "/home/me") == new File("/home/me/.cache/statemark"))
  }

  test("it is made where it is missing, private to the user") {
    val cache = directory.resolve("home/.cache/statemark")
    assert(LocalRoot.isWritable(cache.toFile) && LocalRoot.isWritable(cache.toFile))
    val mode = PosixFilePermissions.toString(Files.getPosixFilePermissions(cache))
    assert(mode == "rwx------")
  }

  test("a user without a home directory, or one that cannot be written, has none") {
    val file = Files.createFile(directory.resolve("file"))
    for (home <- Seq(file.toString, "/proc/nonexistent", "?"))
      assert(!LocalRoot.isWritable(LocalRoot.cache(None, home)), home)
    assert(!new File("?").exists)
  }

  test("a directory that cannot be written is refused by what the user knows of it") {
    val file = Files.createFile(directory.resolve("file")).toFile
    def refused(isNamed: Boolean): String = intercept[InvalidInputException] {
      val store = StateStoreId("file:/checkpoint", 0, 0)
      new StoreDirectories(Some(LocalRoot(file, isNamed)), "query", store).create()
    }.getMessage
    val key = StoreSettings.LocalDir.key
    assert(refused(isNamed =
      true
    ).startsWith(s"$key is '$file', but $file/query/0-0-default cannot"))
    val unnamed = refused(isNamed = false)
    assert(
      unnamed.startsWith(s"Stores lie in '$file', the user's cache directory, as $key is not set")
    )
    assert(unnamed.contains(s"Name a directory in $key"))
  }
}
