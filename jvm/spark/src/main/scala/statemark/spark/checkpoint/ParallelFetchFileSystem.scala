package statemark.spark.checkpoint

import java.io.{File, InterruptedIOException}
import java.nio.file.{Files, StandardCopyOption}
import java.util.concurrent.{ExecutorService, Future}
import org.apache.hadoop.fs.{FileSystem, FilterFileSystem, Path}
import org.apache.hadoop.util.functional.FutureIO
import org.apache.spark.sql.execution.streaming.state.{
  RocksDBCheckpointMetadata,
  RocksDBImmutableFile
}
import org.slf4j.LoggerFactory
import scala.annotation.tailrec
import scala.util.control.NonFatal
import scala.util.Try
import statemark.spark.errors.CheckpointDamagedException
import statemark.spark.process.BackgroundThreads

/** Brings the SST files of a snapshot side by side, for a file manager that asks for one after the other:
  * with the first one all that the snapshot names are fetched. A snapshot's metadata lies beside
  * where its files go, as it was unpacked before them.
  *
  * ''Thread:'' any; one directory by one thread.
  * ''Source:'' Spark 4.2 `RocksDBFileManager.loadCheckpointFromDfs`.
  */
final class ParallelFetchFileSystem(under: FileSystem) extends FilterFileSystem(under) {
  import ParallelFetchFileSystem._

  /** @throws CheckpointDamagedException where the snapshot names a file by a path, before any file is written */
  override def copyToLocalFile(from: Path, to: Path): Unit = {
    val target = new File(to.toUri)
    if (!fetched(target).exists) {
      val files = namedBeside(from, target)
      if (target.getName.endsWith(".sst")) fetchAll(files, from, target)
    }
    if (fetched(target).exists)
      Files.move(fetched(target).toPath, target.toPath, StandardCopyOption.ATOMIC_MOVE): Unit
    else super.copyToLocalFile(from, to)
  }

  /** Returns the files that the snapshot names whose metadata lies beside `to`. Where none lies there, a name of the
    * snapshot has led out of its directory.
    */
  private def namedBeside(from: Path, to: File): Seq[RocksDBImmutableFile] = {
    val parent = to.getParentFile
    // Where Spark puts logs.
    val image = if (to.getName.endsWith(".log")) parent.getParentFile else parent
    val metadata = new File(image, "metadata")
    val files =
      if (metadata.exists) RocksDBCheckpointMetadata.readFromFile(metadata).immutableFiles else Nil
    val names = files.flatMap(f => Seq(f.localFileName, f.dfsFileName))
    names.find(!isPlainName(_)).orElse(Option.when(files.isEmpty)(s"$from, to be written to $to"))
      .foreach { name =>
        throw new CheckpointDamagedException(
          s"A snapshot beside ${from.getParent} names the file $name, which leads out of its directory.",
          "Find out who has written it; Spark never does. Bring the snapshot back from a copy.",
          None
        )
      }
    files
  }

  /** Copies a file, and leaves no part of it where that fails: the part would have a name that is given once, and take
    * the room that a full disk gets.
    */
  override def copyFromLocalFile(deletesSource: Boolean, from: Path, to: Path): Unit =
    try super.copyFromLocalFile(deletesSource, from, to)
    catch {
      case e: Throwable =>
        try under.delete(to, false): Unit
        catch { case NonFatal(other) => e.addSuppressed(other) }
        throw e
    }

  /** @throws IOException where a file is missing or cannot be read; no file is being written any more */
  private def fetchAll(files: Seq[RocksDBImmutableFile], from: Path, to: File): Unit = {
    val missing = files.filter(_.localFileName.endsWith(".sst"))
      .filterNot(f => new File(to.getParentFile, f.localFileName).exists)
    val fetches = missing.map { file =>
      val source = new Path(from.getParent, file.dfsFileName)
      val target = new File(to.getParentFile, file.localFileName)
      Fetchers.submit(() => Try(fetch(source, file.sizeBytes, fetched(target))))
    }
    log.info(s"Fetching ${missing.length} files, ${missing.map(_.sizeBytes).sum} bytes, of $from.")
    // A caller that gives up deletes the directory, into which no thread may write then.
    val (results, wasInterrupted) = awaitAll(fetches)
    if (wasInterrupted) {
      Thread.currentThread.interrupt()
      throw new InterruptedIOException(s"interrupted while files beside $from were fetched")
    }
    results.foreach(_.get)
  }

  /** Knowing the length spares an object store the question. */
  private def fetch(from: Path, bytes: Long, to: File): Unit = {
    val in = FutureIO.awaitFuture(
      under.openFile(from)
        .opt("fs.option.openfile.length", bytes.toString)
        .opt("fs.option.openfile.read.policy", "whole-file")
        .build()
    )
    try Files.copy(in, to.toPath): Unit
    finally in.close()
  }
}

private[spark] object ParallelFetchFileSystem {
  private val log = LoggerFactory.getLogger(classOf[ParallelFetchFileSystem])
  private val Fetchers: ExecutorService = BackgroundThreads.pool("statemark-fetch", 16)

  /** Tells whether a name is that of a file in a directory, whichever directory that is. */
  def isPlainName(name: String): Boolean =
    name != null && name.nonEmpty && name != "." && name != ".." &&
      !name.exists(c => c == '/' || c == '\\' || c == 0)

  private def fetched(target: File): File = new File(s"$target.fetched")

  private def awaitAll(fetches: Seq[Future[Try[Unit]]]): (Seq[Try[Unit]], Boolean) = {
    var wasInterrupted = false
    @tailrec def await(fetch: Future[Try[Unit]]): Try[Unit] =
      try fetch.get()
      catch {
        case _: InterruptedException =>
          wasInterrupted = true
          await(fetch)
      }
    (fetches.map(await), wasInterrupted)
  }
}
