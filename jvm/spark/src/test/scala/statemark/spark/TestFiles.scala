package statemark.spark

import java.io.File
import java.util.UUID
import java.util.concurrent.ConcurrentHashMap

import scala.jdk.CollectionConverters._

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FSDataInputStream, Path}
import org.apache.spark.sql.execution.streaming.state.StateStoreId
import statemark.testkit.UnforkedFileSystem

/** Checkpoint files of tests, read through a file system that knows which streams are open. */
object TestFiles {
  private val open = ConcurrentHashMap.newKeySet[Opened]()

  /** A configuration as a provider is handed it: with a run id of its own, and with checkpoint
    * files that go through a file system which counts open streams. Spark's default for local paths
    * bypasses it.
    */
  def forTest(conf: Configuration): Configuration = {
    conf.set(Line.runIdKey, UUID.randomUUID().toString)
    conf.set("fs.file.impl", classOf[OpenStreamsFileSystem].getName)
    // Another suite may have left Spark's own file system in Hadoop's cache of this process.
    conf.setBoolean("fs.file.impl.disable.cache", true)
    conf.setIfUnset(
      "spark.sql.streaming.checkpointFileManagerClass",
      Line.renamingFileManager.getName
    )
    conf
  }

  /** Takes what is open now for closed. */
  def forget(): Unit = open.clear()

  /** @throws IllegalStateException where a stream was left open, with the place that opened it */
  def assertClosed(): Unit = open.asScala.headOption.foreach { first =>
    throw new IllegalStateException(s"${open.size} streams are open, one to ${first.path}", first)
  }

  private[spark] def opened(path: Path, stream: FSDataInputStream): FSDataInputStream = {
    val entry = new Opened(path)
    open.add(entry)
    new FSDataInputStream(stream) {
      override def close(): Unit =
        try super.close()
        finally open.remove(entry): Unit
    }
  }

  private final class Opened(val path: Path) extends RuntimeException(s"$path was opened here")
}

/** The local file system, which tells of what is opened. */
class OpenStreamsFileSystem extends UnforkedFileSystem {
  override def open(path: Path, bufferSize: Int): FSDataInputStream =
    TestFiles.opened(path, super.open(path, bufferSize))
}

/** What lies in the checkpoint directory of one store: the public layout that Spark reads. */
final class CheckpointFiles(dir: File) {

  private def named(suffix: String): Seq[(Long, Option[String])] =
    Option(dir.list()).toSeq.flatten
      .filter(name => name.endsWith(suffix) && !name.startsWith("."))
      .map(_.stripSuffix(suffix).split("_", 2))
      .map(parts => parts.head.toLong -> parts.lift(1))
      .sortBy(_._1)

  /** (version, checkpoint id in format v2) of every snapshot, oldest first. */
  def snapshots: Seq[(Long, Option[String])] = named(".zip")

  /** (version, checkpoint id in format v2) of every changelog file, oldest first. */
  def changelogs: Seq[(Long, Option[String])] = named(".changelog")

  def latestVersion: Long = (snapshots ++ changelogs).map(_._1).maxOption.getOrElse(0L)
}

object CheckpointFiles {
  def of(id: StateStoreId): CheckpointFiles =
    new CheckpointFiles(new File(id.storeCheckpointLocation().toUri.getPath))
}
