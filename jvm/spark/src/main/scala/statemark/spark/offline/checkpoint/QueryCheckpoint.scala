package statemark.spark.offline.checkpoint

import java.io.{FileNotFoundException, IOException}
import java.nio.charset.StandardCharsets
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.SparkSession
import org.json4s.jackson.JsonMethods.parse
import org.json4s.{JObject, JString}
import scala.util.control.NonFatal
import scala.util.Try
import statemark.common.Position
import statemark.spark.checkpoint.CommitEntries
import statemark.spark.offline.cli.{CommandContext, UserError}
import statemark.spark.process.Relocated.CheckpointFileManager

/** The checkpoint of a query as it lies in its location, read through Spark's own file manager and
  * log classes. Logs are read when they are first asked for, and once; open it again to see changes.
  *
  * @param root the qualified location
  * @param queryId the id that the query keeps over restarts
  */
final class QueryCheckpoint private (
    val root: Path,
    val queryId: String,
    val files: CheckpointFileManager,
    spark: SparkSession,
    val hadoopConf: Configuration
) {
  import QueryCheckpoint._

  val offsetLog: Path = new Path(root, "offsets")
  val commitLog: Path = new Path(root, "commits")
  private val commitEntries = new CommitEntries(commitLog, files)

  /** What commands keep there; Spark does not look at it (I10). */
  val ownDirectory: Path = new Path(root, "_statemark")

  /** Directories that commands keep there now. */
  def ownDirectories: Seq[Path] =
    StoreListing.entries(files, ownDirectory).filter(_.isDirectory).map(_.getPath)

  /** The retained entries of the offset log, oldest first; at least one. */
  lazy val offsets: Seq[OffsetEntry] = {
    val entries = batches(offsetLog).map { batch =>
      try offset(batch)
      catch {
        case e: FileNotFoundException =>
          throw UserError(
            s"the offset entry of batch $batch of $root was deleted while the log was read",
            "the query runs, or another command does",
            "wait until it has ended, then run the command again",
            Some(e)
          )
      }
    }
    if (entries.isEmpty) {
      throw UserError(
        s"$root has no batch yet",
        "its offset log is empty: the query never started one",
        "there is nothing to do; the query takes the settings that it starts with"
      )
    }
    entries
  }

  def latestOffset: OffsetEntry = offsets.last

  /** One entry of the offset log, read now. */
  def offset(batch: Long): OffsetEntry = {
    val path = new Path(offsetLog, batch.toString)
    OffsetEntry.parsed(batch, new String(bytesOf(path), StandardCharsets.UTF_8), path.toString)
  }

  /** Returns the source offsets at which a batch ends; None where the offset log has no such batch. */
  def end(batch: Long): Option[Position] =
    StatemarkBridge.loggedEnd(spark, offsetLog, batch)

  /** Batches in the commit log, oldest first. */
  lazy val commits: Seq[Long] = commitEntries.batches()

  def lastCommit: Option[Long] = commits.lastOption

  /** The last batch of the offset log is in the commit log. */
  def isLastBatchCommitted: Boolean = lastCommit.contains(latestOffset.batch)

  /** The version of the state after the last committed batch, which the next batch begins with. Files of later
    * versions are of a batch that was not committed, or that was taken back.
    */
  def committedVersion: Long =
    if (isLastBatchCommitted) latestOffset.batch + 1 else latestOffset.batch

  /** Checkpoint ids of a committed batch, by operator, partition and store; None in checkpoint format
    * v1.
    */
  def checkpointIds(batch: Long): CommitEntries.Ids =
    commitEntries.ids(
      batch,
      ids => readable(s"the commit entry ${commitEntries.pathOf(batch)}")(ids)
    )

  /** The query has stateful operators. */
  lazy val isStateful: Boolean = operatorDirectories.nonEmpty

  private def operatorDirectories: Seq[Path] = {
    val state = new Path(root, "state")
    if (!files.exists(state)) Nil
    else {
      files.list(state).toSeq.filter(s =>
        s.isDirectory && s.getPath.getName.toLongOption.isDefined
      ).map(_.getPath)
    }
  }

  /** Fails where a file is there and cannot be opened. Spark takes one of these for the absent file of an older
    * release.
    */
  private def openable(path: Path): Unit =
    try files.open(path).close()
    catch { case e: FileNotFoundException if StoreListing.isGone(files, path, e) => () }

  /** @throws statemark.common.InvalidInputException where the query keeps no state */
  def requireState(): Unit =
    if (!isStateful) {
      throw UserError(
        s"$root is the checkpoint of a stateless query",
        "it has no state of any operator",
        "there is nothing to do: no state store provider is used"
      )
    }

  /** The stateful operators as of a batch, with their stores; empty where an old Spark wrote no
    * metadata of them.
    */
  def operators(batch: Long): Seq[OperatorStateMetadata] =
    readable(s"the metadata of an operator in $root/state") {
      operatorDirectories.foreach(dir => openable(new Path(dir, OperatorFile)))
      StatemarkBridge.operatorMetadata(root.toString, hadoopConf, batch)
    }

  /** The schemas of a store's rows, of a file of Spark's versions 1 and 2; the files of operators with
    * column families are elsewhere.
    */
  def schemas(operator: Long, store: String): Option[StateStoreColFamilySchema] = {
    val path = new Path(storeId(operator, 0, store).storeCheckpointLocation(), SchemaFile)
    Option.when(files.exists(path)) {
      readable(s"the schema $path") {
        StateSchemaCompatibilityChecker.readSchemaFile(files.open(path)).head
      }
    }
  }

  /** The newest schema of a store whose operator has metadata of version 2, which a start reads: its path in this
    * checkpoint, wherever that lay when it was written. None where it is [[schemas]].
    */
  def schemaFile(operator: Long, store: StateStoreMetadata): Option[Path] = store match {
    case v2: StateStoreMetadataV2 =>
      v2.stateSchemaFilePaths.lastOption.map(new Path(_)).map { written =>
        val directory = new Path(root, s"state/$operator/${written.getParent.getParent.getName}")
        new Path(new Path(directory, written.getParent.getName), written.getName)
      }
    case _ => None
  }

  /** Fails where a schema cannot be read.
    * @throws java.io.FileNotFoundException where it is not there
    */
  def readSchema(path: Path): Unit = {
    val in =
      try files.open(path)
      catch {
        case e: FileNotFoundException if !StoreListing.isGone(files, path, e) =>
          readable(s"the schema $path")(throw e)
      }
    try readable(s"the schema $path")(StateSchemaCompatibilityChecker.readSchemaFile(in)): Unit
    finally in.close()
  }

  def storeId(operator: Long, partition: Int, store: String): StateStoreId =
    StateStoreId(new Path(root, "state").toString, operator, partition, store)

  /** The directories of all stores, as they were when they were first asked for. */
  lazy val listedStores: Seq[StoreListing] = stores()

  /** The directories of all stores, as they are now. */
  def stores(withShared: Boolean = false): Seq[StoreListing] =
    StoreListing.all(root, withShared, spark, hadoopConf)

  /** The session's settings with those of stores that an entry pins, as a batch after it runs with. An
    * entry of an older Spark lacks some: they have the value that was Spark's then.
    */
  def settings(entry: OffsetEntry): SQLConf = {
    val settings = StatemarkBridge.settings(spark)
    (BeforePinned ++ entry.confs).foreach { case (key, value) =>
      settings.setConfString(key, value)
    }
    settings
  }

  /** Files in the logs that are no entries. */
  def unknownLogFiles: Seq[String] = Seq(offsetLog, commitLog).filter(files.exists).flatMap { log =>
    files.list(log).toSeq.map(_.getPath).filter { path =>
      !path.getName.startsWith(".") && path.getName.toLongOption.isEmpty
    }.map(_.toString)
  }

  /** Numbers of the entries in a log, ascending. */
  def batches(log: Path): Seq[Long] =
    if (!files.exists(log)) Nil
    else files.list(log).toSeq.filter(_.isFile).flatMap(_.getPath.getName.toLongOption).sorted

  private def readable[A](what: String)(read: => A): A =
    try read
    catch {
      case NonFatal(e) =>
        throw UserError(
          s"$what cannot be read",
          String.valueOf(e.getMessage),
          "use the Statemark of the Spark that wrote it; if the file is damaged, bring it back",
          Some(e)
        )
    }

  def bytesOf(path: Path): Array[Byte] = {
    val in = files.open(path)
    try in.readAllBytes()
    finally in.close()
  }
}

