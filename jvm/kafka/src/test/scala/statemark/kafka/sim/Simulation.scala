package statemark.kafka.sim

import java.util.concurrent.{Callable, ExecutionException, Executors}
import java.util.concurrent.atomic.AtomicLong
import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal
import statemark.common.Clock
import statemark.kafka.TestBrokers
import statemark.kafka.clients.{KafkaClients, Timer}
import statemark.kafka.conf.{SinkException, SinkIdentity, SinkSettings}
import statemark.kafka.decision.{
  BatchFigures,
  BatchFingerprint,
  BatchStart,
  Placement,
  PlanKind,
  QueryBatch,
  RecoveryReport,
  SourceEnds,
  SourceFingerprint
}
import statemark.kafka.driver.{BatchCoordinator, DriverSeams, SinkContext}
import statemark.kafka.executor.{CommitOrders, WriterSpec}
import statemark.kafka.log.TopicCommitLog
import statemark.kafka.rows.{AttemptId, AttemptMessage}

/** A query that writes to a topic, on drivers and executors that are objects, with brokers that are real.
  *
  * @param options besides the topic's; @param isLocal whether tasks write in the driver's process
  * @param attemptsMatch and `seams`: faults that a test plants
  * @param messages and `orders`: what happens between tasks and commit, and between driver and executors
  * @param workload what a try of a batch computes, by batch, nonce and number of partitions
  * @param failedTaskOneIn and `twinOneIn`: how often a task fails once, or runs twice
  * @param lateOrderOneIn how often an order is not answered, and carried out at some later step of whatever driver
  * @param checkpoint that it runs on, perhaps with others
  * @param nonces that tries are told apart by
  * @param ways makes each process a way of its own to the brokers; None for the straight one
  */
