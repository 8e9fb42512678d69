package statemark.spark.offline.verify

import java.io.{FileNotFoundException, IOException}
import org.apache.hadoop.fs.Path
import org.apache.spark.sql.execution.streaming.state.{
  OperatorStateMetadata,
  StateStoreConf,
  StateStoreId
}
import org.apache.spark.sql.types.{NullType, StructType}
import scala.collection.mutable
import statemark.common.InvalidInputException
import statemark.spark.checkpoint.{OperatorFacts, RepairLimits}
import statemark.spark.offline.checkpoint.{OffsetEntry, PinnedKeys, QueryCheckpoint, StoreListing}
import statemark.spark.snapshot.SnapshotSearch

/** What there is to verify in a checkpoint, as its logs say now: its stores with their committed
  * versions. What is wrong with the logs themselves is found on the way.
  */
final class VerifyPlan(checkpoint: QueryCheckpoint, isDeep: Boolean) {
  private val found = mutable.ArrayBuffer.empty[Finding]
  // Spark 4.2 `SQLConf.STREAMING_CHECKPOINT_FILE_CHECKSUM_ENABLED`, which older lines lack.
  private val ChecksumFiles = "spark.sql.streaming.checkpoint.fileChecksum.enabled"
  private val settingsRemedy = "bring it back from a copy"

  private val gaps = LogGaps.listed(checkpoint)
  private val offsets: Map[Long, OffsetEntry] =
    entries(checkpoint.offsetLog, gaps.offsets)(b => checkpoint.offset(b))
  private val ids: Map[Long, Option[Map[Long, Array[Array[String]]]]] =
    entries(checkpoint.commitLog, gaps.commits)(b => checkpoint.checkpointIds(b))

  /** Batches in the commit log, ascending. */
  val committed: Seq[Long] = ids.keys.toSeq.sorted

  val newest: Option[OffsetEntry] = offsets.keys.maxOption.map(offsets)

  private val metadata = committed.lastOption.fold(Seq.empty[OperatorFacts]) { batch =>
    try
      checkpoint.operators(batch).map { operator =>
        checkSchemas(operator)
        withPartitions(OperatorFacts.of(operator))
      }
    catch {
      case e: InvalidInputException =>
        val problem = e.getMessage.linesIterator.take(2).mkString(",")
        found += Finding("state", FindingKind.Damaged, problem, Nil, Nil, settingsRemedy)
        Nil
    }
  }

  val settings: VerifySettings = {
    val confs = newest.fold(Map.empty[String, String])(_.confs)
    val loading = newest.map(checkpoint.settings)
    def pinned(key: String, default: String) = confs.getOrElse(key, default)
    VerifySettings(
      pinned(PinnedKeys.Codec, "lz4"),
      pinned(PinnedKeys.RowChecksums, "false").toBoolean,
      if (pinned(PinnedKeys.MergeOperator, "1") == "1") "," else "",
      pinned(PinnedKeys.TableFormat, "5").toInt,
      confs,
      loading.fold(RepairLimits.never)(conf => SnapshotSearch.limits(new StateStoreConf(conf))),
      loading.forall(_.getConfString(ChecksumFiles, "true").toBoolean),
      isDeep
    )
  }

  private val listings = checkpoint.stores()

  /** The stores that are there. */
  val stores: Seq[StoreTask] = listings.filter(isStore).map { listing =>
    StoreTask(
      listing.operator,
      listing.partition,
      listing.name,
      listing.directory,
      relative(listing.operator, listing.partition, listing.name),
      if (isNamed(listing)) committedOf(listing.operator, listing.partition) else Nil
    )
  }

  /** What is wrong apart from the files of stores. */
  def findings: Seq[Finding] = (found ++ absentEntries ++ absentStores ++ foreignFolders).toSeq

