package statemark.kafka

import org.scalatest.BeforeAndAfterAll
import org.scalatest.funsuite.AnyFunSuite
import statemark.kafka.conf.SinkPhase
import statemark.kafka.sim._

/** Row 15 of the failure table, at each phase. A broker of its own has few topics to recover when it starts again. */
class BrokerDeathsSuite extends AnyFunSuite with Simulated with BeforeAndAfterAll {
  override def prefix = "broker"
  override lazy val brokers: TestBrokers = new TestBrokers()

  override def afterAll(): Unit = brokers.close()

  /** Clients find no broker for some seconds. */
  private val brokerDies = Seq(
    SinkPhase.BeforeDecision,
    SinkPhase.DecisionSent,
    SinkPhase.TokenSent,
    SinkPhase.Copied
  ) ++ (if (sys.env.get("STATEMARK_MODES").contains("all"))
          Seq(SinkPhase.RowSent, SinkPhase.DecisionDurable, SinkPhase.CopyOpen)
        else Nil)

  for (phase <- brokerDies)
    test(s"row 15: the broker dies and comes back, at ${phase.name}") {
      var kills = 0
      val deaths = new Deaths().instead(phase) {
        kills += 1
        brokers.kill(1)
        brokers.start(1)
      }
      val copies = Set[SinkPhase](SinkPhase.CopyOpen, SinkPhase.Copied)(phase)
      lazy val simulation: Simulation = new Simulation(
        brokers,
        topic(s"15-${phase.name}"),
        deaths,
        messages = m => {
          if (copies && kills == 0) simulation.killExecutor()
          m
        }
      )
      running(simulation) { s =>
        s.runBatches(2)
        brokers.awaitNodes()
        judged(s)
        assert(kills == 1)
        assert(!copies || copied(s) > 0)
      }
    }
}
