package statemark.spark.offline.ownership

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.apache.spark.sql.internal.SQLConf
import statemark.spark.process.FilesAbove
import statemark.spark.offline.ownership.OwnedFileManager._
import statemark.spark.process.Relocated.CheckpointFileManager
import statemark.spark.process.Relocated.CheckpointFileManager.CancellableFSDataOutputStream

/** The file manager of tasks that write for a command: a file comes to its place only while the command owns
  * the checkpoint. Tasks go on for a while after their driver has given up, and a snapshot of theirs would be
  * taken for one of the query's.
  *
  * The look comes after the file was begun beside its place and before it is renamed: who takes the
  * checkpoint deletes what was begun until then, so that the look fails or the rename does.
  */
private[offline] final class OwnedFileManager(path: Path, conf: Configuration)
    extends FilesAbove(CheckpointFileManager.create(path, OwnedFileManager.underneath(conf))) {
  private val held = new Path(conf.get(Held))

  override def createAtomic(
      path: Path,
      overwriteIfPossible: Boolean
  ): CancellableFSDataOutputStream =
    new OwnedStream(super.createAtomic(path, overwriteIfPossible))

  private final class OwnedStream(out: CancellableFSDataOutputStream)
      extends CancellableFSDataOutputStream(out) {
    override def close(): Unit =
      if (held.getFileSystem(conf).exists(held)) out.close()
      else {
        out.cancel()
        throw Ownership.lost(Ownership.rootOf(held))
      }

    override def cancel(): Unit = out.cancel()
  }
}

private[offline] object OwnedFileManager {
  private val Held = "statemark.offline.held"
  private val Class = SQLConf.STREAMING_CHECKPOINT_FILE_MANAGER_CLASS.parent.key
  private val ClassBefore = "statemark.offline.fileManager"

  /** The configuration of tasks that write only while `held` is there. */
  def settings(conf: Configuration, held: Path): Configuration = {
    val own = new Configuration(conf)
    own.set(Held, held.toString)
    Option(conf.get(Class)).foreach(own.set(ClassBefore, _))
    own.set(Class, classOf[OwnedFileManager].getName)
    own
  }

  private def underneath(conf: Configuration): Configuration = {
    val own = new Configuration(conf)
    Option(conf.get(ClassBefore)).fold(own.unset(Class))(own.set(Class, _))
    own
  }
}
