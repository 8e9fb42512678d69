package statemark.testkit

import java.io.FileNotFoundException
import java.nio.file.Files
import java.util.EnumSet

import scala.jdk.CollectionConverters._

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs._
import org.apache.hadoop.fs.Options.Rename
import org.scalatest.BeforeAndAfterEach
import org.scalatest.funsuite.AnyFunSuite

/** Each call of the caller is one event, through FileSystem and through FileContext, with the right path. */
class CountingFileSystemSuite extends AnyFunSuite with BeforeAndAfterEach {

  private val conf = new Configuration(false)
  conf.set("fs.counting.impl", classOf[CountingFileSystem].getName)
  conf.set("fs.AbstractFileSystem.counting.impl", classOf[CountingAbstractFileSystem].getName)

  private var dir: String = _

  override def beforeEach(): Unit = {
    dir = Files.createTempDirectory("counting").toRealPath().toString
    FileCounts.reset()
  }

  private def path(name: String) = new Path(s"counting://$dir/$name")
  private def fs = path("x").getFileSystem(conf)
  private def context = FileContext.getFileContext(path("x").toUri, conf)

  private def seen: Seq[(String, String)] =
    FileCounts.events(dir).asScala.toSeq.map(e => e.kind -> e.path.stripPrefix(dir + "/"))

  private def put(name: String, text: String): Unit = {
    Files.write(java.nio.file.Path.of(dir, name), text.getBytes)
    FileCounts.reset()
  }

  test("FileSystem: every call is one event") {
    val out = fs.create(path("a"))
    out.write(1)
    out.close()
    fs.open(path("a")).close()
    fs.openFile(path("a")).build().get().close()
    assert(fs.exists(path("a")))
    assert(fs.listStatus(path("")).map(_.getPath) === Seq(path("a")))
    assert(fs.rename(path("a"), path("b")))
    assert(fs.delete(path("b"), false))
    assert(fs.mkdirs(path("d")))
    assert(
      seen === Seq(
        "create" -> "a",
        "open" -> "a",
        "open" -> "a",
        "status" -> "a",
        "list" -> dir,
        "rename" -> "b",
        "delete" -> "b",
        "mkdir" -> "d"
      )
    )
  }

  test("FileContext: every call is one event") {
    val fc = context
    fc.create(path("a"), EnumSet.of(CreateFlag.CREATE, CreateFlag.OVERWRITE)).close()
    fc.open(path("a")).close()
    fc.openFile(path("a")).build().get().close()
    assert(fc.util.exists(path("a")))
    assert(fc.util.listStatus(path("")).map(_.getPath) === Seq(path("a")))
    fc.rename(path("a"), path("b"), Rename.OVERWRITE)
    assert(fc.delete(path("b"), true))
    fc.mkdir(path("d/e"), FsPermissions.directory, true)
    assert(
      seen === Seq(
        "create" -> "a",
        "open" -> "a",
        "open" -> "a",
        "status" -> "a",
        "list" -> dir,
        "rename" -> "b",
        "delete" -> "b",
        "mkdir" -> "d/e"
      )
    )
  }

  test("a rename through FileContext replaces only when it is told to") {
    put("a", "new")
    put("b", "old")
    intercept[FileAlreadyExistsException](context.rename(path("a"), path("b"), Rename.NONE))
    assert(Files.readString(java.nio.file.Path.of(dir, "b")) === "old")
    context.rename(path("a"), path("b"), Rename.OVERWRITE)
    assert(Files.readString(java.nio.file.Path.of(dir, "b")) === "new")
    intercept[FileNotFoundException](context.rename(path("a"), path("b"), Rename.NONE))
    assert(seen === Seq("rename" -> "b"))
  }

  test("copies count on this side only") {
    put("a", "text")
    val local = new Path(s"file://$dir/local")
    fs.copyToLocalFile(path("a"), local)
    assert(FileCounts.opens(dir) === 1)
    fs.copyFromLocalFile(local, path("b"))
    assert(FileCounts.creates(dir) === 1)
    assert(FileCounts.opens(dir) === 1)
  }

  test("a failed open counts too") {
    intercept[FileNotFoundException](fs.open(path("none")))
    assert(seen === Seq("open" -> "none"))
  }

  test("counts and events are selected by prefix, mark and time") {
    Seq("p/0/a", "p/1/b", "p/10/c").foreach(n => fs.create(path(n)).close())
    assert(FileCounts.creates(s"$dir/p/1") === 1)
    assert(FileCounts.creates(s"counting://$dir/p") === 3)
    val (seq, nanos) = (FileCounts.mark(), System.nanoTime())
    fs.open(path("p/1/b")).close()
    assert(FileCounts.eventsSince(dir, seq).asScala.map(_.path) === Seq(s"$dir/p/1/b"))
    assert(FileCounts.eventsBetween(dir, nanos, System.nanoTime()).size === 1)
    assert(FileCounts.eventsBetween(dir, 0, nanos).asScala.forall(_.kind == "create"))
    FileCounts.reset()
    assert(FileCounts.creates(dir) === 0)
    assert(FileCounts.mark() > seq)
  }

  test("a log that has lost events says so, and the counts stay exact") {
    val calls = FileCounts.logCapacity + 1
    for (_ <- 1 to calls) FileCounts.record(FileEvent.Open, s"$dir/a")
    assert(FileCounts.opens(dir) === calls)
    val e = intercept[IllegalStateException](FileCounts.events(dir))
    assert(e.getMessage.contains(FileCounts.logCapacity.toString))
    intercept[IllegalStateException](FileCounts.eventsSince(dir, 0))
    assert(FileCounts.eventsSince(dir, FileCounts.mark() - 1).size === 1)
  }

  test("an unknown kind is named together with the known ones") {
    val e = intercept[IllegalArgumentException](FileCounts.count("read", dir))
    assert(e.getMessage.contains("read") && e.getMessage.contains("open"))
  }
}

private object FsPermissions {
  val directory: org.apache.hadoop.fs.permission.FsPermission =
    org.apache.hadoop.fs.permission.FsPermission.getDirDefault
}
