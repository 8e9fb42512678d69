package statemark.spark

import java.nio.file.Files
import java.util.EnumSet
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs._
import org.apache.hadoop.fs.local.LocalFs
import org.apache.hadoop.fs.permission.FsPermission
import org.scalatest.funsuite.AnyFunSuite
import scala.jdk.CollectionConverters._
import scala.util.{Failure, Success, Try}
import statemark.spark.checkpoint.DirectLocalFs

/** The local file system of changelogs, against Hadoop's own. */
class DirectLocalFsSuite extends AnyFunSuite {
  private val hadoops = using(classOf[LocalFs])
  private val direct = using(classOf[DirectLocalFs])

  private def using(files: Class[_]): Configuration = {
    val conf = new Configuration(false)
    conf.set("fs.AbstractFileSystem.file.impl", files.getName)
    conf
  }

  /** What `steps` give, and what they leave in a new directory: names, bytes, permissions. */
  private def outcome(conf: Configuration)(steps: (FileContext, Path) => Seq[Any]): Any = {
    val directory = Files.createTempDirectory("direct-")
    val files = FileContext.getFileContext(directory.toUri, conf)
    val results = steps(files, new Path(directory.toUri)).map(clean(_, directory.toString))
    val left = Files.walk(directory).iterator.asScala.toSeq.map { path =>
      val bytes = Option.when(Files.isRegularFile(path))(Files.readAllBytes(path).toSeq)
      val permissions =
        Option.unless(Files.isSymbolicLink(path))(Files.getPosixFilePermissions(path))
      (directory.relativize(path).toString, bytes, permissions)
    }
    (results, left.sortBy(_._1))
  }

  private def clean(value: Any, directory: String) = value match {
    case Success(v) => v.toString.replace(directory, "")
    case Failure(e) => (e.getClass, e.getMessage.replace(directory, ""))
    case other => other
  }

  private def same(steps: (FileContext, Path) => Seq[Any]): Unit =
    assert(outcome(direct)(steps) == outcome(hadoops)(steps)): Unit

  private def write(files: FileContext, path: Path, text: String, mode: String = "644"): Unit = {
    val flags = EnumSet.of(CreateFlag.CREATE, CreateFlag.OVERWRITE)
    val out = files.create(
      path,
      flags,
      Options.CreateOpts.perms(new FsPermission(mode)),
      Options.CreateOpts.createParent()
    )
    try out.writeBytes(text)
    finally out.close()
  }

  private def rename(files: FileContext, from: Path, to: Path, how: Options.Rename*) =
    Try(files.rename(from, to, how: _*))

  test("files, their checksums and their permissions") {
    same { (files, root) =>
      Seq("644", "600", "640", "777", "000", "755").foreach(m =>
        write(files, new Path(root, m), m, m)
      )
      write(files, new Path(root, "a/b/c"), "deep")
      write(files, new Path(root, "600"), "again", "640")
      files.mkdir(new Path(root, "d"), new FsPermission("750"), true)
      files.mkdir(new Path(root, "sticky"), new FsPermission("1777"), true)
      files.setPermission(new Path(root, "755"), new FsPermission("711"))
      Seq(Try(files.getServerDefaults(root).getBytesPerChecksum))
    }
  }

  test("renames") {
    same { (files, root) =>
      def path(name: String) = new Path(root, name)
      Seq("a", "b", "c", "d/e").foreach(name => write(files, path(name), name))
      Seq(
        rename(files, path("a"), path("new")),
        rename(files, path("b"), path("c")),
        rename(files, path("b"), path("c"), Options.Rename.OVERWRITE),
        rename(files, path("missing"), path("x")),
        rename(files, path("new"), path("nowhere/x")),
        rename(files, path("new"), path("d")),
        rename(files, path("new"), path("d"), Options.Rename.OVERWRITE),
        rename(files, path("new"), path("new")),
        rename(files, path("d"), path("f"))
      )
    }
  }

  test("links") {
    same { (files, root) =>
      val directory = java.nio.file.Paths.get(root.toUri)
      write(files, new Path(root, "file"), "text")
      Files.createSymbolicLink(directory.resolve("link"), directory.resolve("file"))
      Files.createSymbolicLink(directory.resolve("dangling"), directory.resolve("nothing"))
      Seq("file", "link", "dangling", "missing").flatMap { name =>
        val status = Try(files.getFileLinkStatus(new Path(root, name)))
        Seq(status.map(s => (s.isSymlink, s.isFile, s.isDirectory)), status.map(_.getPath))
      } :+ rename(files, new Path(root, "link"), new Path(root, "moved")) :+
        rename(files, new Path(root, "file"), new Path(root, "dangling"))
    }
  }

  test("it serves local checkpoints where nobody has chosen another") {
    def chosen(path: String, conf: (String, String)*): Boolean = {
      val before = new Configuration(false)
      conf.foreach { case (k, v) => before.set(k, v) }
      DirectLocalFs.settingsFor(new Path(path), before) ne before
    }
    assert(chosen("/tmp/x") && chosen("file:/tmp/x") && chosen("file:///tmp/x"))
    assert(!chosen("s3a://bucket/x") && !chosen("/tmp/x", "fs.defaultFS" -> "hdfs://n:1"))
    assert(chosen("file:/tmp/x", "fs.defaultFS" -> "hdfs://n:1"))
    assert(!chosen("/tmp/x", "fs.AbstractFileSystem.file.impl" -> "org.example.Fs"))
    val (one, other) = (new Configuration(false), new Configuration(false))
    def copyOf(conf: Configuration) = DirectLocalFs.settingsFor(new Path("/tmp/x"), conf)
    assert((copyOf(one) eq copyOf(one)) && (copyOf(one) ne copyOf(other)), "stores share a copy")
  }
}
