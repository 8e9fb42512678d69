package statemark.spark.provider

import org.slf4j.LoggerFactory
import scala.util.control.NonFatal
import scala.util.Using
import statemark.TransactionalStore
import statemark.common.{Clock, DiskUnwritableException, StoreUnusableException}
import statemark.engine.{StoreState, VersionId}
import statemark.spark.load.StoreLoader
import statemark.spark.local.{
  FlushPolicy,
  LoadSource,
  LoadStats,
  LoadedStore,
  LocalCollector,
  LocalDisk,
  ReusableStore,
  ReusableStores,
  StoreDirectory
}
import statemark.spark.memory.FreedMemory
import statemark.spark.metrics.{EventCounts, OperatorFigures}
import statemark.spark.process.BackgroundThreads
import statemark.spark.reads.ReadableStores
import statemark.transaction.CommitPhase

/** The store that a provider holds: brings it to the version that Spark asks for, in the cheapest way
  * that is right.
  *
  * ''Thread:'' the owner of the stamp of Spark's state machine; `generation` from any.
  */
private[spark] final class StoreLifecycle(context: ProviderContext, events: EventCounts) {
  import StoreLifecycle._

  private lazy val log = LoggerFactory.getLogger(classOf[StoreLifecycle])
  @volatile private var current: Option[OpenStore] = None
  private var superseded = Seq.empty[StoreDirectory]
  private val attempts = context.attempts
  // The damage may have come with the snapshot.
  private var wasDamaged = false
  private val staleSnapshots = context.staleSnapshots
  private var hasCommitted = false
  private var isLoaded = false
  private var isToReport = false
  private var load_ = LoadStats.none
  private var confirmMs_ = 0L

  /** The store that is loaded. */
  def generation: Option[LoadedStore] = current.map(_.loaded)

  /** What the gauges of its operator show; None where no batch goes on from the store. */
  def figures: Option[OperatorFigures] = current.flatMap(_.figures)

  /** How the last load was served. */
  def load: LoadStats = load_

  /** How long the confirm took that came with the last load, 0 for none. */
  def confirmMs: Long = confirmMs_

  /** Confirms the prepared version, drops it, replays the changelogs in between, or loads the store. */
  def moveTo(asked: VersionId): Unit = {
    val at = identified(asked)
    attempts.begin(at)
    load_ = LoadStats.none
    confirmMs_ = 0
    if (current.exists(_.store.isDamaged)) {
      discard()
      wasDamaged = true
    }
    current.foreach(settlePrepared(_, at))
    current match {
      case Some(open) if open.store.base.at == at =>
        if (context.conf.rocksDb.resetStatsOnLoad) open.store.resetStatistics()
      case Some(open) =>
        catchUp(open.store, at) match {
          case Some(figures) =>
            staleSnapshots.loaded()
            loaded(figures)
            open.flushes.noted()
            isToReport = true
          case None => load(at)
        }
      case None => load(at)
    }
  }

  /** An empty store at `version`. */
  def empty(version: Long): Unit = {
    retire()
    begin(loading(_.empty(version)), LoadStats(LoadSource.New))
  }

  /** The store at `end`, from the snapshot at `start` and no other. */
  def restoreFrom(start: VersionId, end: VersionId): Unit = {
    retire()
    val (generation, figures) = loading(_.restoreFrom(start, end))
    begin(generation, figures)
  }

  /** A version was committed by this store; it is prepared now. */
  def committed(version: StoreState): Unit = {
    staleSnapshots.committed()
    hasCommitted = true
    current.flatMap(_.reusable).foreach(_.isKept = true)
    attempts.prepared(version)
    // Not as it is loaded: a reader may be who loads, or an attempt whose batch goes on elsewhere.
    if (isToReport)
      for (reports <- context.reports; open <- current) reports.opened(open.store.base.at)
    isToReport = false
  }

  /** Whether the prepared version is the attempt at it that counts. */
  def isCommittedAttempt(at: VersionId): Boolean = attempts.isPrepared(at)

  /** Whether a snapshot of `version`, which is about to be committed, must be replaced. */
  def hasStaleSnapshot(version: Long): Boolean = staleSnapshots.has(version, attempts.isShared)

  /** Leaves the store to a later process, where it outlives this one. What a reader made goes with it, and
    * what nobody has a use for.
    */
  def close(): Unit = {
    current.foreach(_.flushes.close())
    // Whatever ends the first two, an interrupt too, nobody comes to close the rest.
    try if (current.exists(_.loaded.home.isFresh) && !hasCommitted) discard()
    finally
      try flushForLater()
      finally leave()
  }

  private def flushForLater(): Unit =
    for {
      store <- current.flatMap(_.reusable)
      parent <- context.homes.parent if !ReusableStores.isReplaced(parent, store)
    }
      try store.flush()
      catch {
        case NonFatal(e) =>
          log.warn(
            s"${context.location.storeId} is left as of its last flush, as it cannot be flushed now.",
            e
          )
      }

  private def leave(): Unit = {
    val isReplaced = current.exists(hide)
    val flushed = current.filter(_ => hasCommitted).map(_.store.flushed)
    val (useless, useful) =
      superseded.partition(home => home.noted.exists(noted => flushed.exists(noted <= _)))
    superseded = Nil
    val left = current.map(_.loaded).filterNot(_ => isReplaced).flatMap(leftBy)
    try forget(if (isReplaced) _.discard() else _.close())
    finally {
      useless.foreach(_.delete())
      useful.foreach(_.release())
      // What has committed nothing was not reported, and where its homes are may have been refused.
      if (hasCommitted) context.reports.foreach(_.closed(left))
    }
  }

  /** Returns the version of a store that is on disk, and since when; None where none is. */
  private def leftBy(loaded: LoadedStore): Option[(VersionId, Long)] = {
    val base = loaded.store.base.at
    val flushed = loaded.store.flushed
    val at = if (flushed == base.version) base else VersionId(flushed, None)
    Option.when(flushed > 0)((at, StoreDirectory.usedAtMs(loaded.home.path)))
  }

  /** A version that is asked for without an id in format v2 is the one that stands here, as in Spark's
    * provider; the checkpoint has no file without an id that could say otherwise.
    */
  private def identified(asked: VersionId): VersionId = {
    def here =
      current.toSeq.flatMap(open => open.store.prepared.map(_.state.at) ++ Seq(open.store.base.at))
    if (asked.checkpointId.isDefined || !context.conf.usesCheckpointIds) asked
    else here.find(_.version == asked.version).getOrElse(asked)
  }

  /** Confirms the prepared version if it is the one that is asked for, else drops it. */
  private def settlePrepared(open: OpenStore, at: VersionId): Unit =
    open.store.prepared.foreach { prepared =>
      if (prepared.state.at == at && isCommittedAttempt(at)) confirm(open)
      else if (open.store.dropPrepared()) events.rewound()
    }

  private def confirm(open: OpenStore): Unit =
    try {
      confirmMs_ = Clock.timedMs(context.clock)(open.store.confirm())._2
      superseded.foreach(_.delete())
      superseded = Nil
      open.flushes.noted()
    } catch {
      case e: StoreUnusableException =>
        log.warn(s"${context.location.storeId} is restored.", e)
        discard()
      case e: DiskUnwritableException =>
        // A part of the version may be in memory. The home stays, and is opened again: now if there is room, else later.
        log.warn(s"${context.location.storeId} is opened again.", e)
        retire()
    }

  private def catchUp(store: TransactionalStore, at: VersionId): Option[LoadStats] =
    try Some(loading(_.catchUp(store, at)))
    catch {
      case NonFatal(e) =>
        log.info(
          s"${context.location.storeId} cannot go from ${store.base.at} to $at by changelogs " +
            s"alone and is loaded: $e"
        )
        None
    }

  private def load(at: VersionId): Unit = {
    retire()
    val held = superseded
    superseded = Nil
    val (generation, figures, rest) =
      Using.resource(context.newLoad(verifies = wasDamaged))(_.load(at, held))
    superseded = rest
    wasDamaged = false
    begin(generation, figures)
    isLoaded = true
    context.observer.reached(CommitPhase.StoreLoaded)
  }

  /** Tells whether the store was loaded since this was asked last. */
  def takeLoaded(): Boolean = {
    val was = isLoaded
    isLoaded = false
    was
  }

  private def loading[A](body: StoreLoader => A): A = Using.resource(context.newLoad())(body)

  private def begin(generation: LoadedStore, figures: LoadStats): Unit = {
    val reusable = context.homes.parent.map(_ => new ReusableStore(generation))
    if (hasCommitted) reusable.foreach(_.isKept = true)
    val flushes = new FlushPolicy(
      context.location.storeId,
      context.options.memtableBytes,
      generation,
      BackgroundThreads.background
    )
    current = Some(OpenStore(generation, flushes, reusable, context.figuresFor(generation)))
    staleSnapshots.loaded()
    if (context.liveRead.isEmpty)
      ReadableStores.add(context.location.address, generation.store, isCommittedAttempt)
    for (parent <- context.homes.parent; store <- reusable) ReusableStores.add(parent, store)
    loaded(figures)
    flushes.noted()
    isToReport = true
    context.localRoot.foreach { root =>
      LocalDisk.shared().uses(root.directory)
      LocalCollector.tick(root.directory, context.conf.own, context.clock)
    }
  }

  private def loaded(figures: LoadStats): Unit = {
    load_ = figures
    if (figures.readsCheckpoint) events.reloaded()
  }

  /** Closes what is open, but keeps its files until another generation has confirmed a version: a zombie
    * may have asked for an older one.
    */
  private def retire(): Unit = current.map(_.loaded.home).foreach { home =>
    if (home.isDurable) {
      forget(_.store.close())
      superseded = superseded :+ home
    } else discard()
  }

  private def discard(): Unit = forget(_.discard())

  private def forget(end: LoadedStore => Unit): Unit = current.foreach { open =>
    hide(open): Unit
    open.flushes.close()
    open.figures.foreach(_.closed(open.loaded))
    ReadableStores.remove(context.location.address, open.store)
    current = None
    end(open.loaded)
    FreedMemory.shared.noted()
  }

  /** Has no other run start from the store any more.
    * @return whether another replaces it
    */
  private def hide(open: OpenStore): Boolean = {
    for (parent <- context.homes.parent; store <- open.reusable)
      yield ReusableStores.remove(parent, store)
  }.contains(true)
}

private[spark] object StoreLifecycle {

  /** A store that is loaded, and what is at work for it.
    *
    * @param reusable the same as later runs and processes see it, where it outlives this one
    * @param figures of its operator, which count it as open
    */
  private final case class OpenStore(
      loaded: LoadedStore,
      flushes: FlushPolicy,
      reusable: Option[ReusableStore],
      figures: Option[OperatorFigures]
  ) {
    def store: TransactionalStore = loaded.store
  }
}