final class Simulation(
    brokers: TestBrokers,
    val topic: String,
    val deaths: Deaths,
    options: Map[String, String] = Map.empty,
    isLocal: Boolean = false,
    queryId: String = "",
    seams: DriverSeams = DriverSeams(),
    attemptsMatch: (Set[AttemptId], Set[AttemptId]) => Boolean = _ == _,
    partitions: Int = 6,
    executorCount: Int = 2,
    failedTaskOneIn: Int = 0,
    twinOneIn: Int = 0,
    lateOrderOneIn: Int = 0,
    random: java.util.Random = new java.util.Random(1),
    messages: Seq[AttemptMessage] => Seq[AttemptMessage] = m => m,
    orders: CommitOrders => CommitOrders = o => o,
    timer: Timer = Timer.system,
    executorClock: Clock = Clock.system,
    workload: (Long, Long, Int) => Try = Try.of,
    val checkpoint: SimCheckpoint = new SimCheckpoint,
    nonces: AtomicLong = new AtomicLong,
    ways: () => Option[Way] = () => None
) extends AutoCloseable {
  private val query = if (queryId.isEmpty) s"query-of-$topic" else queryId
  val settings: SinkSettings = SinkSettings.of(
    Map(
      "kafka.bootstrap.servers" -> brokers.bootstrap,
      "topic" -> topic,
      "commitTopic" -> s"$topic-commits",
      "kafka.transaction.timeout.ms" -> "60000",
      "kafka.linger.ms" -> "0",
      "kafka.reconnect.backoff.ms" -> "50",
      "kafka.reconnect.backoff.max.ms" -> "200"
    ) ++ options
  )
  val identity: SinkIdentity = SinkIdentity(query, settings.sink)
  private val threads = Executors.newFixedThreadPool(4)
  private val late = new LateOrders(() => synchronized(executors), () => chance(lateOrderOneIn))
  private val attempts = new AtomicLong
  private val names = new AtomicLong
  var executors: Vector[SimExecutor] = Vector.empty
  // Of every driver, and what writes in it, the last one first.
  private var drivers: List[(ProcessClients, Option[SimExecutor])] = Nil
  private var driverWay: Option[Way] = None
  private var current: Option[BatchCoordinator] = None

  /** Reports of every recovery, and figures of every batch. */
  var reports: Vector[RecoveryReport] = Vector.empty
  var figures: Vector[BatchFigures] = Vector.empty
  var lastTry: Option[Try] = None
  private var withoutRows = Set.empty[Long]

  /** Where the plan of the batch that runs places rows. */
  var placement: Option[Placement] = Some(Simulation.placement)

  /** Runs a batch as the driver of a query does; a process that dies is replaced, until the batch is through. */
  def runBatch(restarts: Int = 20): Unit = {
    val batch = checkpoint.next
    var left = restarts
    while (!checkpoint.committed(batch))
      try attemptBatch(batch)
      catch {
        case _: Died =>
          left -= 1
          if (left < 0) throw new IllegalStateException(s"Batch $batch does not get through")
          killDriver()
        case e: SinkException if e.isRetryable && left > 0 =>
          left -= 1
          restart()
      }
  }

  def runBatches(count: Int): Unit = (1 to count).foreach(_ => runBatch())

  /** What the commit topic says, read anew. */
  def commitLog: TopicCommitLog =
    new TopicCommitLog(KafkaClients.of(settings), brokers.admin, settings, Clock.system)

  /** Consumers that the driver has made. */
  def driverConsumers: Int = drivers.headOption.fold(0)(_._1.consumers.get)

  private def localExecutor: Option[SimExecutor] = drivers.headOption.flatMap(_._2)

  /** How a batch begins. */
  def start(batch: Long): BatchStart = {
    val isRerun = checkpoint.isPlanned(batch)
    checkpoint.plan(batch): Unit
    BatchStart(
      batch,
      query,
      checkpoint.planned(batch).map(grouped),
      isRerun,
      checkpoint.planned,
      placement = () => placement
    )
  }

  private def grouped(of: QueryBatch): QueryBatch =
    of.copy(ends = of.ends.map(_.copy(group = settings.kafkaConsumerGroup.getOrElse(""))))

  /** One try at a batch. A task that fails runs again, four times at most. */
  def attemptBatch(batch: Long, fingerprint: Option[QueryBatch] = None): Unit = {
    val coordinator = current.getOrElse(startDriver())
    val planned = start(batch)
    val plan =
      try coordinator.begin(planned.copy(planned = fingerprint.orElse(planned.planned)))
      finally if (coordinator.lastRecovery.exists(r => !reports.contains(r)))
          reports :+= coordinator.lastRecovery.get
    val tried = workload(batch, nonces.incrementAndGet(), partitions)
    lastTry = Some(tried)
    if (tried.counts.sum == 0) withoutRows += batch
    try {
      val written = runTasks(plan.writers, tried)
      figures :+= coordinator.commit(batch, messages(written))
      checkpoint.commit(batch)
    } catch {
      case NonFatal(e) =>
        coordinator.abort()
        throw e
    }
  }

  def runTasks(spec: WriterSpec, tried: Try): Seq[AttemptMessage] = {
    val work = (0 until partitions).map { partition =>
      (() => runTask(spec, tried, partition)): Callable[AttemptMessage]
    }
    val results = threads.invokeAll(work.asJava).asScala.toVector
    val done = results.map { result =>
      try Right(result.get())
      catch { case e: ExecutionException => Left(e.getCause) }
    }
    // What else failed, failed because the process had died.
    done.collect { case Left(e: Died) => e }.headOption.foreach(throw _)
    done.map(_.fold(throw _, m => m))
  }

  private def runTask(spec: WriterSpec, tried: Try, partition: Int): AttemptMessage = {
    var failures = Vector.empty[Throwable]
    var done = Option.empty[AttemptMessage]
    while (done.isEmpty) {
      val executor = anExecutor(partition + failures.size)
      try done = Some(runAttempt(spec, tried, partition, executor, mayFail = failures.isEmpty))
      catch {
        case e: Died if executor.isDead && !isLocal => failures :+= e
        case NonFatal(e) =>
          failures :+= e
          if (failures.size == 4) throw e
      }
    }
    if (chance(twinOneIn))
      try runAttempt(spec, tried, partition, anExecutor(partition + 1), mayFail = false): Unit
      catch { case NonFatal(_) => () }
    done.get
  }

  private def runAttempt(
      spec: WriterSpec,
      tried: Try,
      partition: Int,
      executor: SimExecutor,
      mayFail: Boolean
  ): AttemptMessage = {
    val attempt = attempts.incrementAndGet()
    val writer = executor.sinks.writer(spec, executor.id, partition, attempt)
    val count = tried.counts(partition)
    val failsAt = if (mayFail && chance(failedTaskOneIn)) count / 2 else -1
    try {
      (0 until count).foreach { at =>
        if (at == failsAt) throw new IllegalStateException("The task fails")
        writer.write(tried.row(topic, partition, attempt, at))
      }
      if (failsAt == count) throw new IllegalStateException("The task fails")
      writer.commit()
    } catch {
      case NonFatal(e) =>
        writer.abort()
        throw e
    }
  }

  private def chance(oneIn: Int): Boolean =
    oneIn > 0 && random.synchronized(random.nextInt(oneIn)) == 0

  private def anExecutor(at: Int): SimExecutor = synchronized {
    if (isLocal) localExecutor.get
    else {
      val alive = executors.filterNot(_.isDead)
      if (alive.size < executorCount) {
        val made = executor()
        executors :+= made
        made
      } else alive(at % alive.size)
    }
  }

  private def executor(): SimExecutor = new SimExecutor(
    names.incrementAndGet().toString,
    settings,
    deaths,
    attemptsMatch,
    timer,
    executorClock,
    ways()
  )

  /** A driver of a new run; executors that are there stay. */
  def startDriver(context: SinkContext => SinkContext = c => c): BatchCoordinator = {
    driverWay = ways()
    val clients = new ProcessClients(settings, way = driverWay)
    val local = Option.when(isLocal)(executor())
    drivers = (clients, local) :: drivers
    val kill = () => {
      clients.kill()
      local.foreach(_.kill())
    }
    val made = new BatchCoordinator(
      context(SinkContext(identity, settings, query, s"name-of-$topic")),
      orders(if (isLocal) CommitOrders.none else late),
      checkpoint,
      local.map(_.sinks),
      seams.copy(
        clientsOf = _ => clients,
        observer = phase => {
          late.carryOut()
          deaths.observer(kill).reached(phase)
        },
        log = real => late.behindReads(seams.log(real))
      )
    )
    current = Some(made)
    made
  }

  def coordinator: BatchCoordinator = current.getOrElse(startDriver())

  /** The ways of the processes that live, the driver's first. */
  def openWays: Vector[Way] = synchronized(
    driverWay.toVector ++ (executors ++ localExecutor).filterNot(_.isDead).flatMap(_.way)
  )

  /** The driver's process is gone; executors may live on for a while. */
  def killDriver(withExecutors: Boolean = false): Unit = {
    drivers.headOption.foreach(kill)
    current = None
    if (withExecutors) killExecutors()
  }

  private def kill(driver: (ProcessClients, Option[SimExecutor])): Unit = {
    driver._1.kill()
    driver._2.foreach(_.kill())
  }

  /** The first that lives. */
  def killExecutor(): Unit = executors.find(!_.isDead).foreach(_.kill())

  def killExecutors(): Unit = executors.foreach(_.kill())

  /** The query stops with an error, and starts again in the same processes. */
  def restart(): Unit = {
    current.foreach { c =>
      try c.close()
      catch { case NonFatal(_) => () }
    }
    current = None
  }

  /** Has the next run end what dead processes left open: readers wait for it. */
  def recover(): Unit = {
    killDriver()
    coordinator.recover(): Unit
  }

  /** What a reader sees now. */
  def judge(): Judgement = {
    Conditions.awaitMarkers(brokers, identity)
    Judgement.of(brokers.read(topic), checkpoint.committed -- withoutRows)
  }

  /** Ends transactions that attempts which do not count have left open: readers would wait for their timeout. */
  def endSurplus(): Unit =
    executors.filterNot(_.isDead).foreach(_.sinks.abort(identity, Long.MaxValue))

  override def close(): Unit = {
    restart()
    killExecutors()
    drivers.foreach(kill)
    threads.shutdownNow(): Unit
  }
}

object Simulation {

  /** A batch of a query that reads Kafka. */
  def fingerprint(batch: Long, namesContent: Boolean = true): QueryBatch = {
    val end = s"""{"in":{"0":$batch}}"""
    val source = SourceFingerprint.of("KafkaV2[Subscribe[in]]", end, namesContent)
    val ends = Vector(SourceEnds("0", "", Vector(Input -> Vector(0 -> batch))))
    QueryBatch(batch, PlanKind.OfInput, _ => BatchFingerprint(Vector(source)), ends)
  }

  /** The topic that it reads: brokers take offsets only of one that is there. */
  val Input = "in"

  /** Where a batch of six partitions places its rows. */
  val placement: Placement = Placement(isChosen = false, Vector(6), Vector(2))
}
