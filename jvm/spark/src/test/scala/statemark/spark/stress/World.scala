package statemark.spark.stress

import java.nio.file.{Files, Path}
import java.util.UUID
import org.apache.hadoop.conf.Configuration
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.internal.SQLConf
import scala.collection.mutable
import scala.util.Random
import statemark.IsolationLevel
import statemark.spark.conf.StoreSettings
import statemark.spark.local.StoreDirectory
import statemark.spark.provider.{Checkout, StatemarkRocksDBStateStore}
import statemark.spark.reads.LiveRead
import statemark.spark.{CheckpointFiles, Line, Providers, StatemarkStateStoreProvider, TestFiles}
import statemark.spark.model._

/** One run of a query on the checkpoint: the provider that it has for the one store. */
private[stress] final class Run(
    val id: UUID,
    val disk: Path,
    val provider: StatemarkStateStoreProvider
) {

  /** It stands where the query stands, so that the next batch needs no load. */
  var isWarm = false
  var isClosed = false

  def close(): Unit = {
    isClosed = true
    provider.close()
  }
}

/** A reader beside the query, which reads on whatever happens to the store.
  *
  * @param run of which it was
  * @param open what it has to see
  * @param scan that it has begun
  * @param mayReopen whether new scans see the same
  */
private[stress] final class Reader(
    val run: Run,
    val provider: StateStoreProvider,
    val open: OpenStore,
    val scan: PendingScan,
    val mayReopen: Boolean
)

/** A checkpoint of one store, the query on it with all its runs, and what its rows ought to be. Everything is asked
  * through Spark's interface.
  */
