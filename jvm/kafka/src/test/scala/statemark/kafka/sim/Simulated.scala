package statemark.kafka.sim

import org.scalatest.Assertions
import scala.util.Using
import statemark.kafka.TestBrokers

/** What suites on the simulator share. */
trait Simulated extends Assertions {
  lazy val brokers: TestBrokers = TestBrokers.shared

  /** Begins the names of topics. */
  def prefix: String

  def topic(name: String, config: Map[String, String] = Map.empty): String =
    brokers.topic(s"$prefix-$name", config = config)

  def running(simulation: Simulation)(run: Simulation => Unit): Unit =
    Using.resource(simulation)(run)

  /** The committed batches are there once and whole, and nothing else is. */
  def judged(simulation: Simulation): Unit = {
    simulation.endSurplus()
    val judgement = simulation.judge()
    assert(judgement.isRight, judgement): Unit
  }

  def copied(simulation: Simulation): Long = simulation.figures.map(_.copiedRows).sum +
    simulation.reports.flatMap(_.completion).map(_.copiedRows).sum
}
