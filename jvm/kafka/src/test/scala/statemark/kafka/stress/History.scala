package statemark.kafka.stress

import java.util.Random
import java.util.concurrent.{CountDownLatch, Executors, TimeUnit}
import org.apache.kafka.common.protocol.ApiKeys
import scala.collection.mutable
import scala.jdk.CollectionConverters._
import statemark.kafka.TestBrokers
import statemark.kafka.conf.{SinkException, SinkPhase}
import statemark.kafka.decision.LastDecision
import statemark.kafka.sim.{Conditions, SimCheckpoint, Way}

/** What a history came to.
  * @param refusals by cause, each justified by the history's record
  * @param counts of what happened
  */
private[kafka] final case class Outcome(
    faults: Seq[String],
    refusals: Seq[String],
    counts: Map[String, Int]
)

/** One random history of three applications on one topic, in rounds: in each some of them run batches side by side while
  * processes die and ways are cut, and behind it rows are deleted, or a checkpoint is copied or set back. In the end every
  * sink is brought to its end, and readers are asked.
  *
  * All that is random is drawn by the thread that runs the rounds, so that a seed is one history, but for what threads and
  * brokers do at the same time.
  */
private[kafka] final class History(brokers: TestBrokers, seed: Long, steps: Steps) {
  import History._

  private val random = new Random(seed * 0x9e3779b97f4a7c15L)
  private val places = 1 + random.nextInt(3)
  private val topic = brokers.topic(s"stress-$seed", places)
  private val ledger = new Ledger(brokers, topic)
  private val setup = Setup(
    places,
    tasks = 2 + random.nextInt(5),
    isLocal = random.nextInt(5) == 0,
    isRerun = random.nextInt(4) > 0,
    isAdaptive = random.nextInt(4) > 0,
    copyBytes = if (random.nextInt(3) > 0) 60 + random.nextInt(200) else Long.MaxValue
  )
  private val shared = new Shared(brokers, topic, ledger, setup, steps)
  private val sharing = Sharing.all(random.nextInt(Sharing.all.size))
  private var histories = 0
  private val threads = Executors.newCachedThreadPool()
  private val refusals = mutable.ArrayBuffer.empty[Refusal]
  private val counts = mutable.Map.empty[String, Int].withDefaultValue(0)
  private var apps = first()

  /** Those that others have taken the place of: they may have taken a sink before. */
  private var gone = Vector.empty[App]

  private def first(): Vector[App] = {
    val one = new SimCheckpoint(0)
    (0 until 3).toVector.map { at =>
      sharing match {
        case Sharing.Apart => app(at, s"app-$at", new SimCheckpoint(0))
        case Sharing.Together => app(at, "app", one)
        case Sharing.Copies =>
          app(at, if (at == 2) "app-2" else "app", if (at == 0) one else new SimCheckpoint(0))
      }
    }
  }

  private def app(at: Int, appId: String, checkpoint: SimCheckpoint): App =
    new App(s"${"ABC" (at)}", s"$appId-of-$seed", checkpoint, shared, random.nextLong())

  def run(): Outcome = {
    steps += s"$setup, $sharing"
    try {
      for (_ <- 1 to 3 + random.nextInt(4)) {
        round()
        standstill()
      }
      end()
      val faults = apps.map(_.identity).distinct.flatMap { identity =>
        val own = apps.filter(_.identity == identity)
        ledger.faults(
          identity,
          own.map(_.checkpoint).distinct,
          isWhole = own.exists(_.refusal.isEmpty),
          mayMix = setup.isRerun && ledger.hasGone(identity)
        )
      }
      Outcome(faults, causes.toSeq, counts.toMap)
    } finally {
      apps.foreach(_.close())
      threads.shutdownNow()
      Seq(topic, s"$topic-commits").filter(brokers.has).foreach(brokers.deleteTopic)
    }
  }

  // ---- rounds

  private def round(): Unit = {
    val able = shuffled(apps.filter(_.refusal.isEmpty))
    val some = able.filter(_ => random.nextInt(3) > 0)
    val running = if (some.isEmpty) able.take(1) else some
    steps += s"-- round of ${running.map(_.name).mkString(", ")}"
    val committed = new CountDownLatch(2)
    val silent = running.zip(running.drop(1)).collectFirst {
      case (app, next) if app.identity == next.identity && random.nextBoolean() => app
    }
    val plans = running.zipWithIndex.map { case (app, at) =>
      planned(app, at, running, committed, silent)
    }
    val turns = running.zip(plans).map { case (app, plan) =>
      threads.submit { () =>
        plan.begins.foreach(_.await())
        app.turn(
          plan.batches,
          plan.endsAtDeath,
          plan.killsExecutors,
          plan.lastBehind,
          since => takenBehind(app, since),
          () => committed.countDown()
        )
      }
    }
    turns.foreach(turn => refusals ++= awaited(turn))
    apps.foreach { app =>
      app.deaths.forget()
      app.simulation.openWays.foreach(_.mend())
      app.isDisturbed = false
    }
  }

  private def awaited[A](turn: java.util.concurrent.Future[A]): A =
    try turn.get(MostSeconds, TimeUnit.SECONDS)
    catch {
      case e: java.util.concurrent.ExecutionException => throw e.getCause
      case _: java.util.concurrent.TimeoutException =>
        throw new AssertionError(s"there is no end in $MostSeconds s:\n${Steps.dump}")
    }

  /** Whether another application may have taken the sink since. */
  private def takenBehind(app: App, since: Long): Boolean =
    (apps ++ gone).exists { other =>
      other != app && other.identity == app.identity && other.lastTaken > since
    }

  /** @param silent the application whose executors are cut off while the next one takes its sink over */
  private def planned(
      app: App,
      at: Int,
      running: Vector[App],
      committed: CountDownLatch,
      silent: Option[App]
  ): Plan = {
    val before = running.lift(at - 1)
    val isTaker = before.isDefined && before == silent
    val begins = before.filter(_ => isTaker || random.nextInt(3) > 0).map { other =>
      val phase = if (isTaker) SinkPhase.RowSent else anyOf(phasesOfWork)
      steps += s"${app.name} begins as ${other.name} is at ${phase.name}"
      other.passes(phase)
    }
    val isSilent = silent.contains(app)
    val isTold = !isTaker && !isSilent && random.nextInt(3) > 0 && planDeaths(app)
    if (isSilent) planSilence(app)
    else if (!isTaker && random.nextBoolean()) planDisturbance(app, committed)
    val plan = Plan(
      begins,
      (if (isTaker) 2 else 1) + random.nextInt(3),
      endsAtDeath = if (isTold) random.nextInt(4) > 0 else random.nextBoolean(),
      killsExecutors = random.nextInt(3) > 0,
      lastBehind = before.filter(_ => isTaker).map(_.turnEnds())
    )
    steps += s"${app.name}: ${plan.batches} batches, ends at a death: ${plan.endsAtDeath}"
    plan
  }

  /** Tells an application where to die.
    * @return whether it leaves a batch that is half done
    */
  private def planDeaths(app: App): Boolean = random.nextInt(4) match {
    case 0 | 1 =>
      die(app, anyOf(SinkPhase.all), 1 + random.nextInt(2))
      false
    // A batch that is decided, and with the readers in part.
    case 2 =>
      die(
        app,
        anyOf(Seq(SinkPhase.TokenSent, SinkPhase.TransactionCommitted)),
        1 + random.nextInt(2)
      )
      die(app, anyOf(Seq(SinkPhase.OrdersAnswered, SinkPhase.Fenced, SinkPhase.CopyOpen)), 1)
      true
    case _ =>
      die(app, anyOf(Seq(SinkPhase.TokenSent, SinkPhase.DecisionDurable)), 1)
      die(app, anyOf(Seq(SinkPhase.CopyCommitted, SinkPhase.Copied)), 1 + random.nextInt(2))
      true
  }

  private def die(app: App, phase: SinkPhase, nth: Int): Unit = {
    steps += s"${app.name} dies at ${phase.name}, time $nth"
    count("deaths planned")
    app.deaths.at(phase, nth): Unit
  }

  /** The executors are cut off for so long that their rows expire, and that an abort fails, while another application takes
    * the sink over; they are back while their tasks still try.
    */
  private def planSilence(app: App): Unit = {
    val ms = anyOf(Seq(7000L, 9000L, 11000L))
    steps += s"${app.name}: its executors are cut off for $ms ms with their first row"
    app.deaths.instead(SinkPhase.RowSent) {
      app.isDisturbed = true
      val cut = app.simulation.openWays.drop(1)
      cut.foreach(_.cut())
      steps += s"${app.name}: ${cut.size} executors are cut off"
      mendBehind(app, cut)(new CountDownLatch(1).await(ms, TimeUnit.MILLISECONDS): Unit)
    }
    count("executors cut off beside a takeover")
  }

  private def mendBehind(app: App, ways: Seq[Way])(wait: => Unit): Unit = threads.execute { () =>
    wait
    ways.foreach(_.mend())
    steps += s"${app.name}: ${ways.size} ways are mended"
  }

  /** A way is disturbed at a phase, until two batches are committed, or some time is over. */
  private def planDisturbance(app: App, committed: CountDownLatch): Unit = {
    val phase = anyOf(phasesOfWork ++ SinkPhase.all)
    val which = random.nextInt(3)
    val ms = anyOf(Seq(200L, 1500L, 4000L, 9000L))
    val kind = anyOf(kinds)
    val what = random.nextInt(5)
    val name = Seq("is cut", "is cut", "is held", s"loses $kind", s"delays $kind")(what)
    steps += s"${app.name}: way $which $name at ${phase.name} for $ms ms"
    app.deaths.instead(phase) {
      app.isDisturbed = true
      val ways = app.simulation.openWays
      // The driver, one executor, or all of them.
      val disturbed = if (which == 2) ways else ways.lift(which).toVector
      steps += s"${app.name} ${phase.name}: ${disturbed.size} ways: $name"
      disturbed.foreach(disturb(_, what, kind, ms))
      if (what < 3)
        mendBehind(app, disturbed)(committed.await(ms, TimeUnit.MILLISECONDS): Unit)
    }
    count(s"ways: ${name.takeWhile(_ != 'A')}")
  }

  private def disturb(way: Way, what: Int, kind: ApiKeys, ms: Long): Unit = what match {
    case 0 | 1 => way.cut()
    case 2 => way.hold()
    case 3 => way.lose(kind)
    case _ => way.delay(kind, ms)
  }

  // ---- between rounds

  private def standstill(): Unit = {
    judgeRefusals()
    random.nextInt(6) match {
      case 0 | 1 | 2 =>
        quiet()
        steps += s"-- ${ledger.delete(random)}"
        count("deletions")
      case 3 if sharing == Sharing.Copies => copyCheckpoint()
      case 4 if random.nextInt(3) == 0 => setBack()
      case _ => ()
    }
  }

  /** Waits until the brokers have ended whatever is open: what is committed shows then. */
  private def quiet(): Unit = awaited(threads.submit[Unit] { () =>
    apps.map(_.identity).distinct.foreach(Conditions.awaitNoOpenTransaction(brokers, _))
  })

  /** The second application goes on from a copy of the first one's checkpoint, and plans batches of its own. */
  private def copyCheckpoint(): Unit = {
    histories += 1
    val (from, to) = (apps(0), apps(1))
    steps += s"-- ${to.name} goes on from a copy of ${from.name}'s checkpoint, as history $histories"
    to.close()
    gone :+= to
    apps = apps.updated(1, app(1, "app", from.checkpoint.copied(histories)))
    count("copied checkpoints")
  }

  private def setBack(): Unit = {
    val able = apps.filter(a => a.refusal.isEmpty && a.checkpoint.next > 0)
    if (able.nonEmpty) {
      val of = anyOf(able)
      val batch = math.max(0, of.checkpoint.next - 1 - random.nextInt(2))
      val other = Option.when(random.nextBoolean()) {
        histories += 1
        histories
      }
      steps += s"-- the checkpoint of ${of.name} is set back to $batch, history $other"
      apps.filter(_.checkpoint == of.checkpoint).foreach(_.kill())
      of.checkpoint.setBack(batch, other)
      count("checkpoints set back")
    }
  }

  /** One application of each sink brings it to its end; the others are gone. */
  private def end(): Unit = {
    steps += "-- the end"
    apps.foreach(_.kill())
    apps.groupBy(_.identity).toSeq.sortBy(_._1.toString).foreach { case (_, own) =>
      // A copy that is refused may have hidden that another is not.
      own.filter(_.refusal.isEmpty).foreach { last =>
        refusals ++= last.turn(
          1,
          endsAtDeath = false,
          killsExecutors = true,
          None,
          _ => false,
          () => ()
        )
        last.kill()
      }
    }
    quiet()
    judgeRefusals()
  }

  // ---- refusals

  private val causes = mutable.ArrayBuffer.empty[String]

  /** What was refused is right by what the history has recorded; otherwise it is a fault. */
  private def judgeRefusals(): Unit = {
    apps.map(_.identity).distinct.foreach(Conditions.awaitMarkers(brokers, _))
    ledger.read()
    refusals.foreach { refusal =>
      val app = refusal.app
      val cause = refusal.failure match {
        case e if e.isRetryable || e.isInstanceOf[SinkException.Superseded] =>
          Option.when(takenBehind(app, refusal.since))("another run took over")
        case lost: SinkException.LostRows => rowsGone(app, lost)
        case _ if isTwoHistories(app) => Some("two histories met")
        case _ => Option.when(
            setup.isRerun && ledger.hasGone(app.identity)
          )("a rerun of rows that are gone")
      }
      causes += s"${refusal.failure.getClass.getSimpleName}: " + cause.getOrElse(
        throw new AssertionError(
          s"${app.name} was refused or fenced, and the record shows no reason",
          refusal.failure
        )
      )
    }
    refusals.clear()
  }

  private def isTwoHistories(app: App): Boolean =
    (ledger.histories(app.identity) + app.checkpoint.history).size > 1

  private def rowsGone(app: App, failure: SinkException): Option[String] =
    app.simulation.commitLog.read(app.identity).last match {
      case LastDecision.Decided(decision)
          if failure.values.get("batch").contains(s"${decision.batch}") =>
        val missing = ledger.missing(decision)
        steps += s"missing of batch ${decision.batch}: ${missing.mkString(" ")}"
        Option.when(missing.nonEmpty)("rows are gone")
      case _ => None
    }

  private def count(what: String): Unit = counts(what) += 1
  private def anyOf[A](of: Seq[A]): A = of(random.nextInt(of.size))
  private def shuffled[A](of: Vector[A]): Vector[A] = {
    val list = new java.util.ArrayList(of.asJava)
    java.util.Collections.shuffle(list, random)
    list.asScala.toVector
  }
}

