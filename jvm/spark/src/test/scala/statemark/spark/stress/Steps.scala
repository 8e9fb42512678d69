package statemark.spark.stress

import java.util.concurrent.TimeUnit
import java.util.concurrent.atomic.AtomicReference
import java.util.concurrent.locks.LockSupport
import org.apache.spark.sql.catalyst.expressions.{UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.unsafe.types.UTF8String
import scala.util.Random
import statemark.common.{Causes, Clock, Interrupts}
import statemark.IsolationLevel
import statemark.spark.local.LoadSource
import statemark.spark.model._

/** Carries out actions on a world. What throws is a fault, but for what is said here to be none. */
private[stress] final class Steps(world: World, random: Random, other: OtherProcess) {
  import world.{current, families, head}
  private val spells = new SparkSpells(world, random)
  private val longRows = new LongRows(world, random)

  /** Whether the action could be done where the history stands. */
  def run(action: Action): Boolean = {
    val isDone = action match {
      case Action.Batch => done(recorded(batch(_ => ())))
      case Action.AbortedBatch => done(aborted())
      case Action.RepeatedBatch => done(batch(_ => ()))
      case Action.LeftIterators =>
        done(recorded(batch(leaveIterators(_, random.nextInt(20), Family.valueRow(0)))))
      case Action.LargeIterators => holdsLargeRows &&
        done(recorded(batch(leaveIterators(_, Steps.fullHeap, Steps.largeRow))))
      case Action.InterruptedTask => done(interruptedTask())
      case Action.AbortBesideIterator => done(abortBesideIterator())
      case Action.Maintenance => done(current.provider.doMaintenance())
      case Action.Restart => done(world.goOn(world.newRun(current.disk), isUnloaded = true))
      case Action.RestartBeside => done(world.goOn(world.newRun(current.disk), isUnloaded = false))
      case Action.OtherDisk => done(restart(world.newRun(world.anyDisk())))
      case Action.OtherName =>
        done(restart(world.newRun(current.disk, world.anotherName(current.disk))))
      case Action.KilledProcess =>
        done(restart(world.newRun(world.killedCopy(current.disk))))
      case Action.HeldHome => heldHome()
      case Action.RollBack => rollBack()
      case Action.Unload => world.earlier.nonEmpty && done(world.earlier.dequeue().close())
      case Action.ReadCommitted => hasRoom &&
        done(world.read(IsolationLevel.ReadCommitted, head.state, mayReopen = true))
      case Action.ReadOpen => hasRoom && done(readOpen())
      case Action.ReadDropped => hasRoom && done(readDropped())
      case Action.EndReader => world.readers.nonEmpty &&
        done(world.end(world.readers(random.nextInt(world.readers.size))))
      case Action.OtherFormat => done(otherFormat())
      case Action.FreshReader => done(world.readAside(world.settings.formatVersion))
      case Action.LookUp => done(world.query.lookUp())
      case Action.ChangedFormat => done(world.query.changeFormat())
      case Action.SparksVersions => spells.run() && done(goOnAfterSpark())
      case Action.SparksDamage => spells.run() && {
          val isCut = spells.readsDamaged()
          goOnAfterSpark()
          isCut
        }
      case Action.ShortJobs => done(shortJobs())
      case Action.LongRows => longRows.run()
    }
    if (random.nextInt(4) == 0) world.checkLocks()
    isDone
  }

  private def done(body: => Any): Boolean = {
    body: Unit
    true
  }

  private def hasRoom: Boolean = world.readers.size < Steps.MaxReaders

  // ---- batches

  private def recorded(version: Version): Unit = world.head = version

  private def batch(also: OpenStore => Unit): Version = {
    val open = world.open(current)
    try {
      world.write(open, random.nextInt(40))
      also(open)
      world.write(open, random.nextInt(10))
    } catch {
      case e: Throwable =>
        open.writer.foreach(_.abort())
        throw e
    }
    world.commit(open)
  }

  private def aborted(): Unit = {
    val open = world.open(current)
    world.write(open, random.nextInt(40))
    open.writer.foreach(_.abort())
  }

  /** Iterators that somebody asks for a row and forgets, under many writes of one key. */
  private def leaveIterators(open: OpenStore, times: Int, row: UnsafeRow): Unit = {
    val there = families.filter(f => open.state.isLive(f) && !f.multi)
    if (there.nonEmpty) {
      val family = there(random.nextInt(there.size))
      val store = open.writer.get
      for (_ <- 1 to times) {
        store.iterator(family.name).hasNext
        store.put(family.row(0), row, family.name)
      }
      if (times > 0) open.write(Op.Put(family.index, 0, random.nextInt(1000)), family)
    }
  }

  /** Where the limit is below a row, each write goes to disk, and a heap full of them takes minutes. */
  private def holdsLargeRows: Boolean =
    Steps.fullHeap > 0 && World.LargeLimits(world.settings.maxUncommittedBytes)

  // ---- interrupts and threads

  /** A task that is killed at some moment: it fails as one that was interrupted, or is done; and what its executor
    * holds of the store is not lost by it.
    */
  private def interruptedTask(): Unit = {
    val wasWarm = current.isWarm
    val atStep = random.nextInt(Steps.InterruptedSteps)
    val isBeside = random.nextBoolean()
    val wait = random.nextInt(Steps.MaxWaitNanos).toLong
    val ended = new AtomicReference[Either[Throwable, Version]]()
    def reached(step: Int): Unit =
      if (!isBeside && step == atStep) Thread.currentThread.interrupt()
    val task = new Thread(() =>
      ended.set(
        try {
          reached(0)
          val open = world.open(current)
          try for (step <- 1 until Steps.InterruptedSteps) {
              reached(step)
              world.write(open, 4)
            }
          catch {
            case e: Throwable =>
              open.writer.foreach(_.abort())
              throw e
          }
          Right(world.commit(open))
        } catch { case e: Throwable => Left(e) }
      )
    )
    task.start()
    if (isBeside) {
      Interrupts.pause(wait)
      task.interrupt()
    }
    task.join()
    ended.get match {
      case Right(version) => if (random.nextBoolean()) world.head = version
      case Left(e) if Steps.isInterrupt(e) => ()
      case Left(e) => throw e
    }
    if (wasWarm) {
      aborted()
      Check.same("source of the next load", LoadSource.Memory, current.provider.keeper.load.source)
    }
  }

  /** A task's failure ends its store while another of its threads reads: that one sees right rows, or an error. */
  private def abortBesideIterator(): Unit = {
    val open = world.open(current)
    world.write(open, 20)
    @volatile var isEnding = false
    val wrong = new AtomicReference(Option.empty[Throwable])
    val reader = new Thread(() =>
      try while (true) world.readAll(open)
      catch {
        case e: Disagreement if !isEnding => wrong.set(Some(e))
        case _: Throwable => ()
      }
    )
    reader.start()
    LockSupport.parkNanos(random.nextInt(Steps.MaxWaitNanos).toLong)
    isEnding = true
    open.writer.foreach(_.abort())
    reader.join()
    wrong.get.foreach(throw _)
  }

  // ---- runs and history

  private def restart(next: => Run): Unit = world.goOn(next, isUnloaded = random.nextBoolean())

  private def rollBack(): Boolean = head.version > 1 && {
    val back = 1 + random.nextInt(math.min(head.version - 1, Steps.MostBack).toInt)
    world.head = head.lineage(back)
    val disk = if (random.nextBoolean()) current.disk else world.anyDisk()
    done(restart(world.newRun(disk)))
  }

  /** A later process of ours comes, most often to a home that it had before. */
  private def goOnAfterSpark(): Unit = {
    val disk = if (random.nextInt(3) > 0) current.disk else world.anyDisk()
    restart(world.newRun(disk))
    aborted()
  }

  /** Runs of one or two batches, which end before maintenance comes. One after the other they leave no more changelogs
    * to the next than runs to which it comes.
    */
  private def shortJobs(): Unit = {
    val runs = Steps.ShortRuns + random.nextInt(3)
    for (_ <- 1 to runs) {
      world.goOn(world.newRun(current.disk), isUnloaded = true)
      recorded(batch(_ => awaitOverdue()))
      if (random.nextInt(3) == 0) recorded(batch(_ => ()))
    }
    world.goOn(world.newRun(current.disk), isUnloaded = true)
    val replayed = world.replayedAside()
    val most = world.settings.minDeltas + Steps.MostMore
    if (replayed > most)
      throw Disagreement(
        s"at most $most changelogs replayed after $runs short runs",
        s"$replayed; snapshots: ${world.files.snapshots.map(_._1).mkString(", ")}"
      )
  }

  /** Waits for the snapshot of what a run has loaded, where one is overdue, but not for ever: how many changelogs are
    * left is looked at when all runs are done.
    */
  private def awaitOverdue(): Unit = {
    def snapshots = world.files.snapshots.toSet
    def isMissing = !snapshots(head.version -> head.id)
    val end = Clock.system.nanos() + TimeUnit.SECONDS.toNanos(Steps.MostSeconds)
    val there = snapshots
    val since = head.lineage.takeWhile(v => v.version > 0 && !there(v.version -> v.id)).size
    while (since > world.settings.minDeltas && isMissing && Clock.system.nanos() < end)
      Interrupts.pause(TimeUnit.MILLISECONDS.toNanos(5))
  }

  /** Another process has a home, or looks whether somebody has, while a run starts. */
  private def heldHome(): Boolean = {
    val disk = current.disk
    world.earlier.dequeueAll(_.disk == disk).foreach(_.close())
    world.goOn(world.newRun(disk), isUnloaded = true)
    val homes = world.homesOf(disk)
    homes.nonEmpty && {
      val lock = world.lockOf(homes(random.nextInt(homes.size)))
      val isHeld = if (random.nextBoolean()) other.use(lock) else other.look(lock)
      try aborted()
      finally other.drop()
      isHeld
    }
  }

  // ---- readers

  private def readOpen(): Unit = {
    val open = world.open(current)
    try {
      world.write(open, random.nextInt(40))
      world.read(IsolationLevel.ReadUncommitted, open.state, mayReopen = false)
      world.write(open, random.nextInt(40))
    } catch {
      case e: Throwable =>
        open.writer.foreach(_.abort())
        throw e
    }
    if (random.nextBoolean()) world.head = world.commit(open)
    else open.writer.foreach(_.abort())
  }

  private def readDropped(): Unit = {
    val version = batch(_ => ())
    world.read(IsolationLevel.ReadUncommitted, version.state, mayReopen = true)
    if (random.nextBoolean()) world.head = version
  }

  /** A reader whose session has the other format is right, or fails. */
  private def otherFormat(): Unit =
    try world.readAside(3 - world.settings.formatVersion)
    catch {
      case e: Disagreement => throw e
      case _: Exception => ()
    }
}

private object Steps {
  val MaxReaders = 4
  val MostBack = 6
  val ShortRuns = 9
  val MostSeconds = 3L

  /** Batches of a short run: so many changelogs come to those after which no snapshot is due. */
  val MostMore = 2
  val InterruptedSteps = 10
  val MaxWaitNanos = 4000000
  private val LargestHeap = 1L << 30
  private val LargeBytes = 40 * 1024

  /** More large rows than the heap holds; none where it is so large that they would take minutes. */
  val fullHeap: Int = {
    val heap = Runtime.getRuntime.maxMemory
    if (heap < LargestHeap) (heap * 6 / 5 / LargeBytes).toInt else 0
  }

  lazy val largeRow: UnsafeRow = UnsafeProjection.create(Family.valueSchema)
    .apply(InternalRow(0, UTF8String.fromString("v" * LargeBytes))).copy()

  def isInterrupt(failure: Throwable): Boolean = Causes.of(failure).exists {
    case _: InterruptedException | _: java.io.InterruptedIOException => true
    case _: java.nio.channels.ClosedByInterruptException => true
    case _ => false
  }
}
