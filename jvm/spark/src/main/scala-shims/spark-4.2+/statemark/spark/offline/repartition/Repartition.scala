package statemark.spark.offline.repartition

import org.apache.hadoop.fs.Path
import org.apache.spark.sql.{classic, SparkSession}
import org.apache.spark.sql.execution.streaming.checkpointing._
import org.apache.spark.sql.execution.streaming.runtime.{
  StreamingCheckpointConstants,
  StreamingQueryCheckpointMetadata
}
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.internal.SQLConf
import scala.annotation.tailrec
import scala.util.Try
import statemark.spark.checkpoint.StoreFile
import statemark.spark.conf.ProviderClass
import statemark.spark.offline.checkpoint.QueryCheckpoint
import statemark.spark.offline.cli.UserError
import statemark.spark.offline.ownership.Ownership

/** Moves the state of a stopped query onto another number of partitions (docs/adr/0006).
  *
  * The protocol is that of Spark's own runner: a batch of its own that reads no input. Its entry in the
  * offset log comes first, its entry in the commit log last; in between every store is written anew
  * beside the old versions. Until the commit the query refuses to start (Spark 4.2
  * `MicroBatchExecution.checkUnfinishedRepartitionBatch`), and `run` with the same number goes on, or
  * `rollback` takes everything back. A run of the query that is started too early therefore changes
  * nothing.
  *
  * ''Errors:'' `InvalidInputException` where the checkpoint or the number does not allow it, before
  * anything is written.
  * ''Source:'' Spark 4.2 `OfflineStateRepartitionRunner`.
  */
