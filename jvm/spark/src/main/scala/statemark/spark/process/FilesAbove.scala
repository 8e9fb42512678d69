package statemark.spark.process

import org.apache.hadoop.fs.{FSDataInputStream, FileStatus, Path, PathFilter}
import statemark.spark.process.Relocated.CheckpointFileManager
import statemark.spark.process.Relocated.CheckpointFileManager.CancellableFSDataOutputStream

/** A file manager above another one, which does what this one does not override.
  *
  * ''Thread:'' as the other one.
  */
abstract class FilesAbove(under: CheckpointFileManager) extends CheckpointFileManager {
  override def createAtomic(path: Path, overwrite: Boolean): CancellableFSDataOutputStream =
    under.createAtomic(path, overwrite)

  override def open(path: Path): FSDataInputStream = under.open(path)
  override def list(path: Path, filter: PathFilter): Array[FileStatus] = under.list(path, filter)
  override def mkdirs(path: Path): Unit = under.mkdirs(path)
  override def exists(path: Path): Boolean = under.exists(path)
  override def delete(path: Path): Unit = under.delete(path)
  override def isLocal: Boolean = under.isLocal
  override def createCheckpointDirectory(): Path = under.createCheckpointDirectory()
}