  /** A start reads the last entries of both logs, and a restart from an older batch those before. */
  private def absentEntries: Seq[Finding] =
    if (stores.isEmpty) Nil
    else if (gaps.isEmpty) {
      // A batch is planned before a store has anything of it.
      val detail = "it has no entry, and the query has stores"
      Seq(Finding(
        checkpoint.offsetLog.getName,
        FindingKind.Missing,
        detail,
        Nil,
        Nil,
        settingsRemedy
      ))
    } else {
      val retained = newest.fold(1)(checkpoint.settings(_).minBatchesToRetain)
      gaps.missing(retained.toLong).map { case (name, batch) =>
        Finding(
          name,
          FindingKind.Missing,
          "it is not there, and later batches are",
          Seq(batch + 1),
          Nil,
          settingsRemedy
        )
      }
    }

  private def absentStores: Seq[Finding] = {
    val there = stores.map(s => (s.operator, s.partition, s.name)).toSet
    for {
      operator <- metadata
      batch <- committed.lastOption.toSeq
      partition <- 0 until partitionsAt(operator, batch)
      name <- operator.stores
      if !there((operator.id, partition, name))
    } yield {
      val versions = committedOf(operator.id, partition).map(_.version)
      Finding(
        relative(operator.id, partition, name),
        FindingKind.Missing,
        "the directory of the store is not there",
        versions,
        versions,
        "bring it back from a copy"
      )
    }
  }

  private def foreignFolders: Seq[Finding] = listings.filterNot(isStore).map { listing =>
    Finding(
      relative(listing.operator, listing.partition, listing.name),
      FindingKind.Foreign,
      "the operator has no store of this name",
      Nil,
      Nil,
      "move it out of the checkpoint"
    )
  }

  /** A store, or the directory that holds the directories of named stores. */
  private def isStore(listing: StoreListing): Boolean =
    isNamed(listing) || listing.name == StateStoreId.DEFAULT_STORE_NAME

  private def isNamed(listing: StoreListing): Boolean =
    metadata.find(_.id == listing.operator).forall(_.stores.contains(listing.name))

  private def committedOf(operator: Long, partition: Int): Seq[CommittedVersion] = {
    val facts = metadata.find(_.id == operator)
    val isIn = metadata.isEmpty || facts.isDefined
    committed.filter(b => isIn && facts.forall(f => partition < partitionsAt(f, b))).map { batch =>
      val own = ids(batch).flatMap(_.get(operator)).flatMap(_.lift(partition)).map(_.toSet)
      CommittedVersion(batch + 1, own)
    }
  }

  private def partitionsAt(operator: OperatorFacts, batch: Long): Int =
    ids.get(batch).flatten.flatMap(_.get(operator.id)).map(_.length).getOrElse {
      if (operator.partitions == 1) 1
      else offsets.get(batch).flatMap(_.partitions).getOrElse(operator.partitions)
    }

  /** An operator whose rows all have one key has one partition, whatever the query has and its metadata
    * say.
    */
  private def withPartitions(operator: OperatorFacts): OperatorFacts = {
    // A start reads the schemas of all stores.
    val keys = operator.stores.flatMap(keySchema(operator.id, _))
    if (keys.headOption.exists(_.forall(_.dataType == NullType))) operator.copy(partitions = 1)
    else operator
  }

  /** Where metadata names the files of schemas, a start reads the newest of each store. */
  private def checkSchemas(operator: OperatorStateMetadata): Unit =
    for {
      store <- OperatorFacts.storesOf(operator)
      path <- checkpoint.schemaFile(operator.operatorInfo.operatorId, store)
    } {
      val name = path.toString.stripPrefix(s"${checkpoint.root}/")
      def unusable(kind: FindingKind, detail: String) =
        found += Finding(name, kind, detail, Nil, Nil, settingsRemedy)
      try checkpoint.readSchema(path)
      catch {
        case _: FileNotFoundException => unusable(FindingKind.Missing, "it is not there")
        case e: InvalidInputException => unusable(FindingKind.Damaged, reasonOf(e))
      }
    }