private[stress] final class World(
    random: Random,
    val root: Path,
    val log: StepLog,
    other: OtherProcess
) extends AutoCloseable {
  val settings: Settings = World.draw(random)
  val families: IndexedSeq[Family] = settings.families
  private val wishes = new Wishes(settings)
  private val storeId = StateStoreId(root.resolve("state").toString, 0, 0)
  private val disks = mutable.Buffer(Files.createDirectories(root.resolve("disk0")))
  private var links = 0

  /** Versions of Spark's provider are, or were, in the checkpoint. */
  var isSharedWithSpark = false

  /** What the driver has recorded. */
  var head: Version = Version.first(families)
  var current: Run = newRun(disks.head)
  val earlier: mutable.Queue[Run] = mutable.Queue.empty
  val readers: mutable.Buffer[Reader] = mutable.Buffer.empty

  private var query_ = Option.empty[LiveQuery]

  /** A query beside the store, which starts when it is asked for. */
  def query: LiveQuery = query_.getOrElse {
    val made = new LiveQuery(random, root.resolve("query"))
    query_ = Some(made)
    made
  }

  // ---- runs

  def newRun(disk: Path): Run = newRun(disk, disk)

  def newRun(disk: Path, named: Path): Run = {
    val id = UUID.randomUUID()
    new Run(id, disk, provider(id, Some(named)))
  }

  def anyDisk(): Path = {
    if (disks.size < 3 && random.nextBoolean()) addDisk(): Unit
    disks(random.nextInt(disks.size))
  }

  private def addDisk(): Path = {
    val disk = Files.createDirectories(root.resolve(s"disk${disks.size}"))
    disks += disk
    disk
  }

  /** Another name of a directory. */
  def anotherName(disk: Path): Path =
    if (random.nextBoolean()) disk.resolve(".")
    else {
      links += 1
      Files.createSymbolicLink(root.resolve(s"link$links"), disk)
    }

  /** What is there of a local directory when its process is killed now. The lock files are new: to read them would
    * give up the locks.
    */
  def killedCopy(disk: Path): Path = {
    val copy = addDisk()
    copied(disk, copy)
    copy
  }

  // The owner goes on meanwhile: what it has just deleted is not there.
  private def copied(file: Path, to: Path): Unit =
    try
      if (Files.isDirectory(file)) {
        Files.createDirectories(to)
        Option(file.toFile.list).toSeq.flatten
          .foreach(name => copied(file.resolve(name), to.resolve(name)))
      } else if (file.getFileName.toString == StoreDirectory.LockName) Files.createFile(to): Unit
      else Files.copy(file, to): Unit
    catch { case _: java.nio.file.NoSuchFileException => () }

  /** @param isUnloaded whether the run before is closed first, and does not linger */
  def goOn(next: => Run, isUnloaded: Boolean): Unit = {
    if (isUnloaded) current.close() else earlier.enqueue(current)
    current = next
    if (earlier.size > 3) earlier.dequeue().close()
  }

  private def provider(
      runId: UUID,
      localDir: Option[Path],
      format: Int = settings.formatVersion
  ): StatemarkStateStoreProvider = {
    val local = localDir.map(d => s"${StoreSettings.Prefix}localDir" -> d.toString)
    val conf = Map("spark.sql.streaming.stateStore.checkpointFormatVersion" -> s"$format")
    init(new StatemarkStateStoreProvider, runId, conf ++ local)
  }

  /** Spark's own provider on the same files. */
  def sparksProvider(hasChangelogs: Boolean): StateStoreProvider = init(
    StateStoreProvider.create(Providers.sparksOwn),
    UUID.randomUUID(),
    Map(World.changelogsKey -> hasChangelogs.toString)
  )

  private def init[P <: StateStoreProvider](
      made: P,
      runId: UUID,
      conf: Map[String, String]
  ): P = {
    val sql = new SQLConf
    (settings.conf.sqlConfs ++ World.repairs ++ conf).foreach { case (key, value) =>
      sql.setConfString(key, value)
    }
    val hadoop = TestFiles.forTest(new Configuration(false))
    hadoop.set(Line.runIdKey, runId.toString)
    made.init(
      storeId,
      families.head.kind.schema,
      Family.valueSchema,
      families.head.kind.spec,
      settings.useFamilies,
      new StateStoreConf(sql),
      hadoop,
      families.head.multi,
      Some(new TestStateSchemaProvider)
    )
    made
  }

  // ---- tasks

  /** The store as the driver's last batch left it, which is compared. */
  def open(run: Run): OpenStore = {
    val opened = open(run.provider)
    run.isWarm = true
    opened
  }

  def open(provider: StateStoreProvider): OpenStore = {
    val force = random.nextInt(20) == 0
    val store = Line.getStore(provider, head.version, head.id, force)
    val opened = new OpenStore(head, store, Some(store), None)
    try {
      register(store, head.state)
      readAll(opened)
    } catch {
      case e: Throwable =>
        store.abort()
        throw e
    }
    opened
  }

  private def register(store: ReadStateStore, state: State): Unit = store match {
    case store: StateStore if settings.useFamilies =>
      families.tail.filter(state.isLive).foreach(OpenStore.create(store, _))
    case _ => ()
  }

  def readAll(open: OpenStore): Unit =
    families.filter(open.state.isLive).foreach { family =>
      open.openScan(family, Scan.All, family.multi && Line.hasStoreOf42).finish()
    }

  def write(open: OpenStore, times: Int): Unit = (1 to times).foreach { _ =>
    wishes.write(open.state, wish()).foreach { write =>
      val family = families(Wishes.familyOf(write))
      log += Wishes.show(write, family)
      open.write(write, family)
    }
  }

  private def wish(): Write = {
    val (family, key, value) = (random.nextInt(100), random.nextInt(1000), random.nextInt(1000))
    random.nextInt(100) match {
      case n if n < 60 => Op.Put(family, key, value)
      case n if n < 75 => Op.Remove(family, key)
      case n if n < 85 => Op.Merge(family, key, value)
      case n if n < 92 => Op.PutList(family, key, Seq(value, value + 1))
      case n if n < 96 => Op.DeleteRange(family, key, random.nextInt(1000))
      case _ => Op.CreateFamily(family)
    }
  }

  /** What the task tells the driver. */
  def commit(open: OpenStore, isSparks: Boolean = false): Version = {
    val writer = open.writer.get
    try Check.same("committed version", open.base.version + 1, writer.commit())
    catch {
      case e: Throwable =>
        writer.abort()
        throw e
    }
    if (settings.trackRows && !isSparks && countsRows(open.state))
      Check.same(
        "numKeys",
        open.state.count(families.filterNot(_.isInternal)),
        writer.metrics.numKeys
      )
    val id = writer.getStateStoreCheckpointInfo().stateStoreCkptId
    Version(
      open.base.version + 1,
      id,
      open.state,
      Some(open.base),
      Vector.empty,
      open.changesFamilies
    )
  }

  /** Spark's provider does not count the rows that a range delete removes. */
  private def countsRows(state: State): Boolean =
    !isSharedWithSpark || state.missedDeletes == ((0L, 0L))

  // ---- readers

  /** A reader beside the current run that has begun to read. */
  def read(level: IsolationLevel, staged: State, mayReopen: Boolean): Unit = {
    val made = LiveRead(level).during(provider(current.id, localDir = None))
    val store = made.getReadStore(head.version, head.id)
    val isLive = store match {
      case ours: StatemarkRocksDBStateStore => ours.checkedOut.isInstanceOf[Checkout.Beside]
      case _ => false
    }
    val state = if (isLive && level == IsolationLevel.ReadUncommitted) staged else head.state
    register(store, state)
    val open = new OpenStore(head, store, None, None)
    open.state = state
    val there = families.filter(state.isLive)
    val scan = open.openScan(there(random.nextInt(there.size)), Scan.All, multi = false)
    scan.advance(random.nextInt(5))
    readers += new Reader(current, made, open, scan, mayReopen || !isLive)
  }

  /** Reads what is left, and all anew. A reader whose run is unloaded may be told so. */
  def end(reader: Reader): Unit = {
    readers -= reader
    try {
      reader.scan.finish()
      if (reader.mayReopen) readAll(reader.open)
    } catch {
      case e: Throwable if reader.run.isClosed && World.isGone(e) => reader.scan.close()
    } finally {
      Line.release(reader.open.reader)
      reader.provider.close()
    }
  }

  /** Reads the head by a provider of its own, that has nothing local.
    * @param format of its session
    */
  def readAside(format: Int): Unit = aside(format)(_ => ())

  /** How many changelogs a process replays that has nothing local. */
  def replayedAside(): Int = aside(settings.formatVersion)(_.keeper.load.replayed)

  private def aside[A](format: Int)(after: StatemarkStateStoreProvider => A): A = {
    val made = provider(UUID.randomUUID(), localDir = None, format)
    try {
      val store =
        made.getReadStore(head.version, if (format == settings.formatVersion) head.id else None)
      try {
        register(store, head.state)
        readAll(new OpenStore(head, store, None, None))
      } finally Line.release(store)
      after(made)
    } finally made.close()
  }

  // ---- what has to hold after each step

  /** Every home that is in use is kept from other processes. */
  def checkLocks(): Unit =
    for (run <- current +: earlier.toSeq; home <- run.provider.keeper.generation.map(_.home))
      if (home.isDurable && !other.isLocked(lockOf(home.path.toPath)))
        throw Disagreement(s"${home.path} locked", "another process could take it")

  def lockOf(home: Path): Path = home.resolve(StoreDirectory.LockName)

  /** The files of the store in the checkpoint. */
  def storeDir: Path = Path.of(storeId.storeCheckpointLocation().toUri.getPath)

  def files: CheckpointFiles = CheckpointFiles.of(storeId)

  /** Homes below a directory. */
  def homesOf(disk: Path): Seq[Path] = StoreDirectory.all(disk.toFile).map(_.toPath)

  override def close(): Unit = {
    query_.foreach(_.close())
    readers.toSeq.foreach { reader =>
      reader.scan.close()
      Line.release(reader.open.reader)
      reader.provider.close()
    }
    earlier.foreach(_.close())
    current.close()
  }
}