private object History {

  /** What an application does in a round.
    * @param begins opens as it begins; None at once
    * @param lastBehind opens before its last batch; None at once
    */
  private final case class Plan(
      begins: Option[CountDownLatch],
      batches: Int,
      endsAtDeath: Boolean,
      killsExecutors: Boolean,
      lastBehind: Option[CountDownLatch]
  )

  val MostSeconds = 240L

  /** Those that a batch passes often, while rows are on their way. */
  val phasesOfWork: Seq[SinkPhase] =
    Seq(SinkPhase.RowSent, SinkPhase.AttemptFinished, SinkPhase.BeforeDecision, SinkPhase.TokenSent)

  val kinds: Seq[ApiKeys] = Seq(
    ApiKeys.PRODUCE,
    ApiKeys.INIT_PRODUCER_ID,
    ApiKeys.ADD_PARTITIONS_TO_TXN,
    ApiKeys.END_TXN,
    ApiKeys.FIND_COORDINATOR,
    ApiKeys.FETCH,
    ApiKeys.LIST_OFFSETS,
    ApiKeys.LIST_TRANSACTIONS,
    ApiKeys.METADATA
  )
}

/** What applications have in common. */
private[stress] sealed trait Sharing

private[stress] object Sharing {

  /** A sink each, on one topic and one commit topic. */
  case object Apart extends Sharing

  /** One checkpoint: what one leaves, another goes on with, also while the first lives. */
  case object Together extends Sharing

  /** Two of them have one sink, and the second's checkpoint is a copy, or its own. */
  case object Copies extends Sharing

  val all: Vector[Sharing] = Vector(Apart, Together, Together, Copies)
}