  private def keySchema(operator: Long, store: String): Option[StructType] =
    try checkpoint.schemas(operator, store).map(_.keySchema)
    catch {
      case e: InvalidInputException =>
        val name = s"${relative(operator, 0, store)}/${QueryCheckpoint.SchemaFile}"
        found += Finding(name, FindingKind.Damaged, reasonOf(e), Nil, Nil, settingsRemedy)
        None
    }

  private def relative(operator: Long, partition: Int, name: String): String =
    s"state/$operator/$partition" + (if (name == StateStoreId.DEFAULT_STORE_NAME) "" else s"/$name")

  /** Every entry of a log; what is purged meanwhile is left out. */
  private def entries[A](log: Path, batches: Seq[Long])(read: Long => A): Map[Long, A] =
    batches.flatMap { batch =>
      val path = new Path(log, batch.toString)
      val name = s"${log.getName}/$batch"
      def damaged(detail: String): Option[Nothing] = {
        found +=
          Finding(name, FindingKind.Damaged, detail, Seq(batch + 1), Nil, settingsRemedy)
        None
      }
      try {
        sidecarProblem(log, batch).foreach { detail =>
          found += Finding(
            s"$name.crc",
            FindingKind.WrongChecksum,
            detail,
            Nil,
            Nil,
            settingsRemedy
          )
        }
        Some(batch -> read(batch))
      } catch {
        case e: InvalidInputException => damaged(reasonOf(e))
        case e: FileNotFoundException if StoreListing.isGone(checkpoint.files, path, e) => None
        case e: IOException => damaged(s"it cannot be read: ${StoreFiles.reason(e)}")
      }
    }.toMap

  private def reasonOf(e: InvalidInputException): String =
    e.getMessage.linesIterator.slice(1, 2).mkString.trim.stripPrefix("reason: ")

  private def sidecarProblem(log: Path, batch: Long): Option[String] = {
    val sidecar = new Path(log, s"$batch.crc")
    Option.when(checkpoint.files.exists(sidecar)) {
      val bytes = checkpoint.bytesOf(new Path(log, batch.toString))
      val crc = new java.util.zip.CRC32C
      crc.update(bytes)
      StoreFiles.mismatch(checkpoint.bytesOf(sidecar), bytes.length, crc.getValue.toInt)
    }.flatten
  }
}

/** The entries of both logs by batch, and which lack between others.
  *
  * A query that runs writes the offset entry of a batch, then its commit entry, and deletes old entries
  * meanwhile: commits are listed before the offsets and after them.
  *
  * @param commitsBefore those that were there before `offsets` were listed
  */
final case class LogGaps(commitsBefore: Seq[Long], offsets: Seq[Long], commits: Seq[Long]) {

  /** What is not there although later batches are, by its name in the checkpoint and its batch.
    * @param retained how many batches retention leaves; older entries it may have deleted out of order
    */
  def missing(retained: Long): Seq[(String, Long)] = {
    val last = (commitsBefore ++ offsets).maxOption.getOrElse(0L)
    def from(log: Seq[Long]) = math.max(log.minOption.getOrElse(0L), last - retained + 1)
    // Each batch that is committed, and each between others, was planned.
    val planned = from(offsets) to math.max(offsets.maxOption.getOrElse(0L), last)
    // A batch is planned when the one before is committed.
    val ended = from(commits) until offsets.maxOption.getOrElse(0L)
    planned.diff(offsets).map(b => (s"offsets/$b", b)) ++
      ended.diff(commits).map(b => (s"commits/$b", b))
  }

  def isEmpty: Boolean = offsets.isEmpty && commitsBefore.isEmpty
}

object LogGaps {
  def listed(checkpoint: QueryCheckpoint): LogGaps = {
    val before = checkpoint.batches(checkpoint.commitLog)
    val offsets = checkpoint.batches(checkpoint.offsetLog)
    LogGaps(before, offsets, checkpoint.batches(checkpoint.commitLog))
  }
}