private[stress] object World {
  val queryId: String = UUID.randomUUID().toString
  private val stateStore = "spark.sql.streaming.stateStore"
  private val changelogsKey = s"$stateStore.rocksdb.changelogCheckpointing.enabled"

  // Where a snapshot cannot be read, another way is tried: it must not be one of another history.
  private val repairs = Map(s"$stateStore.autoSnapshotRepair.enabled" -> "true")
  private val SmallLimits = Seq("1k", "1k", "2k", "4k", "16k")

  /** Limits of staged bytes that hold rows of some KB. */
  val LargeLimits: Set[String] = Set("1m", "auto")

  private def draw(random: Random): Settings = {
    def oneOf[A](choices: A*): A = choices(random.nextInt(choices.size))
    // The families of a draw are of its encoding; each encoder for Avro takes as long as a batch.
    val drawn = Iterator.continually(Settings.draw(random)).filter(_.encoding != "avro").next()
    drawn.copy(
      minDeltas = 1 + random.nextInt(5),
      codec = "lz4",
      maxUncommittedBytes = oneOf(SmallLimits ++ LargeLimits: _*),
      twoThreads = false
    )
  }

  /** Whether a failure says that what was read is not there any more. */
  def isGone(failure: Throwable): Boolean =
    statemark.common.Causes.of(failure).exists {
      case _: statemark.common.ViewClosedException => true
      case _: statemark.spark.errors.VersionGoneException => true
      case _ => false
    }
}
