package statemark.spark.provider

import org.slf4j.LoggerFactory
import scala.util.control.NonFatal
import scala.util.Using
import statemark.common.{Clock, StoreUnusableException}
import statemark.engine.{StoreState, VersionId}
import statemark.spark.load.StoreLoader
import statemark.spark.local.{
  FlushPolicy,
  LoadSource,
  LoadStats,
  LoadedStore,
  LocalCollector,
  ReusableStore,
  ReusableStores,
  StoreDirectory
}
import statemark.spark.memory.FreedMemory
import statemark.spark.metrics.EventCounts
import statemark.spark.process.BackgroundThreads
import statemark.spark.reads.ReadableStores
import statemark.transaction.CommitPhase

/** The store that a provider holds: brings it to the version that Spark asks for, in the cheapest way
  * that is right.
  *
  * ''Thread:'' the owner of the stamp of Spark's state machine; `generation` from any.
  */
private[spark] final class StoreLifecycle(context: ProviderContext, events: EventCounts) {
  private lazy val log = LoggerFactory.getLogger(classOf[StoreLifecycle])
  @volatile private var current: Option[LoadedStore] = None
  private var flushes: Option[FlushPolicy] = None
  private var live: Option[ReusableStore] = None
  private var superseded = Seq.empty[StoreDirectory]
  private val attempts = context.attempts
  // The damage may have come with the snapshot.
  private var wasDamaged = false
  private val staleSnapshots = context.staleSnapshots
  private var hasCommitted = false
  private var load_ = LoadStats.none
  private var confirmMs_ = 0L

  def generation: Option[LoadedStore] = current

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
    current.filter(_.store.isDamaged).foreach { damaged =>
      discard(damaged)
      wasDamaged = true
    }
    current.foreach(settlePrepared(_, at))
    current match {
      case Some(generation) if generation.store.base.at == at =>
        if (context.conf.rocksDb.resetStatsOnLoad) generation.store.resetStatistics()
      case Some(generation) =>
        catchUp(generation, at) match {
          case Some(figures) =>
            staleSnapshots.loaded()
            loaded(figures)
            flushes.foreach(_.noted())
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
    live.foreach(_.isKept = true)
    attempts.prepared(version)
  }

  /** Whether the prepared version is the attempt at it that counts. */
  def isCommittedAttempt(at: VersionId): Boolean = attempts.isPrepared(at)

  /** Whether a snapshot of `version`, which is about to be committed, must be replaced. */
  def hasStaleSnapshot(version: Long): Boolean = staleSnapshots.has(version)

  /** Leaves the store to a later process, where it outlives this one. What a reader made goes with it, and
    * what nobody has a use for.
    */
  def close(): Unit = {
    flushes.foreach(_.close())
    // Whatever ends the first two, an interrupt too, nobody comes to close the rest.
    try if (current.exists(_.home.isFresh) && !hasCommitted) current.foreach(discard)
    finally
      try flushLive()
      finally leave()
  }

  private def flushLive(): Unit =
    for (store <- live; parent <- context.homes.parent if !ReusableStores.isReplaced(parent, store))
      try store.flush()
      catch {
        case NonFatal(e) =>
          log.warn(
            s"${context.location.storeId} is left as of its last flush, as it cannot be flushed now.",
            e
          )
      }

  private def leave(): Unit = {
    val isReplaced = hide()
    val flushed = current.filter(_ => hasCommitted).map(_.store.flushed)
    val (useless, useful) =
      superseded.partition(home => home.noted.exists(noted => flushed.exists(noted <= _)))
    superseded = Nil
    try forget(if (isReplaced) _.discard() else _.close())
    finally {
      useless.foreach(_.delete())
      useful.foreach(_.release())
    }
  }

  /** A version that is asked for without an id in format v2 is the one that stands here, as in Spark's
    * provider; the checkpoint has no file without an id that could say otherwise.
    */
  private def identified(asked: VersionId): VersionId = {
    def here = current.toSeq.flatMap(g => g.store.prepared.map(_.state.at) ++ Seq(g.store.base.at))
    if (asked.checkpointId.isDefined || !context.conf.usesCheckpointIds) asked
    else here.find(_.version == asked.version).getOrElse(asked)
  }

  /** Confirms the prepared version if it is the one that is asked for, else drops it. */
  private def settlePrepared(generation: LoadedStore, at: VersionId): Unit =
    generation.store.prepared.foreach { prepared =>
      if (prepared.state.at == at && isCommittedAttempt(at)) confirm(generation)
      else if (generation.store.dropPrepared()) events.rewound()
    }

  private def confirm(generation: LoadedStore): Unit =
    try {
      confirmMs_ = Clock.timedMs(context.clock) {
        generation.store.confirm()
      }._2
      superseded.foreach(_.delete())
      superseded = Nil
      flushes.foreach(_.noted())
    } catch {
      case e: StoreUnusableException =>
        log.warn(s"${context.location.storeId} is restored.", e)
        discard(generation)
    }

  private def catchUp(generation: LoadedStore, at: VersionId): Option[LoadStats] =
    try Some(loading(_.catchUp(generation.store, at)))
    catch {
      case NonFatal(e) =>
        log.info(
          s"${context.location.storeId} cannot go from ${generation.store.base.at} to $at by changelogs " +
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
    context.observer.reached(CommitPhase.StoreLoaded)
  }

  private def loading[A](body: StoreLoader => A): A = Using.resource(context.newLoad())(body)

  private def begin(generation: LoadedStore, figures: LoadStats): Unit = {
    current = Some(generation)
    flushes = Some(new FlushPolicy(
      context.location.storeId,
      context.options.memtableBytes,
      generation,
      BackgroundThreads.background
    ))
    staleSnapshots.loaded()
    if (context.liveRead.isEmpty)
      ReadableStores.add(context.location.address, generation.store, isCommittedAttempt)
    context.homes.parent.foreach { parent =>
      val store = new ReusableStore(generation)
      if (hasCommitted) store.isKept = true
      ReusableStores.add(parent, store)
      live = Some(store)
    }
    loaded(figures)
    flushes.foreach(_.noted())
    context.localRoot.foreach(LocalCollector.tick(_, context.conf.own, context.clock))
  }

  private def loaded(figures: LoadStats): Unit = {
    load_ = figures
    if (figures.readsCheckpoint) events.reloaded()
  }

  /** Closes what is open, but keeps its files until another generation has confirmed a version: a zombie
    * may have asked for an older one.
    */
  private def retire(): Unit = current.foreach { generation =>
    if (generation.home.isDurable) {
      forget(_.store.close())
      superseded = superseded :+ generation.home
    } else discard(generation)
  }

  private def discard(generation: LoadedStore): Unit = forget(_ => generation.discard())

  private def forget(end: LoadedStore => Unit): Unit = {
    hide(): Unit
    val ended = current
    flushes.foreach(_.close())
    flushes = None
    ended.foreach(g => ReadableStores.remove(context.location.address, g.store))
    current = None
    ended.foreach { generation =>
      end(generation)
      FreedMemory.shared.noted()
    }
  }

  /** No other run starts from the store any more; whether another replaces it. */
  private def hide(): Boolean = {
    val isReplaced =
      for (store <- live; parent <- context.homes.parent) yield ReusableStores.remove(parent, store)
    live = None
    isReplaced.contains(true)
  }
}
