package statemark.kafka

import java.lang.reflect.{InvocationTargetException, Method, Proxy}
import org.apache.kafka.clients.admin.Admin
import org.apache.kafka.common.errors.TimeoutException
import org.scalatest.funsuite.AnyFunSuite
import scala.util.Using
import statemark.kafka.clients.KafkaClients
import statemark.kafka.conf.{SinkException, SinkObserver, SinkSettings}
import statemark.kafka.driver.{BatchCoordinator, BatchPlan, DriverSeams}
import statemark.kafka.executor.{ExecutorSinks, WriterSpec}
import statemark.kafka.rows.AttemptMessage
import statemark.kafka.sim._
import statemark.kafka.tools.SinkTools

/** Who may have a transactional id that two runs of a sink want, when one of them does not know that it is over. */
class LeasesSuite extends AnyFunSuite with Simulated {
  override def prefix = "leases"

  /** The executor `1` of a run, in a process of its own. The brokers do not hear of an abort while it is cut off.
    * @param made is told before each producer is made, and how many there were
    */
  private final class Executor(settings: SinkSettings, made: Int => Unit = _ => ()) {
    @volatile var isCutOff: Boolean = false
    @volatile private var producers = 0
    private val clients = new ProcessClients(settings)
    private val cut = new KafkaClients {
      override def producer(id: String): RowProducer = {
        made(producers)
        producers += 1
        guarded(clients.producer(id))
      }
      override def consumer(committedOnly: Boolean): RowConsumer = clients.consumer(committedOnly)
      override def admin(): Admin = clients.admin()
    }
    val sinks =
      new ExecutorSinks(_ => cut, new ManualClock, NoTimer, SinkObserver.none)

    private def guarded(real: RowProducer): RowProducer = {
      val handler = (method: Method, arguments: Array[AnyRef]) =>
        try {
          if (isCutOff && method.getName == "abortTransaction")
            throw new TimeoutException("no answer")
          method.invoke(real, Option(arguments).toSeq.flatten: _*)
        } catch { case e: InvocationTargetException => throw e.getCause }
      Proxy.newProxyInstance(
        getClass.getClassLoader,
        Array[Class[_]](classOf[RowProducer]),
        (_, method, arguments) => handler(method, arguments)
      ).asInstanceOf[RowProducer]
    }

    /** A whole attempt at a partition of two rows. */
    def attempt(spec: WriterSpec, topic: String, partition: Int, number: Long): AttemptMessage = {
      val writer = sinks.writer(spec, "1", partition, number)
      try {
        (0 until 2).foreach(at =>
          writer.write(tried(spec.batch).row(topic, partition, number, at))
        )
        writer.commit()
      } catch {
        case e: SinkException =>
          writer.abort()
          throw e
      }
    }

    def kill(): Unit = clients.kill()
  }

  private def tried(batch: Long) = Try(batch, 7, Vector(2, 2))

  private def begin(s: Simulation): WriterSpec = {
    val BatchPlan.Write(spec) = s.coordinator.begin(s.start(0)): @unchecked
    spec
  }

  private def committed(s: Simulation, messages: AttemptMessage*): Unit = {
    s.coordinator.commit(0, messages): Unit
    s.checkpoint.committed = Set(0)
    judged(s)
  }

  test("an executor of a run that is over leaves its id to the next, after it knew no outcome") {
    running(new Simulation(brokers, topic("over"), new Deaths)) { s =>
      val old = new Executor(s.settings)
      val first = begin(s)
      old.attempt(first, s.topic, 0, 1): Unit
      old.isCutOff = true
      old.sinks.abort(s.identity, Long.MaxValue)
      s.startDriver()
      val second = begin(s)
      val young = new Executor(s.settings)
      val a = young.attempt(second, s.topic, 0, 2)
      old.isCutOff = false
      val e = intercept[SinkException.Superseded](old.attempt(first, s.topic, 1, 3))
      assert(e.values("run") == "1" && e.values("laterRun") == "2")
      intercept[SinkException.Superseded](old.attempt(first, s.topic, 1, 4))
      val b = young.attempt(second, s.topic, 1, 5)
      committed(s, a, b)
      Seq(old, young).foreach(_.kill())
    }
  }

  test("a run that begins while an executor of the one before takes its id has it back") {
    running(new Simulation(brokers, topic("between"), new Deaths)) { s =>
      val young = new Executor(s.settings)
      var taken = Option.empty[WriterSpec]
      // Between what it reads and its initialization of the id.
      val old = new Executor(
        s.settings,
        made =>
          if (made == 1) {
            s.startDriver()
            taken = Some(begin(s))
            young.attempt(taken.get, s.topic, 0, 2): Unit
          }
      )
      val first = begin(s)
      old.attempt(first, s.topic, 0, 1): Unit
      old.isCutOff = true
      old.sinks.abort(s.identity, Long.MaxValue)
      old.isCutOff = false
      intercept[SinkException.Superseded](old.attempt(first, s.topic, 1, 3))
      val second = taken.get
      // Its id was taken; it has the later run, and so takes it back.
      val e = intercept[SinkException.FailedWrite](young.attempt(second, s.topic, 1, 4))
      assert(e.isRetryable)
      val messages =
        (0 to 1).map(partition => young.attempt(second, s.topic, partition, 5L + partition))
      committed(s, messages: _*)
      Seq(old, young).foreach(_.kill())
    }
  }

