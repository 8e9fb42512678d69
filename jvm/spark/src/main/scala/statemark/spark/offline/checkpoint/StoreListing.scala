package statemark.spark.offline.checkpoint

import java.io.FileNotFoundException
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FileStatus, Path}
import org.apache.spark.sql.execution.streaming.state.StateStoreId
import org.apache.spark.sql.SparkSession
import org.apache.spark.util.SerializableConfiguration
import scala.util.control.NonFatal
import statemark.spark.checkpoint.StoreFile
import statemark.spark.process.Relocated.CheckpointFileManager

/** A file of a checkpoint, as its directory lists it.
  *
  * @param name relative to the directory of the store, such as `SSTs/000012-….sst`
  * @param modified milliseconds since the epoch
  */
final case class ListedFile(name: String, bytes: Long, modified: Long)

/** What lies in the directory of one store. */
final case class StoreListing(
    operator: Long,
    partition: Int,
    name: String,
    directory: String,
    files: Seq[ListedFile]
) {
  override def toString: String =
    s"operator $operator, partition $partition" +
      (if (name == StateStoreId.DEFAULT_STORE_NAME) "" else s", store $name")

  /** Files that neither Spark 4.2 nor Statemark is known to write there. */
  def unknownFiles: Seq[ListedFile] = files.filter { f =>
    StoreFile.of(f.name) match {
      case StoreFile.Foreign => true
      case StoreFile.Hidden => f.name.startsWith("_")
      case _ => false
    }
  }
}

object StoreListing {
  val SharedFolders: Seq[String] = Seq("SSTs", "logs")

  /** Whether a file that could not be found when it was opened is not there. Local file systems say the same
    * of one that may not be read.
    */
  def isGone(files: CheckpointFileManager, path: Path, cause: FileNotFoundException): Boolean =
    try !files.exists(path)
    catch {
      case NonFatal(e) =>
        cause.addSuppressed(e)
        false
    }

  /** The stores of a checkpoint, by operator, partition and name.
    *
    * @param withShared also the files of the folders that snapshots share
    */
  def all(
      root: Path,
      withShared: Boolean,
      spark: SparkSession,
      hadoopConf: Configuration
  ): Seq[StoreListing] = {
    val files = CheckpointFileManager.create(root, hadoopConf)
    val partitions = for {
      operator <- numbered(files, new Path(root, "state"))
      partition <- numbered(files, operator)
    } yield (operator.getName.toLong, partition.getName.toInt, partition.toString)
    if (partitions.isEmpty) Nil
    else {
      val conf = spark.sparkContext.broadcast(new SerializableConfiguration(hadoopConf))
      // A listing takes long on an object store, so that tasks share the work.
      val slices = math.min(partitions.length, 200)
      val listings = spark.sparkContext.parallelize(partitions, slices).flatMap {
        case (operator, partition, path) =>
          inPartition(operator, partition, new Path(path), withShared, conf.value.value)
      }
      Jobs.run(listings.collect()).toSeq
    }
  }

  /** What a directory holds; nothing where it is not there, or was deleted just now. */
  def entries(files: CheckpointFileManager, directory: Path): Seq[FileStatus] =
    try files.list(directory).toSeq
    catch { case _: FileNotFoundException => Nil }

  private def numbered(files: CheckpointFileManager, parent: Path): Seq[Path] =
    entries(files, parent).filter(_.isDirectory).map(_.getPath)
      .filter(_.getName.toLongOption.isDefined).sortBy(_.getName.toLong)

  private def inPartition(
      operator: Long,
      partition: Int,
      path: Path,
      withShared: Boolean,
      hadoopConf: Configuration
  ): Seq[StoreListing] = {
    val manager = CheckpointFileManager.create(path, hadoopConf)
    def filesIn(directory: Path) = filesOf(manager, directory, withShared)
    def isStore(name: String): Boolean =
      !SharedFolders.contains(name) && !name.startsWith("_") && !name.startsWith(".")
    val named = entries(manager, path).filter(s => s.isDirectory && isStore(s.getPath.getName))
      .map(_.getPath).sortBy(_.getName)
    val own = filesIn(path)
    val default = Option.when(named.isEmpty || own.exists(f => !f.name.startsWith("."))) {
      StoreListing(operator, partition, StateStoreId.DEFAULT_STORE_NAME, path.toString, own)
    }
    default.toSeq ++ named.map { directory =>
      StoreListing(operator, partition, directory.getName, directory.toString, filesIn(directory))
    }
  }

  /** The files of one store, those of its own directory first. */
  def filesOf(
      files: CheckpointFileManager,
      directory: Path,
      withShared: Boolean
  ): Seq[ListedFile] = {
    val own = listed(files, directory, "")
    val shared =
      if (withShared) SharedFolders.flatMap(f => listed(files, new Path(directory, f), s"$f/"))
      else Nil
    own ++ shared
  }

  private def listed(
      files: CheckpointFileManager,
      directory: Path,
      prefix: String
  ): Seq[ListedFile] =
    entries(files, directory).filter(_.isFile)
      .map(s => ListedFile(prefix + s.getPath.getName, s.getLen, s.getModificationTime))
      .sortBy(_.name)
}
