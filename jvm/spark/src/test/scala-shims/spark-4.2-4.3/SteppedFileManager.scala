package statemark.spark.offline

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FSDataInputStream, Path}
import org.apache.spark.sql.execution.streaming.checkpointing.{
  CheckpointFileManager,
  FileSystemBasedCheckpointFileManager
}
import scala.util.Try

/** Spark's own manager, in whose operations on the logs of a query and on what commands keep beside them
  * something else may happen.
  */
class SteppedFileManager(path: Path, conf: Configuration)
    extends FileSystemBasedCheckpointFileManager(path, conf) {

  override def createAtomic(
      path: Path,
      overwriteIfPossible: Boolean
  ): CheckpointFileManager.CancellableFSDataOutputStream = {
    SteppedFileManager.step(path)
    super.createAtomic(path, overwriteIfPossible)
  }

  override def open(path: Path): FSDataInputStream = {
    SteppedFileManager.step(path)
    super.open(path)
  }

  override def delete(path: Path): Unit = {
    SteppedFileManager.step(path)
    super.delete(path)
  }
}

object SteppedFileManager {
  val settings: Map[String, String] = Map(
    "spark.sql.streaming.checkpointFileManagerClass" -> classOf[SteppedFileManager].getName
  )

  @volatile private var count_ = 0

  /** How many operations the last `one` made. */
  def count: Int = count_

  @volatile private var hook: () => Unit = () => ()

  private def step(path: Path): Unit =
    if (Seq("offsets", "commits", "_statemark").contains(path.getParent.getName)) hook()

  /** Runs `one`, and `other` to its end before an operation of it; what became of each.
    *
    * @param at the operation, from 0
    * @param deathAt a later one at which `one` dies of `death`, and at every one after it
    */
  def beside[A](at: Int, deathAt: Option[Int], death: Throwable)(one: => A)(
      other: => A
  ): Seq[Try[A]] = {
    count_ = 0
    var second = Option.empty[Try[A]]
    lazy val stepping: () => Unit = () => {
      val now = count_
      count_ += 1
      if (now == at) {
        hook = () => ()
        second = Some(Try(other))
        hook = stepping
      }
      if (deathAt.exists(now >= _)) throw death
    }
    hook = stepping
    val first =
      try Try(one)
      finally hook = () => ()
    // An operation that is not reached comes after the end.
    Seq(first, second.getOrElse(Try(other)))
  }
}
