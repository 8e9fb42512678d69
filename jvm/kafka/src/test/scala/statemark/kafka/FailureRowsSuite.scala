package statemark.kafka

import org.scalatest.funsuite.AnyFunSuite
import scala.util.Using
import statemark.kafka.sim._

/** Each row of the failure table of docs/kafka, with brokers that are real and processes that are objects. */
class FailureRowsSuite extends AnyFunSuite {
  private lazy val brokers = TestBrokers.shared

  private def simulated(name: String, isLocal: Boolean = false)(run: Simulation => Unit): Unit = {
    val topic = brokers.topic(s"rows-$name")
    Using.resource(new Simulation(brokers, topic, new Deaths, isLocal = isLocal))(run)
  }

  private def judged(simulation: Simulation): Unit = {
    val judgement = simulation.judge()
    assert(judgement.isRight, judgement): Unit
  }

  test("batches without a failure are committed by their executors, and nothing is copied") {
    simulated("plain") { simulation =>
      simulation.runBatches(3)
      judged(simulation)
      assert(simulation.figures.map(_.copiedRows).sum == 0)
      assert(simulation.figures.forall(f => f.rows > 0 && f.transactions == 2))
      assert(simulation.reports.size == 1)
    }
  }

  test("local mode: rows and decision are one transaction") {
    simulated("plain-local", isLocal = true) { simulation =>
      simulation.runBatches(3)
      judged(simulation)
      assert(simulation.figures.map(_.copiedRows).sum == 0)
      assert(simulation.figures.forall(_.transactions == 1))
    }
  }
}