final class Repartition(
    session: SparkSession,
    checkpoint: QueryCheckpoint,
    progress: RepartitionProgress => Unit
) {
  import Repartition._
  import RepartitionResult._

  private val location = checkpoint.root.toString
  private val stateLocation = new Path(checkpoint.root, StreamingCheckpointConstants.DIR_NAME_STATE)
  // Anew each time: they keep entries, which another command may have changed since.
  private def logs = new StreamingQueryCheckpointMetadata(session, location)
  import checkpoint.files

  /** @param partitions the new number, at least 1
    * @param skipUncommitted whether a last batch that was started and not committed is given up: the
    * query reads its input again, and what its sink has kept of it may come twice
    */
  def run(partitions: Int, skipUncommitted: Boolean = false): RepartitionResult = {
    requirePossible(partitions)
    owning(decide(partitions, skipUncommitted)) {
      case (Continue(started), owner) =>
        discard(started.batch, started.from, owner)
        finish(started, owner)
      case (Begin(started, last), owner) =>
        for (batch <- last to started.batch by -1) {
          discard(batch, started.from, owner)
          owner.remove(offsetPath(batch))
        }
        begin(started, owner)
        finish(started, owner)
    }
  }

  /** What `run` would do, where nothing forbids it; writes nothing. */
  def dryRun(partitions: Int, skipUncommitted: Boolean = false): RepartitionResult = {
    requirePossible(partitions)
    decide(partitions, skipUncommitted).map {
      case Continue(started) => wouldMove(started, isBegun = true, None)
      case Begin(started, last) =>
        wouldMove(started, isBegun = false, Option.when(last >= started.batch)(last))
    }.merge
  }

  private def wouldMove(started: Started, isBegun: Boolean, givenUp: Option[Long]) = WouldMove(
    started.batch,
    started.from,
    started.to,
    layouts(started).map(_._2.length).sum,
    isBegun,
    givenUp
  )

  private def requirePossible(partitions: Int): Unit = {
    if (partitions < 1) {
      throw UserError(
        s"$partitions partitions were asked for",
        "there is none",
        "ask for 1 or more"
      )
    }
    checkpoint.requireState()
  }

  /** What `rollback` would do; writes nothing. */
  def dryRollback(): RepartitionResult =
    toRollBack.map(started => WouldRollBack(started.batch, started.from)).merge

  private def toRollBack: Either[RepartitionResult, Started] = {
    val (last, committed) = lastBatches()
    unfinished(last, committed).toRight(NothingToRollBack)
  }

  /** Takes an unfinished repartition back. */
  def rollback(): RepartitionResult = owning(toRollBack) { (started, owner) =>
    discard(started.batch, started.from, owner)
    // The entry goes last: as long as it stands, a query does not start and rollback goes on.
    owner.remove(offsetPath(started.batch))
    // On an object store a copy that was under way may have arrived (docs/adr/0006).
    owner.remove(commitPath(started.batch))
    RolledBack(started.batch, started.from)
  }

  /** What there is to do, where nothing forbids it. */
  private def decide(
      partitions: Int,
      skipUncommitted: Boolean
  ): Either[RepartitionResult, Plan] = {
    val (last, committed) = lastBatches()
    unfinished(last, committed) match {
      case Some(started) if started.to == partitions => Right(Continue(started))
      case Some(other) =>
        throw UserError(
          s"$location cannot go to $partitions partitions",
          s"a repartition to ${other.to} was begun and not finished",
          s"finish it with --partitions ${other.to}, or take it back with --rollback"
        )
      case None if partitionsOf(committed) == partitions => Left(Unchanged(partitions))
      case None if last > committed && !skipUncommitted =>
        throw UserError(
          s"batch $last of $location was started and not committed",
          s"the last committed batch is $committed, and what the sink has of batch $last would come twice",
          "stop the query when the batch is through, after a start where it does not run; or give the batch up with " +
            "--skip-uncommitted: the query reads its input again, and the sink may get rows twice"
        )
      case None =>
        val begun = Started(committed + 1, partitionsOf(committed), partitions)
        requireKnownProvider(committed)
        layouts(begun): Unit
        Right(Begin(begun, last))
    }
  }

  /** Carries out what is decided, as the owner of the checkpoint. It is decided on again once no other command
    * can change anything; where nothing is to be done, and nobody is at work, once is enough.
    */
  private def owning[A](decide: => Either[RepartitionResult, A])(
      carryOut: (A, Ownership) => RepartitionResult
  ): RepartitionResult = decide match {
    case Left(nothing) if !Ownership.isTaken(checkpoint) => nothing
    case _ => Ownership.during(checkpoint)(owner => decide.fold(identity, carryOut(_, owner)))
  }

  // ---- the sink

  /** Returns the batches of repartitions that the log of the query's file sink lacks.
    * @throws UserError where the directory is not this query's
    */
  def sinkLacks(directory: String): Seq[Long] = sinkLog(directory)._2

  /** Gives the log of the query's file sink the entries that it lacks, and returns their batches. */
  def completeSink(directory: String): Seq[Long] = {
    val (log, lacking) = sinkLog(directory)
    log.add(lacking)
    lacking
  }

  private def sinkLog(directory: String): (FileSinkLog, Seq[Long]) = {
    val log = new FileSinkLog(session, checkpoint.hadoopConf, directory)
    val (_, committed) = lastBatches()
    (log, log.lacking(committed, b => b > 0 && partitionsOf(b) != partitionsOf(b - 1)))
  }

  // ---- the batch

  private def lastBatches(): (Long, Long) = {
    val last = logs.offsetLog.getLatestBatchId().getOrElse(
      throw UserError(
        s"$location has no batch yet",
        "its offset log is empty",
        "set spark.sql.shuffle.partitions where the query is started"
      )
    )
    val committed = logs.commitLog.getLatestBatchId().getOrElse(
      throw UserError(
        s"$location has no state to move",
        "its query has not committed a batch yet",
        "start the query until it has, or start it anew with another spark.sql.shuffle.partitions"
      )
    )
    (last, committed)
  }

  /** An uncommitted last batch that differs from the one before in the number of partitions. */
  private def unfinished(last: Long, committed: Long): Option[Started] =
    Option.when(last == committed + 1 && partitionsOf(last) != partitionsOf(committed))(
      Started(last, partitionsOf(committed), partitionsOf(last))
    )

  private def begin(started: Started, owner: Ownership): Unit = {
    val change = SQLConf.SHUFFLE_PARTITIONS.key -> started.to.toString
    val entry = offsets(started.read) match {
      case v1: OffsetSeq =>
        v1.copy(metadataOpt = v1.metadataOpt.map(m => m.copy(conf = m.conf + change)))
      case v2: OffsetMap => v2.copy(metadata = v2.metadata.copy(conf = v2.metadata.conf + change))
      case other =>
        throw UserError(
          s"the offset log of $location cannot be continued",
          s"it is of version ${other.version}, which this Statemark does not know",
          "use the Statemark of the Spark that wrote it"
        )
    }
    val staged = owner.staged()
    new OffsetSeqLog(session, staged.toString).add(started.batch, entry): Unit
    owner.place(new Path(staged, started.batch.toString), offsetPath(started.batch))
  }

  private def finish(started: Started, owner: Ownership): RepartitionResult = {
    val found = layouts(started)
    val stores = found.map(_._2.length).sum
    var storesDone = 0
    var rows = 0L
    val entry = commit(started.read)
    val mover = new StateMove(
      session,
      stateLocation.toString,
      checkpoint.hadoopConf,
      owner.held,
      MoveSource(
        started.read + 1,
        started.from,
        storeConf(started.read, entry),
        entry.stateUniqueIds.getOrElse(Map.empty)
      ),
      MoveTarget(
        started.batch,
        started.to,
        // Spark's own provider writes in place, so that a partition need not fit into the heap.
        storeConf(started.batch, entry, ProviderClass.RocksDb.className)
      )
    )
    val ids = found.map { case (operator, layouts) =>
      val byStore = layouts.zipWithIndex.map { case (layout, index) =>
        val name = s"${layout.operatorId}/${layout.name}"
        val partitions = layout.partitions(started.to)
        var done = Map.empty[Int, Option[String]]
        def report(): Unit =
          progress(RepartitionProgress(name, storesDone, stores, done.size, partitions, rows))
        report()
        mover.move(layout, index) { written =>
          owner.requireHeld()
          done += written.partition -> written.id
          rows += written.rows
          report()
        }
        storesDone += 1
        report()
        (0 until partitions).map(done)
      }
      operator.operatorInfo.operatorId -> byStore.transpose.map(_.flatten.toArray).toArray
    }.toMap
    found.foreach { case (operator, _) => writeMetadata(operator, started, owner) }
    val committed =
      entry.withStateUniqueIds(entry.stateUniqueIds.map(_ => ids))
    val staged = owner.staged()
    new CommitLog(session, staged.toString).add(started.batch, committed): Unit
    owner.place(new Path(staged, started.batch.toString), commitPath(started.batch))
    Moved(started.batch, started.from, started.to, stores, rows)
  }

  private def offsetPath(batch: Long) = new Path(checkpoint.offsetLog, batch.toString)
  private def commitPath(batch: Long) = new Path(checkpoint.commitLog, batch.toString)

  // ---- what the checkpoint says

  private def offsets(batch: Long): OffsetSeqBase =
    logs.offsetLog.get(batch).getOrElse(throw missing(checkpoint.offsetLog, batch))

  private def commit(batch: Long): CommitMetadataBase =
    logs.commitLog.get(batch).getOrElse(throw missing(checkpoint.commitLog, batch))

  private def metadataOf(batch: Long): OffsetSeqMetadataBase =
    offsets(batch).metadataOpt.getOrElse(throw unpinned(batch))

  private def partitionsOf(batch: Long): Int =
    metadataOf(batch).conf.get(SQLConf.SHUFFLE_PARTITIONS.key).map(_.toInt)
      .getOrElse(throw unpinned(batch))

  private def requireKnownProvider(batch: Long): Unit = {
    val pinned = OffsetSeqMetadata.readValue(metadataOf(batch), SQLConf.STATE_STORE_PROVIDER_CLASS)
    if (!ProviderClass.of(pinned).usesRocksDbFiles) {
      throw UserError(
        s"$location cannot be repartitioned",
        s"its state is held by $pinned",
        "move it first: statemark switch CHECKPOINT --to statemark"
      )
    }
  }

  /** Settings of the stores as the batch has pinned them; the checkpoint's format is that of its
    * commit log, whatever the session says.
    */
  private def storeConf(
      batch: Long,
      committed: CommitMetadataBase,
      providerClass: String*
  ): StateStoreConf = {
    val conf = session.asInstanceOf[classic.SparkSession].sessionState.conf.clone()
    OffsetSeqMetadata.setSessionConf(metadataOf(batch), conf)
    val format = if (committed.stateUniqueIds.isDefined) "2" else "1"
    conf.setConfString(SQLConf.STATE_STORE_CHECKPOINT_FORMAT_VERSION.key, format)
    providerClass.foreach(conf.setConfString(SQLConf.STATE_STORE_PROVIDER_CLASS.key, _))
    StateStoreConf(conf)
  }

  private def layouts(started: Started): Seq[(OperatorStateMetadata, Seq[StoreLayout])] = {
    val found = checkpoint.operators(started.read)
    if (found.isEmpty) {
      throw UserError(
        s"$location cannot be repartitioned",
        "its operators have no metadata: the query was last run by a Spark before 3.5",
        "run one batch of it with this Spark"
      )
    }
    val joinFormat = OffsetSeqMetadata.readValue(
      metadataOf(started.read),
      SQLConf.STREAMING_JOIN_STATE_FORMAT_VERSION
    ).toInt
    found.map(operator =>
      operator ->
        StoreLayout.of(operator, stateLocation.toString, joinFormat, checkpoint.hadoopConf)
    )
  }

  // ---- files that are not stores

  private def metadataFile(operator: Path, batch: Long): Path =
    OperatorStateMetadataV2.metadataFilePath(operator, batch)

  /** Metadata of version 1 is one file for the whole life of a query; its number of partitions is that
    * of the first batch.
    */
  private def writeMetadata(
      operator: OperatorStateMetadata,
      started: Started,
      owner: Ownership
  ): Unit =
    operator match {
      case v2: OperatorStateMetadataV2 =>
        val stores = v2.stateStoreInfo.map(_.copy(numPartitions = started.to))
        val staged = owner.staged()
        OperatorStateMetadataWriter
          .createWriter(staged, checkpoint.hadoopConf, v2.version, Some(started.batch))
          .write(v2.copy(stateStoreInfo = stores))
        val path = new Path(stateLocation, v2.operatorInfo.operatorId.toString)
        owner.replace(metadataFile(staged, started.batch), metadataFile(path, started.batch))
      case _ => ()
    }

  /** Deletes what a batch that is not committed has left of itself: metadata, files of the version that
    * it makes, and directories of partitions that hold nothing else. A file of a version would be taken
    * for the next attempt's. Files that a task is still writing go too, so that it cannot put them in
    * place ([[OwnedFileManager]]).
    *
    * @param live the number of partitions without the batch
    */
  @tailrec
  private def discard(batch: Long, live: Int, owner: Ownership): Unit = {
    def isItsOwn(file: Path) = {
      val name = file.getName
      StoreFile.version(name).orElse(StoreFile.unfinishedVersion(name)).contains(batch + 1)
    }
    val found = for {
      operator <- files.list(stateLocation, isNumber(_)).toSeq.map(_.getPath)
      _ = owner.remove(metadataFile(operator, batch))
      partition <- files.list(operator, isNumber(_)).toSeq.map(_.getPath)
    } yield {
      val (folders, inside) = tree(partition)
      val (made, others) = inside.partition(isItsOwn)
      made.foreach(owner.remove)
      if (partition.getName.toInt >= live && made.nonEmpty && !others.exists(isVersion)) {
        others.foreach(owner.delete)
        // Inner ones first.
        (partition +: folders).reverse.foreach(owner.deleteEmpty)
      }
      made.length
    }
    // A file that was being written may have come to its place meanwhile.
    if (found.sum > 0) discard(batch, live, owner)
  }

  /** Folders, the outer ones first, and files below a directory. */
  private def tree(directory: Path): (Seq[Path], Seq[Path]) = {
    val (folders, found) = files.list(directory).toSeq.partition(_.isDirectory)
    val below = folders.map(f => tree(f.getPath))
    (folders.map(_.getPath) ++ below.flatMap(_._1), found.map(_.getPath) ++ below.flatMap(_._2))
  }

  private def missing(log: Path, batch: Long) = UserError(
    s"$log has no entry for batch $batch",
    "it was deleted",
    "bring it back: nothing else says what the batch was"
  )

  private def unpinned(batch: Long) = UserError(
    s"the number of partitions of $location is not known",
    s"the offset entry of batch $batch does not record ${SQLConf.SHUFFLE_PARTITIONS.key}",
    "start the query and stop it after a batch, with the spark.sql.shuffle.partitions that it began with: offset " +
      "entries name the number from the next start on"
  )
}

private object Repartition {

  /** A repartition that is batch `batch` and moves the state after the one before. */
  private final case class Started(batch: Long, from: Int, to: Int) {
    def read: Long = batch - 1
  }

  /** What a repartition does. */
  private sealed trait Plan

  /** Goes on with a batch that was begun. */
  private final case class Continue(started: Started) extends Plan

  /** Begins a batch, and gives up those from its number to `last`. */
  private final case class Begin(started: Started, last: Long) extends Plan

  private def isNumber(path: Path): Boolean = Try(path.getName.toLong).isSuccess

  /** Whether a file is a snapshot or a changelog. */
  private def isVersion(file: Path): Boolean =
    !file.getName.startsWith(".") && Seq(".zip", ".changelog").exists(file.getName.endsWith)
}