object QueryCheckpoint {
  // Spark 4.2 `StateSchemaCompatibilityChecker.schemaFile`, which is private on older lines.
  val SchemaFile: String = "_metadata/schema"

  /** Where metadata of version 1 lies; Spark fails by itself on what it cannot read of version 2.
    *
    * ''Source:'' Spark 4.2 `OperatorStateMetadataV1.metadataFilePath`
    */
  private val OperatorFile = "_metadata/metadata"

  /** ''Source:'' Spark 4.2 `OffsetSeqMetadata.relevantSQLConfDefaultValues` */
  private val BeforePinned = Map(
    "compression.codec" -> "lz4",
    "encodingFormat" -> "unsaferow",
    "rowChecksum.enabled" -> "false",
    "rocksdb.mergeOperatorVersion" -> "1"
  ).map { case (key, value) => s"spark.sql.streaming.stateStore.$key" -> value }

  /** Opens the checkpoint that a command was given. */
  def open(location: String, context: CommandContext): QueryCheckpoint =
    open(location, context.spark, context.hadoopConf)

  /** @param location a path or URI
    * @throws statemark.common.InvalidInputException where no checkpoint of a query is there
    */
  def open(location: String, spark: SparkSession, hadoopConf: Configuration): QueryCheckpoint = {
    val (root, files) =
      try {
        val path = new Path(location)
        val root = path.getFileSystem(hadoopConf).makeQualified(path)
        (root, CheckpointFileManager.create(root, hadoopConf))
      } catch {
        case NonFatal(e) =>
          throw UserError(
            s"$location cannot be read",
            String.valueOf(e.getMessage),
            "correct the location; the file system's classes and settings come with --packages, " +
              "--jars, --conf and --properties-file, as for spark-submit",
            Some(e)
          )
      }
    if (!files.exists(root)) {
      throw UserError(s"$root does not exist", "nothing is at this path", "correct the location")
    }
    new QueryCheckpoint(root, queryIdOf(root, files), files, spark, hadoopConf)
  }

  private def queryIdOf(root: Path, files: CheckpointFileManager): String = {
    def notOne(reason: String, cause: Option[Throwable] = None) = UserError(
      s"$root is not the checkpoint of a query",
      reason,
      "name the directory that the query has as its checkpointLocation",
      cause
    )
    val path = new Path(root, "metadata")
    val text =
      try {
        val in = files.open(path)
        try new String(in.readAllBytes(), StandardCharsets.UTF_8)
        finally in.close()
      } catch {
        case e: FileNotFoundException if StoreListing.isGone(files, path, e) =>
          throw notOne("it has no file 'metadata'", Some(e))
        case e: IOException =>
          throw UserError(
            s"$root cannot be read",
            s"its file 'metadata' cannot be opened: ${e.getMessage}",
            "give whoever runs this command the right to read it",
            Some(e)
          )
      }
    Try(parse(text)).toOption.collect { case o: JObject => o \ "id" }.collect {
      case JString(id) => id
    }.getOrElse(throw notOne("its file 'metadata' names no query"))
  }
}
