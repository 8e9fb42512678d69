package statemark.kafka

import org.scalatest.funsuite.AnyFunSuite
import statemark.kafka.stress.{History, Stress}

/** A few of the random histories of `make stress-kafka`, so that it runs when it is needed. */
class StressSuite extends AnyFunSuite {

  test("random histories of three applications have no fault") {
    val faults = Stress.run("", first = 62, runs = 2, parallel = 2) { (seed, steps) =>
      new History(TestBrokers.shared, seed, steps).run()
    }
    assert(faults == 0)
  }
}