  test("an executor whose transaction timed out while its clock stood still writes the batch") {
    running(new Simulation(
      brokers,
      topic("asleep"),
      new Deaths,
      options = Map("kafka.transaction.timeout.ms" -> "1000"),
      timer = NoTimer
    )) { s =>
      val executor = new Executor(s.settings)
      val spec = begin(s)
      executor.attempt(spec, s.topic, 0, 1): Unit
      Conditions.awaitNoOpenTransaction(brokers, s.identity)
      val e = intercept[SinkException.FailedWrite](executor.attempt(spec, s.topic, 1, 2))
      assert(e.isRetryable)
      val messages =
        (0 to 1).map(partition => executor.attempt(spec, s.topic, partition, 3L + partition))
      committed(s, messages: _*)
      executor.kill()
    }
  }

  test("a later run that takes an id is no timeout, whatever state its transaction is in") {
    running(new Simulation(brokers, topic("reason"), new Deaths)) { s =>
      val old = new Executor(s.settings)
      val first = begin(s)
      old.attempt(first, s.topic, 0, 1): Unit
      s.startDriver()
      val second = begin(s)
      val young = new Executor(s.settings)
      young.attempt(second, s.topic, 0, 2): Unit
      // The last transaction of the id is an aborted one, as that which a broker has ended is.
      young.sinks.abort(s.identity, Long.MaxValue)
      Conditions.awaitNoOpenTransaction(brokers, s.identity)
      val e = intercept[SinkException.Superseded](old.attempt(first, s.topic, 1, 3))
      assert(e.values("laterRun") == "2")
      Seq(old, young).foreach(_.kill())
    }
  }

  test("a driver that tries again after its sink was taken, or removed, does not take it back") {
    for (isRemoved <- Seq(false, true))
      running(new Simulation(brokers, topic(s"retry-$isRemoved"), new Deaths)) { s =>
        s.runBatch()
        s.restart()
        s.runBatch()
        val old = s.coordinator
        old.begin(s.start(2)): Unit
        old.abort()
        if (isRemoved) {
          s.checkpoint.isMarked = false // as where the user names the sink by `txnAppId`
          Using.resource(SinkTools.open(s.settings))(tools =>
            tools.forget(tools.one(s.identity.toString)._1, isGivenUp = true, isWhole = true): Unit
          )
        } else s.startDriver().begin(s.start(2)): Unit
        val e = intercept[SinkException.Superseded](old.begin(s.start(2)))
        assert(!e.isRetryable)
        old.close()
      }
  }

  test("of two drivers that begin a new sink at once, one is told that the other has it") {
    val name = topic("newcomers")
    val first = new Simulation(brokers, name, new Deaths, queryId = "two-newcomers")
    // This driver has read by then that nobody has the sink.
    val seams = DriverSeams(log = new LogAround(_, beforeAll = () => first.runBatch()))
    val second =
      new Simulation(brokers, name, new Deaths, queryId = "two-newcomers", seams = seams)
    running(first) { one =>
      running(second) { two =>
        intercept[SinkException.Superseded](two.startDriver().begin(two.start(0)))
        judged(one)
      }
    }
  }

  test("of two drivers with ids of their own that take a sink over at once, one can decide") {
    val name = topic("prefixes")
    val first = new Simulation(brokers, name, new Deaths, queryId = "two-prefixes")
    var reads = 0
    var between = () => ()
    val seams = DriverSeams(log =
      new LogAround(
        _,
        afterOne = () => {
          reads += 1
          // The other's id is fenced by now, and this run is not noted yet.
          if (reads == 2) between()
        }
      )
    )
    val second = new Simulation(
      brokers,
      name,
      new Deaths,
      queryId = "two-prefixes",
      options = Map("transactionalIdPrefix" -> "other"),
      seams = seams
    )
    running(first) { one =>
      running(second) { two =>
        one.runBatch()
        two.checkpoint.committed = Set(0)
        two.checkpoint.isMarked = true
        var written = Option.empty[(BatchCoordinator, Seq[AttemptMessage])]
        between = () => {
          val again = one.startDriver()
          val BatchPlan.Write(spec) = again.begin(one.start(1)): @unchecked
          written = Some((again, one.runTasks(spec, Try.of(1, 100, 6))))
        }
        two.runBatch()
        val (again, messages) = written.get
        intercept[SinkException.Superseded](again.commit(1, messages))
        judged(two)
      }
    }
  }
}
