package statemark.spark

import java.util.concurrent.{ExecutionException, ExecutorService, Future}
import org.apache.spark.SparkThrowable
import org.apache.spark.sql.execution.streaming.state.{
  RocksDBFileManager,
  StateStoreChangelogReader
}
import scala.collection.mutable
import scala.util.Try
import scala.util.control.NonFatal
import statemark.common.{Interrupts, InvalidInputException, StatemarkException}
import statemark.engine.VersionId

/** The changelogs that one load reads. Most of a small file's time is the way to the checkpoint location
  * and back, so that several are opened side by side before their turn comes; each is opened once.
  *
  * ''Thread:'' the owner of the store.
  */
final class OpenChangelogs(files: RocksDBFileManager) extends AutoCloseable {
  import OpenChangelogs._

  private val ahead = mutable.Map.empty[VersionId, Future[StateStoreChangelogReader]]

  /** Begins to open the first of `versions`, as many as may be open at once. */
  def open(versions: Seq[VersionId]): Unit = {
    val fresh = versions.filterNot(ahead.contains).take(OpenAtOnce - ahead.size)
    fresh.foreach(at => ahead(at) = Openers.submit(() => reader(at)))
  }

  /** What the header of a changelog says in format v2, ascending; it stays open for [[read]]. */
  def lineage(at: VersionId): Vector[VersionId] = named(at) {
    open(Seq(at))
    ahead.get(at) match {
      case Some(opened) => CheckpointLineage.toVersions(resultOf(opened).lineage)
      case None => using(reader(at))(reader => CheckpointLineage.toVersions(reader.lineage))
    }
  }

  /** Reads a changelog to its end.
    * @throws SparkException where it is missing or damaged
    * @throws InvalidInputException where Spark does not say which file it is
    * @throws InterruptedException where it was interrupted, which says nothing about the file
    */
  def read[A](at: VersionId)(body: StateStoreChangelogReader => A): A =
    named(at) {
      using(ahead.remove(at).fold(reader(at))(resultOf))(body)
    }

  override def close(): Unit = {
    ahead.values.foreach(opened => Try(Interrupts.resultOf(opened).closeIfNeeded()))
    ahead.clear()
  }

  /** Most errors of streams and codecs do not tell which file it was. */
  private def named[A](at: VersionId)(read: => A): A =
    try Interrupts.apart(read)
    catch {
      case e: StatemarkException => throw e
      case NonFatal(e) if !e.isInstanceOf[SparkThrowable] =>
        throw new InvalidInputException(
          s"The changelog ${StoreFile.changelogName(at)} cannot be read: $e. Bring the file back from a copy, or restart the query " +
            "from a batch before it; `statemark verify` shows what is damaged, and which batches can be restored.",
          Some(e)
        )
    }

  private def reader(at: VersionId) = files.getChangelogReader(at.version, at.checkpointId)

  private def using[A](reader: StateStoreChangelogReader)(body: StateStoreChangelogReader => A): A =
    try body(reader)
    finally reader.closeIfNeeded()
}

private object OpenChangelogs {
  private val OpenAtOnce = 8
  private val Openers: ExecutorService = Daemons.pool("statemark-open", 2 * OpenAtOnce)

  private def resultOf[A](task: Future[A]): A =
    try task.get()
    catch { case e: ExecutionException => throw e.getCause }
}
