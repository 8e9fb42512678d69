package statemark.kafka.sim

import java.time.Duration
import java.util.concurrent.ConcurrentLinkedQueue
import java.util.concurrent.atomic.AtomicInteger
import org.apache.kafka.clients.admin.Admin
import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal
import statemark.common.Clock
import statemark.kafka.{RowConsumer, RowProducer}
import statemark.kafka.clients.{KafkaClients, Timer}
import statemark.kafka.conf.{SinkIdentity, SinkSettings}
import statemark.kafka.decision.QueryBatch
import statemark.kafka.driver.CheckpointMarker
import statemark.kafka.executor.{CommitAnswer, CommitOrder, CommitOrders, ExecutorSinks}
import statemark.kafka.log.{CommitLog, CommitRecord, CommitState}
import statemark.kafka.rows.{AttemptId, TransactionName}

/** Clients of one process, which end with it: producers that are killed send nothing more and end nothing. */
final class ProcessClients(
    settings: SinkSettings,
    timeoutMs: Option[Long] = None,
    way: Option[Way] = None
) extends KafkaClients {
  private val real = KafkaClients.of(
    settings.copy(kafka =
      settings.kafka ++ timeoutMs.map(ms => "transaction.timeout.ms" -> s"$ms") ++
        way.map("bootstrap.servers" -> _.bootstrap)
    )
  )
  private val producers = new ConcurrentLinkedQueue[RowProducer]
  private val admins = new ConcurrentLinkedQueue[Admin]
  @volatile private var isDead = false

  override def producer(transactionalId: String): RowProducer = {
    if (isDead) throw new IllegalStateException("The process is dead")
    val made = real.producer(transactionalId)
    producers.add(made)
    made
  }

  /** Consumers that were made. */
  val consumers = new AtomicInteger

  override def consumer(committedOnly: Boolean): RowConsumer = {
    consumers.incrementAndGet(): Unit
    real.consumer(committedOnly)
  }
  override def admin(): Admin = {
    val made = real.admin()
    admins.add(made)
    made
  }

  /** Idempotent. */
  def kill(): Unit = {
    isDead = true
    way.foreach(_.close())
    admins.asScala.foreach(_.close(Duration.ZERO))
    producers.asScala.foreach { producer =>
      try producer.close(Duration.ZERO)
      catch { case NonFatal(_) => () }
    }
  }
}

/** An executor. Ids are never given twice. */
final class SimExecutor(
    val id: String,
    settings: SinkSettings,
    deaths: Deaths,
    attemptsMatch: (Set[AttemptId], Set[AttemptId]) => Boolean = _ == _,
    timer: Timer = Timer.system,
    clock: Clock = Clock.system,
    val way: Option[Way] = None
) {
  private val clients = new ProcessClients(settings, way = way)
  @volatile private var dead = false

  val sinks: ExecutorSinks =
    new ExecutorSinks(_ => clients, clock, timer, deaths.observer(() => kill()), attemptsMatch)

  def isDead: Boolean = dead

  def kill(): Unit = {
    dead = true
    clients.kill()
  }
}

/** Calls executors as RPC would: who dies does not answer. */
final class SimOrders(executors: () => Seq[SimExecutor]) extends CommitOrders {
  override def commit(orders: Seq[CommitOrder]): Map[TransactionName, CommitAnswer] =
    orders.flatMap { order =>
      executors().find(e => e.id == order.executorId && !e.isDead).flatMap { executor =>
        try Some(order.transaction -> executor.sinks.commit(order))
        catch { case _: Died => None }
      }
    }.toMap

  override def abort(identity: SinkIdentity, batch: Long): Unit =
    executors().filterNot(_.isDead).foreach(_.sinks.abort(identity, batch))
}

/** As [[SimOrders]], but that some orders outlive the driver that gave them: nobody waits for their answers, and they are
  * carried out later.
  * @param isLate whether the next order is one of these
  */
final class LateOrders(executors: () => Seq[SimExecutor], isLate: () => Boolean)
    extends CommitOrders {
  private val real = new SimOrders(executors)
  private val waiting = new ConcurrentLinkedQueue[CommitOrder]

  override def commit(orders: Seq[CommitOrder]): Map[TransactionName, CommitAnswer] = {
    val (late, now) = orders.partition(_ => isLate())
    late.foreach(waiting.add)
    real.commit(now)
  }

  override def abort(identity: SinkIdentity, batch: Long): Unit = real.abort(identity, batch)

  /** Carries out some of what waits. */
  def carryOut(): Unit = Option(waiting.poll()).foreach(order => real.commit(Seq(order)): Unit)

  /** Carries it out between what is read of the commit topic and what is done with it. */
  def behindReads(log: CommitLog): CommitLog = new LogAround(log, afterOne = () => carryOut())
}

/** A commit log beside which something happens.
  * @param afterOne behind each reading of one identity; @param beforeAll before a reading of all
  */
final class LogAround(
    real: CommitLog,
    afterOne: () => Unit = () => (),
    beforeAll: () => Unit = () => ()
) extends CommitLog {
  override def read(identity: SinkIdentity, held: CommitState => Unit): CommitState = {
    val state = real.read(identity, held)
    afterOne()
    state
  }

  override def readAll[A](
      isWanted: SinkIdentity => Boolean,
      passing: Option[(CommitRecord, Long) => Unit]
  )(of: (SinkIdentity, CommitState) => A): Vector[A] = {
    beforeAll()
    real.readAll(isWanted, passing)(of)
  }
}

/** What a checkpoint holds: entries of the offset log and of the commit log, and the marker. ''Thread:'' any that runs a
  * query on it.
  * @param first the history that plans its batches: each history plans others under the same numbers
  */
final class SimCheckpoint(first: Int = 0) extends CheckpointMarker {
  @volatile private var current = first
  private var plans: Map[Long, Int] = Map.empty
  @volatile var committed: Set[Long] = Set.empty
  @volatile var isMarked: Boolean = false

  override def exists(): Boolean = isMarked
  override def write(): Unit = isMarked = true

  /** The batch that Spark runs next. */
  def next: Long = synchronized(if (committed.isEmpty) 0 else committed.max + 1)

  def isPlanned(batch: Long): Boolean = synchronized(plans.contains(batch))

  /** The history that plans its batches from now on. */
  def history: Int = current

  /** The history that has planned a batch; this one's, where none has. */
  def plan(batch: Long): Int = synchronized {
    plans = plans.updated(batch, plans.getOrElse(batch, current))
    plans(batch)
  }

  def commit(batch: Long): Unit = synchronized(committed += batch)

  /** Where the sources end, of a batch that is planned. */
  def planned(batch: Long): Option[QueryBatch] =
    synchronized(plans.get(batch)).map(of =>
      Simulation.fingerprint(batch + of * 1000000L).copy(batch = batch)
    )

  /** A copy, which plans another history from now on. */
  def copied(other: Int): SimCheckpoint = synchronized {
    val copy = new SimCheckpoint(other)
    copy.plans = plans
    copy.committed = committed
    copy.isMarked = isMarked
    copy
  }

  /** Removes what is known of a batch and of all behind it.
    * @param other the history that plans them anew; None where the offset log stays
    */
  def setBack(batch: Long, other: Option[Int]): Unit = synchronized {
    committed = committed.filter(_ < batch)
    other.foreach { of =>
      current = of
      plans = plans.filter(_._1 < batch)
    }
  }
}
