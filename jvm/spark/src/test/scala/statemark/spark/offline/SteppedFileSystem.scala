package statemark.spark.offline

import java.io.FileNotFoundException
import java.net.URI
import java.nio.file.{Files, NoSuchFileException, Path => JPath, StandardCopyOption}
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs._
import org.apache.hadoop.fs.local.LocalConfigKeys
import org.apache.hadoop.fs.permission.FsPermission
import org.apache.hadoop.util.Progressable
import org.apache.spark.TaskContext
import scala.concurrent.{Await, Promise}
import scala.concurrent.duration.Duration
import scala.jdk.CollectionConverters._
import scala.util.Try

/** Local files by the scheme `stepped`. Before each operation on the logs of a query, the files of a command
  * and snapshots something else may happen. A rename is one operation, as on HDFS, or a copy and a
  * deletion, as on an object store.
  */
class SteppedFileSystem extends RawLocalFileSystem {
  import SteppedFileSystem._

  override def getUri: URI = Uri
  override def getScheme: String = Scheme

  // Hadoop starts a process for each without its native library.
  override def setPermission(path: Path, permission: FsPermission): Unit = ()

  override def open(path: Path, bufferSize: Int): FSDataInputStream = {
    step("open", path)
    super.open(path, bufferSize)
  }

  override def create(
      path: Path,
      overwrite: Boolean,
      bufferSize: Int,
      replication: Short,
      blockSize: Long,
      progress: Progressable
  ): FSDataOutputStream = {
    step("create", path)
    super.create(path, overwrite, bufferSize, replication, blockSize, progress)
  }

  override def create(
      path: Path,
      permission: FsPermission,
      overwrite: Boolean,
      bufferSize: Int,
      replication: Short,
      blockSize: Long,
      progress: Progressable
  ): FSDataOutputStream = create(path, overwrite, bufferSize, replication, blockSize, progress)

  override def listStatus(path: Path): Array[FileStatus] = {
    step("list", path)
    super.listStatus(path)
  }

  override def getFileStatus(path: Path): FileStatus = {
    step("status", path)
    super.getFileStatus(path)
  }

  override def delete(path: Path, recursive: Boolean): Boolean = {
    step("delete", path)
    super.delete(path, recursive)
  }

  override def rename(from: Path, to: Path): Boolean =
    if (Files.exists(pathToFile(to).toPath)) false
    else
      try {
        renameTo(from, to)
        true
      } catch { case _: FileNotFoundException => false }

  private[offline] def renameTo(from: Path, to: Path): Unit = {
    step("rename", to, from)
    val (source, target) = (pathToFile(from).toPath, pathToFile(to).toPath)
    try
      if (copies) {
        val files = treeOf(source).filterNot(Files.isDirectory(_))
        for (file <- files) {
          val copy = target.resolve(source.relativize(file).toString)
          Files.createDirectories(copy.getParent)
          Files.copy(file, copy, StandardCopyOption.REPLACE_EXISTING)
          step("copied", to, from)
        }
        files.foreach(Files.deleteIfExists(_))
        statemark.spark.local.LocalDirectory.deleteTree(source.toFile)
      } else Files.move(source, target, StandardCopyOption.ATOMIC_MOVE): Unit
    catch { case e: NoSuchFileException => throw new FileNotFoundException(e.getMessage) }
  }

  private def treeOf(root: JPath): Seq[JPath] = {
    val walk = Files.walk(root)
    try walk.iterator.asScala.toSeq.sorted
    finally walk.close()
  }
}

/** The same for Hadoop's other interface. */
class SteppedFs(uri: URI, conf: Configuration) extends DelegateToFileSystem(
      uri,
      new SteppedFileSystem,
      conf,
      SteppedFileSystem.Scheme,
      false
    ) {
  override def getUriDefaultPort: Int = -1
  override def getServerDefaults(path: Path): FsServerDefaults = LocalConfigKeys.getServerDefaults
  override def isValidName(name: String): Boolean = true

  override def renameInternal(from: Path, to: Path): Unit =
    renameInternal(from, to, overwrite = false)

  override def renameInternal(from: Path, to: Path, overwrite: Boolean): Unit = {
    val files = fsImpl.asInstanceOf[SteppedFileSystem]
    if (!overwrite && Files.exists(files.pathToFile(to).toPath))
      throw new FileAlreadyExistsException(s"$to exists")
    files.renameTo(from, to)
  }
}

object SteppedFileSystem {
  val Scheme = "stepped"
  private val Uri = URI.create(s"$Scheme:///")

  def configure(conf: Configuration): Unit = {
    conf.set(s"fs.$Scheme.impl", classOf[SteppedFileSystem].getName)
    conf.set(s"fs.AbstractFileSystem.$Scheme.impl", classOf[SteppedFs].getName)
  }

  /** Whether a rename is a copy and a deletion. */
  @volatile var copies = false

  @volatile private var hook: String => Unit = _ => ()

  private val Watched = Seq("/offsets", "/commits", "/_statemark", "/_metadata")

  private def step(what: String, paths: Path*): Unit = {
    val names = paths.map(_.toUri.getPath)
    val isSnapshot =
      Seq("create", "rename", "delete").contains(what) && names.exists(_.contains(".zip"))
    if (isSnapshot || names.exists(n => Watched.exists(n.contains)))
      hook(s"$what ${names.map(_.split('/').takeRight(3).mkString("/")).mkString(" of ")}")
  }

  /** What two commands came to.
    *
    * @param operations that the first one made, those it died at included
    * @param before the operation of the first one before which the second one ran
    */
  final case class Outcome[A](one: Try[A], other: Try[A], operations: Int, before: Option[String])

  /** Runs `one`, and `other` from its beginning to its end before an operation of it, or after all.
    *
    * @param isAt whether it is the operation, by its number from 0 and its text; the first such
    * @param deathAt the operation at which `one` dies of `death`, and at every one after it
    */
  def beside[A](isAt: (Int, String) => Boolean, deathAt: Option[Int], death: Throwable)(one: => A)(
      other: => A
  ): Outcome[A] = {
    val lock = new Object
    var count = 0
    // A task in which the second one runs may be given up meanwhile, as another task has failed.
    val second = Promise[A]()
    var before = Option.empty[String]
    var isOver = false
    lazy val stepping: String => Unit = (what: String) => {
      // Tasks come here as well, several at once.
      val (now, isFirst) = lock.synchronized {
        count += 1
        val isFirst = before.isEmpty && isAt(count - 1, what)
        if (isFirst) {
          before = Some(what)
          hook = _ => ()
        }
        (count - 1, isFirst)
      }
      if (isFirst) {
        apart(second.complete(Try(other)): Unit)
        lock.synchronized(if (!isOver) hook = stepping)
      }
      if (deathAt.exists(now >= _)) throw death
    }
    hook = stepping
    val first = Try(one)
    val (operations, moment) = lock.synchronized {
      isOver = true
      hook = _ => ()
      (count, before)
    }
    if (moment.isEmpty) second.complete(Try(other)): Unit
    Outcome(first, Await.ready(second.future, Duration.Inf).value.get, operations, moment)
  }

  /** Runs a command from within a task of another one, which has a thread with a context of its own. */
  private def apart(command: => Unit): Unit =
    if (TaskContext.get() == null) command
    else {
      val thread = new Thread(() => command)
      thread.start()
      thread.join()
    }
}
