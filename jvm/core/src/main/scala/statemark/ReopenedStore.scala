package statemark

import java.io.File
import statemark.common._
import statemark.engine._
import statemark.transaction._

/** A base store that an earlier process has left.
  *
  * @param uploads its SST files that lay in the checkpoint location
  */
final case class ReopenedStore(
    store: TransactionalStore,
    uploads: Vector[UploadedSst]
)

object ReopenedStore {

  /** Opens the base store that an earlier process left in `directory`. Its records are read and
    * nothing else: whether its version is part of the checkpoint's history is the caller's to prove.
    *
    * @param mark the mark that the checkpoint has now; None where it has none
    * @param countsRows whether rows are counted from now on; where they were not before, all rows are read now
    * @throws LocalRejectedException where it is not the store `identity`, was made under another mark, or cannot be
    *   used
    */
  def open(
      directory: File,
      options: EngineOptions,
      identity: StoreIdentity,
      usesFamilies: Boolean,
      countsRows: Boolean,
      observer: CommitObserver,
      retention: ReadRetention = ReadRetention.none,
      limit: Option[UncommittedLimit] = None,
      mark: Option[String] = None
  ): ReopenedStore = {
    val engine =
      try RocksEngine.reopen(directory, options)
      catch { case e: StoreUnusableException => throw damaged(directory, e) }
    try {
      val before = BaseRecords.read(engine)
      if (before.identity != identity) throw otherStore(directory, before.identity, identity)
      if (before.mark != mark) throw otherMark(directory, before.mark, mark)
      before.intent.foreach(finish(engine, _, observer))
      val found = BaseRecords.read(engine)
      if (found.format != FormatVersion.current) renew(engine, found)
      deleteStaged(directory)
      val store = new TransactionalStore(
        engine,
        found.identity.partitionId,
        found.state.copy(counts = counted(engine, found.state, usesFamilies, countsRows)),
        usesFamilies,
        options,
        observer,
        isOnDisk = true,
        retention,
        limit
      )
      ReopenedStore(store, found.uploads)
    } catch {
      case e: Throwable =>
        engine.close()
        throw (e match {
          case e: StoreUnusableException => damaged(directory, e)
          case _ => e
        })
    }
  }

  /** Writes anew what an older release wrote in another way. Its position does not count: nobody read it, and it may be
    * of another batch.
    */
  private def renew(engine: RocksEngine, found: BaseRecords): Unit = {
    import OffsetsColumnFamily._
    engine.note(Seq(
      FormatKey -> encodeFormat(FormatVersion.current),
      MarkKey -> encodeMark(found.mark),
      PositionKey -> encodePosition(None)
    ))
  }

  /** The query may have been run without counting rows since the counts were written, and with it again. */
  private def counted(
      engine: RocksEngine,
      state: StoreState,
      usesFamilies: Boolean,
      countsRows: Boolean
  ): RowCounts =
    if (!countsRows) RowCounts.untracked
    else if (state.counts.isTracked) state.counts
    else engine.countRows(state.families, usesFamilies)

  /** Returns the records of the base store in `directory` from disk. A process that has the store open is not
    * disturbed.
    * @throws LocalRejectedException where it says nothing, or cannot be read
    */
  def inspect(directory: File, options: EngineOptions): BaseRecords =
    try {
      val engine = RocksEngine.openReadOnly(directory, options)
      try BaseRecords.read(engine)
      finally engine.close()
    } catch { case e: StoreUnusableException => throw damaged(directory, e) }

  private def damaged(directory: File, cause: StoreUnusableException): Throwable =
    new LocalRejectedException(
      RejectReason.Damaged,
      s"$directory cannot be read: ${cause.getMessage}",
      Some(cause)
    )

  /** Writes a version to the end that a process died over: all of it once more, from the file that the process
    * had made of it. Idempotent: the file has puts and deletes only.
    */
  private def finish(engine: RocksEngine, intent: Intent, observer: CommitObserver): Unit = {
    val redo = intent.redo.getOrElse(throw unfinished(engine.directory, intent.version, None))
    val batch =
      try FileBatch.open(new File(stagingOf(engine.directory), redo.file))
      catch {
        case e: StoreUnusableException =>
          throw unfinished(engine.directory, intent.version, Some(e))
      }
    observer.reached(CommitPhase.RedoStarted)
    engine.apply(batch, redo.records, intent)
    engine.flush()
  }

  private def unfinished(directory: File, version: Long, cause: Option[Throwable]): Throwable =
    new LocalRejectedException(
      RejectReason.Unfinished,
      s"$directory holds a part of version $version: the process died while it was written, and " +
        cause.fold("its writes were in memory")(_.getMessage),
      cause
    )

  /** Returns the directory for staged writes: in the base store's directory, where RocksDB leaves it alone. */
  private[statemark] def stagingOf(directory: File): File = new File(directory, "staged")

  /** Deletes the files to which earlier owners have spilled staged writes. */
  private def deleteStaged(directory: File): Unit =
    Option(stagingOf(directory).listFiles).toSeq.flatten.foreach { found =>
      Option(found.listFiles).toSeq.flatten.foreach(_.delete())
      found.delete()
    }

  private def otherStore(directory: File, found: StoreIdentity, wanted: StoreIdentity): Throwable =
    new LocalRejectedException(RejectReason.OtherStore, s"$directory holds $found and not $wanted.")

  private def otherMark(
      directory: File,
      found: Option[String],
      wanted: Option[String]
  ): Throwable = {
    def shown(mark: Option[String]) = mark.fold("no mark")(id => s"the mark $id")
    new LocalRejectedException(
      RejectReason.OtherHistory,
      s"$directory was made under ${shown(found)}, and the checkpoint has ${shown(wanted)}: the query's provider was " +
        "switched since, or in another copy of the checkpoint."
    )
  }
}
