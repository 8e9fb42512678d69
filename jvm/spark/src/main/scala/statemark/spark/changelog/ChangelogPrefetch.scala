package statemark.spark.changelog

import java.util.concurrent.{ExecutionException, ExecutorService, Future}
import org.apache.spark.SparkThrowable
import org.apache.spark.sql.execution.streaming.state.StateStoreChangelogReader
import scala.collection.mutable
import scala.util.control.NonFatal
import scala.util.Try
import statemark.common._
import statemark.engine.VersionId
import statemark.spark.checkpoint.{FileDamage, StoreFile}
import statemark.spark.errors.CheckpointDamagedException
import statemark.spark.process.BackgroundThreads

/** The changelogs that one load reads. Most of a small file's time is the way to the checkpoint location
  * and back, so that several are opened side by side before their turn comes; each is opened once.
  *
  * ''Thread:'' the owner of the store.
  */
final class ChangelogPrefetch(files: ChangelogFiles) extends AutoCloseable {
  import ChangelogPrefetch._

  private val ahead = mutable.Map.empty[VersionId, Future[OpenChangelog]]

  /** Begins to open the first of `versions`, as many as may be open at once. The last of them is the version that is
    * wanted.
    */
  def open(versions: Seq[VersionId]): Unit = {
    val fresh = versions.filterNot(ahead.contains).take(OpenAtOnce - ahead.size)
    fresh.foreach(at =>
      ahead(at) = Openers.submit(() => files.open(at, isLast = at == versions.last))
    )
  }

  /** Returns the versions in the header of a changelog of format v2, ascending. The changelog stays open for
    * [[read]].
    */
  def lineage(at: VersionId): Vector[VersionId] = named(at) {
    open(Seq(at))
    ahead.get(at) match {
      case Some(opened) => LineageItems.toVersions(resultOf(opened).reader.lineage)
      case None =>
        val opened = files.open(at, isLast = false)
        try LineageItems.toVersions(opened.reader.lineage)
        finally opened.close()
    }
  }

  /** Reads a changelog to its end.
    * @return with it the fingerprint of a file that was opened as the last one, where it is needed
    * @throws SparkException where it is missing
    * @throws CheckpointDamagedException where its bytes are not those that were written
    * @throws InterruptedException where it was interrupted, which says nothing about the file
    */
  def read[A](at: VersionId)(body: StateStoreChangelogReader => A): (A, Option[Fingerprint]) =
    named(at) {
      ahead.remove(at).fold(files.open(at, isLast = false))(resultOf).readAll(body)
    }

  override def close(): Unit = {
    ahead.values.foreach(opened => Try(Interrupts.resultOf(opened).close()))
    ahead.clear()
  }

  /** Most errors of streams and codecs do not tell which file it was. */
  private def named[A](at: VersionId)(read: => A): A =
    try Interrupts.apart(read)
    catch {
      case e: StatemarkException => throw e
      case NonFatal(e) if !e.isInstanceOf[SparkThrowable] || FileDamage.isCause(e) =>
        throw new CheckpointDamagedException(
          s"The changelog ${StoreFile.changelogName(at)} cannot be read: $e.",
          "Bring the file back from a copy, or restart the query from a batch before it; `statemark verify` shows " +
            "what is damaged, and which batches can be restored.",
          Some(e)
        )
    }
}

private[spark] object ChangelogPrefetch {
  private val OpenAtOnce = 8
  private val Openers: ExecutorService = BackgroundThreads.pool("statemark-open", 2 * OpenAtOnce)

  private def resultOf[A](task: Future[A]): A =
    try task.get()
    catch { case e: ExecutionException => throw e.getCause }
}
