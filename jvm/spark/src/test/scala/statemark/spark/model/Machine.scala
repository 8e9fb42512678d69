package statemark.spark.model

import java.io.File
import java.util.concurrent.{Callable, ExecutionException, ExecutorService}
import statemark.spark.{CheckpointFiles, Line, Providers, TestFiles}

import scala.collection.mutable

import org.apache.hadoop.conf.Configuration
import org.apache.spark.sql.execution.streaming.state._

/** Runs a history against a provider and against the model, step by step; the first disagreement
  * ends it. Everything is asked through Spark's public interface.
  *
  * @param newProvider makes provider objects, not yet initialized
  * @param second where some calls run when the settings ask for two threads, as with PySpark
  */
final class Machine(
    settings: Settings,
    traits: ProviderTraits,
    newProvider: () => StateStoreProvider,
    checkpoint: File,
    second: ExecutorService
) extends AutoCloseable {
  private val families = settings.families
  private val wishes = new Wishes(settings)
  private val storeId = StateStoreId(checkpoint.getPath, 0, 0)
  private val files = CheckpointFiles.of(storeId)

  private var provider = init()
  private val lingering = mutable.Queue.empty[StateStoreProvider]
  private var store = Option.empty[OpenStore]
  private val root = Version.first(families)
  private var head = root
  private val versions = mutable.ArrayBuffer(root)

  // Of Spark's provider. In format v1 its files are beside those of histories that were left.
  private val sparks = mutable.ArrayBuffer.empty[Version]
  private var misleadsSpark = false

  /** The steps carried out so far, one line each. */
  val log: mutable.ArrayBuffer[String] = mutable.ArrayBuffer.empty
  var counts: Counts = Counts()

  private def init(): StateStoreProvider = init(newProvider(), settings)

  private def init(made: StateStoreProvider, settings: Settings): StateStoreProvider = {
    val first = families.head
    made.init(
      storeId,
      first.kind.schema,
      Family.valueSchema,
      first.kind.spec,
      settings.useFamilies,
      settings.conf,
      TestFiles.forTest(new Configuration(false)),
      first.multi,
      Some(new TestStateSchemaProvider)
    )
    made
  }

  def run(op: Op): Unit = {
    val isOpening = op.isInstanceOf[Op.Open] || op.isInstanceOf[Op.Upgrade]
    // On Spark 4.0 the thread that reads is the one that may write.
    val onSecond =
      settings.twoThreads && log.size % 3 == 0 && (Line.hasStoreOf41 || !isOpening)
    if (!onSecond) step(op)
    else {
      val task: Callable[Unit] = () => step(op)
      try second.submit(task).get()
      catch { case e: ExecutionException => throw e.getCause }
    }
  }

  private def step(op: Op): Unit = op match {
    case write: Write => store.filter(_.writer.isDefined).foreach(this.write(_, write))
    case Op.Open(rewind, readOnly, force) => if (store.isEmpty) open(rewind, readOnly, force)
    case Op.Upgrade(force) => store.filter(_.writer.isEmpty).foreach(upgrade(_, force))
    case Op.Commit => store.filter(_.writer.isDefined).foreach(commit)
    case Op.Abort => store.foreach(abort)
    case Op.Reload(linger) => if (store.isEmpty) reload(linger)
    case Op.RollBack(batches) => if (store.isEmpty) rollBack(batches)
    case Op.SparkBatches(batches, hasChangelogs) =>
      if (store.isEmpty && traits.retriesMayDiffer) sparkBatches(batches, hasChangelogs)
    case Op.Maintenance =>
      log += "maintenance"
      provider.doMaintenance()
    case Op.CloseLingering(maintenance) if lingering.nonEmpty =>
      val old = lingering.dequeue()
      val safe = maintenance && (settings.formatVersion == 2 || !traits.retriesMayDiffer)
      log += s"close the lingering provider${if (safe) " after maintenance" else ""}"
      if (safe) old.doMaintenance()
      old.close()
    case Op.CloseLingering(_) =>
    case Op.AdoptAttempt(choice) => if (store.isEmpty) adopt(choice)
    case Op.ReadOld(choice, readStore) => readOld(choice, readStore)
    case Op.Replay(choice, readOnly) => replay(choice, readOnly)
    case read => store.foreach(this.read(_, read))
  }

  // Writes

  private def write(open: OpenStore, wish: Write): Unit = open.repeats match {
    case Some(next :: rest) =>
      open.repeats = Some(rest)
      apply(open, next)
    case Some(Nil) =>
    case None => wishes.write(open.state, wish).foreach(apply(open, _))
  }

  private def apply(open: OpenStore, write: Write): Unit = {
    val family = families(Wishes.familyOf(write))
    log += Wishes.show(write, family)
    counts = counts.write
    open.write(write, family)
  }

  // Reads

  private def read(open: OpenStore, op: Op): Unit = op match {
    case Op.Get(f, k) =>
      onKey(open, f, k) { (family, key) =>
        log += s"get ${family.name} ${family.show(key)}"
        val found = Option(open.readThrough(key).get(family.row(key), family.name))
        Check.same(
          "value",
          open.state.rows(family).get(key).map(_.head),
          found.map(row => Family.value(row.copy()))
        )
      }
    case Op.MultiGet(f, ks) if !Line.hasStoreOf42 => read(open, Op.Get(f, ks.head))
    case Op.MultiGet(f, ks) =>
      onKey(open, f, 0) { (family, _) =>
        val keys = ks.map(_ % family.keys.size)
        log += s"multiGet ${family.name} ${keys.map(family.show).mkString(" ")}"
        val found =
          Line.multiGet(open.readThrough(keys.head), keys.map(family.row).toArray, family.name)
        Check.same(
          "values",
          keys.map(open.state.rows(family).get(_).map(_.head)),
          found.map(row => Option(row).map(row => Family.value(row.copy()))).toSeq
        )
      }
    case Op.KeyExists(f, k) if !Line.hasStoreOf42 => read(open, Op.Get(f, k))
    case Op.KeyExists(f, k) =>
      onKey(open, f, k) { (family, key) =>
        log += s"keyExists ${family.name} ${family.show(key)}"
        val found = Line.keyExists(open.readThrough(key), family.row(key), family.name)
        Check.same("exists", open.state.rows(family).contains(key), found)
      }
    case Op.Values(f, k) if wishes.family(open.state, f, _.multi).isEmpty =>
      read(open, Op.Get(f, k))
    case Op.Values(f, k) =>
      onKey(open, f, k, _.multi) { (family, key) =>
        log += s"valuesIterator ${family.name} ${family.show(key)}"
        val found = open.readThrough(key).valuesIterator(family.row(key), family.name)
        Check.same(
          "values",
          open.state.rows(family).getOrElse(key, Vector.empty),
          found.map(row => Family.value(row.copy())).toVector
        )
      }
    case Op.ReadScan(f, scan, multi) =>
      openScan(open, f, scan, multi, "")(scan => scan.finish())
    case Op.OpenScan(slot, f, scan, multi) =>
      if (!open.scans.contains(slot)) {
        openScan(open, f, scan, multi, s"[$slot] = ") { scan => open.scans(slot) = scan }
      }
    case Op.AdvanceScan(slot, keys) =>
      open.scans.get(slot).foreach { scan =>
        log += s"[$slot] advances by $keys keys"
        scan.advance(keys)
      }
    case Op.FinishScan(slot) => open.scans.remove(slot).foreach(finishScan(slot, _))
    case Op.CloseScan(slot) =>
      open.scans.remove(slot).foreach { scan =>
        log += s"[$slot] closes early"
        scan.close()
      }
    case _ =>
      log += "read all"
      readAll(open)
  }

  private def onKey(
      open: OpenStore,
      wanted: Int,
      key: Int,
      suits: Family => Boolean = _ => true
  )(body: (Family, Int) => Unit): Unit =
    wishes.family(open.state, wanted, suits).foreach { family =>
      counts = counts.read
      body(family, key % family.keys.size)
    }

  private def openScan(open: OpenStore, wanted: Int, wish: Scan, multi: Boolean, prefix: String)(
      body: PendingScan => Unit
  ): Unit = {
    val (family, scan, all) = wishes.scan(open.state, wanted, wish, multi)
    log += prefix + Wishes.show(scan, family, all)
    counts = counts.read
    body(open.openScan(family, scan, all))
  }

  private def finishScan(slot: Int, scan: PendingScan): Unit = {
    log += s"[$slot] reads to its end"
    scan.finish()
  }

  private def readAll(open: OpenStore): Unit = {
    counts = counts.read
    families.filter(open.state.isLive).foreach { f =>
      open.openScan(f, Scan.All, f.multi && Line.hasStoreOf42).finish()
    }
    if (settings.useFamilies && Line.hasStoreOf42) {
      val names = families.filter(open.state.isLive).map(_.name).toSet
      Check.same("families", names, Line.familyNames(open.reader))
    }
  }

  // Life of a store

  /** Read stores of Spark 4.0 cannot be told what their column families hold. */
  private val hasReadStores = Line.hasStoreOf41 || !settings.useFamilies

  private def open(rewind: Boolean, wantsRead: Boolean, force: Boolean): Unit = {
    val readOnly = wantsRead && hasReadStores
    val base = if (rewind) head.parent.getOrElse(head) else head
    val retry = base ne head
    if (retry) counts = counts.copy(rewinds = counts.rewinds + 1)
    log += s"open $base${if (retry) " (a retry)" else ""}${if (readOnly) " to read" else ""}" +
      (if (force) ", force a snapshot" else "")
    val reader =
      if (readOnly) provider.getReadStore(base.version, base.id)
      else Line.getStore(provider, base.version, base.id, force)
    val writer = if (readOnly) None else Some(reader.asInstanceOf[StateStore])
    val same = settings.formatVersion == 1 && !traits.retriesMayDiffer
    val repeats = if (retry && same) Some(head.writes.toList) else None
    val opened = new OpenStore(base, reader, writer, repeats)
    store = Some(opened)
    Check.same("version", base.version, reader.version)
    Check.same("id", storeId, reader.id)
    register(reader, base.state)
  }

  private def register(store: ReadStateStore, state: State): Unit = store match {
    case store: StateStore if settings.useFamilies =>
      families.tail.filter(state.isLive).foreach(OpenStore.create(store, _))
    case _ =>
  }

  private def upgrade(open: OpenStore, force: Boolean): Unit = {
    log += s"upgrade to write${if (force) ", force a snapshot" else ""}"
    val base = open.base
    val writer = Line.upgrade(provider, open.reader, base.version, base.id, force)
    open.writer = Some(writer)
    register(writer, open.state)
  }

  private def endScans(open: OpenStore): Unit = {
    open.scans.toSeq.sortBy(_._1).foreach((finishScan _).tupled)
    open.scans.clear()
  }

  private def abort(open: OpenStore): Unit = {
    endScans(open)
    store = None
    open.writer match {
      case Some(writer) =>
        log += "abort"
        counts = counts.copy(aborts = counts.aborts + 1)
        writer.abort()
        Check.same("committed", false, writer.hasCommitted)
      case None =>
        log += "release"
        Line.release(open.reader)
    }
  }

  private def commit(open: OpenStore): Unit = {
    open.repeats.foreach(_.foreach(apply(open, _)))
    endScans(open)
    log += "commit"
    store = None
    counts = counts.copy(commits = counts.commits + 1)
    val writer = open.writer.get
    val base = open.base
    try Check.same("committed version", base.version + 1, writer.commit())
    catch { case e: Throwable => writer.abort(); throw e }
    Check.same("committed", true, writer.hasCommitted)
    Check.same("version of the store", base.version, writer.version)
    val info = writer.getStateStoreCheckpointInfo()
    Check.same("version in the checkpoint info", base.version + 1, info.batchVersion)
    val v2 = settings.formatVersion == 2
    Check.same("has a checkpoint id", v2, info.stateStoreCkptId.isDefined)
    if (v2) Check.same("base checkpoint id", base.id, info.baseStateStoreCkptId)
    if (versions.exists(_.id.exists(info.stateStoreCkptId.contains))) {
      throw Disagreement("a fresh checkpoint id", s"${info.stateStoreCkptId}")
    }
    head = Version(
      base.version + 1,
      info.stateStoreCkptId,
      open.state,
      Some(base),
      open.writes.toVector,
      open.changesFamilies
    )
    versions += head
    // Where Spark's provider went on from a range delete, each has counted in its own way.
    val isCounted = sparks.isEmpty || open.state.missedDeletes == ((0L, 0L))
    if (settings.trackRows && isCounted) checkCounts(writer.metrics, open.state)
  }

  private def checkCounts(metrics: StateStoreMetrics, state: State): Unit = {
    val (plain, internal) = families.partition(!_.isInternal)
    val (missed, missedInternal) = if (traits.countsRangeDeletes) (0L, 0L) else state.missedDeletes
    Check.same("numKeys", state.count(plain) + missed, metrics.numKeys)
    metrics.customMetrics
      .collectFirst { case (m, n) if m.name == "rocksdbNumInternalColFamiliesKeys" => n }
      .foreach(Check.same("internal keys", state.count(internal) + missedInternal, _))
  }

  private def reload(linger: Boolean): Unit = {
    log += s"a new provider object${if (linger) ", the old one lingers" else ""}"
    if (linger) lingering.enqueue(provider) else provider.close()
    provider = init()
  }

  /** Batches of other rows follow: the input was repaired. */
  private def rollBack(batches: Int): Unit =
    if (settings.formatVersion == 2 || traits.retriesMayDiffer) {
      val kept = head.lineage.filter(_.version > 0)
      kept.lift(batches).orElse(kept.lastOption).filter(_ ne head).foreach { target =>
        log += s"the query is rolled back to $target and starts again"
        counts = counts.copy(rollbacks = counts.rollbacks + 1)
        lingering.foreach(_.close())
        lingering.clear()
        provider.close()
        provider = init()
        head = target
      }
    }

  /** The query is stopped, goes on with Spark's provider, and comes back. */
  private def sparkBatches(batches: Seq[Seq[Write]], wantsChangelogs: Boolean): Unit = {
    val isV1 = settings.formatVersion == 1
    val stale = files.snapshots.map(_._1).filter(_ > head.version)
    // A changelog of Spark's beside a snapshot of Spark's: nothing tells that they are of two histories.
    val hasChangelogs =
      wantsChangelogs && !(isV1 && sparks.exists(version => stale.contains(version.version)))
    misleadsSpark ||= isV1 && hasChangelogs && stale.nonEmpty
    lingering.foreach(_.close())
    lingering.clear()
    provider.close()
    val spark = init(
      StateStoreProvider.create(Providers.sparksOwn),
      settings.copy(changelog = hasChangelogs)
    )
    try batches.foreach { writes =>
        log += s"Spark's provider writes a version on $head, changelogs $hasChangelogs"
        sparkBatch(spark, writes)
      }
    catch { case e: Disagreement if misleadsSpark => log += s"Spark's provider is misled: $e" }
    finally spark.close()
    provider = init()
  }

  private def isSparks(version: Version): Boolean = sparks.exists(_ eq version)

  private def sparkBatch(spark: StateStoreProvider, batch: Seq[Write]): Unit = {
    val base = head
    val writer = Line.getStore(spark, base.version, base.id, force = false)
    val open = new OpenStore(base, writer, Some(writer), None)
    try {
      register(writer, base.state)
      readAll(open)
      batch.flatMap(wishes.write(open.state, _)).foreach(apply(open, _))
      writer.commit(): Unit
    } catch {
      case e: Throwable =>
        writer.abort()
        throw e
    }
    val id = writer.getStateStoreCheckpointInfo().stateStoreCkptId
    head = Version(
      base.version + 1,
      id,
      open.state,
      Some(base),
      open.writes.toVector,
      open.changesFamilies
    )
    versions += head
    sparks += head
  }

  private def adopt(choice: Int): Unit = if (settings.formatVersion == 2) {
    val attempts = versions.filter(v => v.version == head.version && v.parent == head.parent)
    val chosen = attempts(choice % attempts.size)
    if (chosen ne head) {
      log += s"the query went on from attempt $chosen instead of $head"
      head = chosen
    }
  }

  // A second provider

  private def readOld(choice: Int, wantsReadStore: Boolean): Unit = {
    val readStore = wantsReadStore && hasReadStores
    val candidates = if (settings.formatVersion == 2) versions.toList else head.lineage
    val version = candidates(choice % candidates.size)
    log += s"a second provider reads $version${if (readStore) " by a read store" else ""}"
    aside { other =>
      if (readStore) other.getReadStore(version.version, version.id)
      else other.getStore(version.version, version.id)
    }(readStore, version)
  }

  private def aside(open: StateStoreProvider => ReadStateStore)(
      readStore: Boolean,
      version: Version
  ): Unit = {
    counts = counts.read
    val other = init()
    try {
      val opened = open(other)
      try {
        Check.same("version", version.version, opened.version)
        register(opened, version.state)
        readAll(new OpenStore(version, opened, None, None))
      } finally if (readStore) Line.release(opened) else opened.abort()
    } finally other.close()
  }

  private def replay(choice: Int, readOnly: Boolean): Unit = {
    val lineage = head.lineage
    val ends = lineage.filter(_.version > 0)
    if (ends.nonEmpty) {
      val end = ends(choice % ends.size)
      val changelogs = files.changelogs.toSet
      val replayable = end :: end.lineage.sliding(2).takeWhile { pair =>
        !pair.head.changesFamilies && !isSparks(pair.head) && changelogs(
          pair.head.version -> pair.head.id
        )
      }.flatMap(_.drop(1)).toList
      val snapshots = files.snapshots.toSet
      val starts = replayable.filter(v =>
        v.version > 0 && snapshots(v.version -> v.id) && (v.id.isEmpty || Line.hasStoreOf41) &&
          !(misleadsSpark && isSparks(v))
      )
      if (starts.nonEmpty) {
        val start = starts(choice / 7 % starts.size)
        log += s"a second provider replays $start .. $end${if (readOnly) " to read" else ""}"
        aside {
          case other: SupportsFineGrainedReplay =>
            Line.replay(other, start.version, end.version, readOnly, start.id, end.id)
          case other => throw Disagreement("SupportsFineGrainedReplay", other.getClass.getName)
        }(readOnly, end)
      }
    }
  }

  /** Ends whatever is open; what it throws is of interest only when nothing failed before. */
  override def close(): Unit =
    try store.foreach { open =>
        open.scans.values.foreach(_.close())
        open.writer.fold(Line.release(open.reader))(_.abort())
      }
    finally {
      lingering.foreach(_.close())
      provider.close()
    }
}

/** What a history amounted to. */
final case class Counts(
    ops: Int = 0,
    commits: Int = 0,
    aborts: Int = 0,
    rewinds: Int = 0,
    rollbacks: Int = 0
) {
  def read: Counts = copy(ops = ops + 1)
  def write: Counts = copy(ops = ops + 1)
}
