package statemark.spark.live

import org.scalatest.funsuite.AnyFunSuite
import statemark.common.Position

/** Whether a position includes a bound, by the JSON that sources write. */
class PositionBoundSuite extends AnyFunSuite {
  private def at(offsets: String*) =
    Position.ofPlaces(offsets.map(o => Option(o).filter(_.nonEmpty)))

  private def includes(position: Position, bound: Position) =
    PositionBound.includes(position, bound)

  test("files and rates: one number") {
    assert(includes(at("""{"logOffset":5}"""), at("""{"logOffset":5}""")))
    assert(includes(at("""{"logOffset":5}"""), at("""{"logOffset":4}""")))
    assert(!includes(at("""{"logOffset":5}"""), at("""{"logOffset":6}""")))
    assert(includes(at("12"), at("7")) && !includes(at("7"), at("12")))
    assert(includes(at("9007199254740993"), at("9007199254740993")))
    assert(!includes(at("9007199254740992"), at("9007199254740993")), "no rounding")
  }

  test("Kafka: every partition of every topic that the bound names") {
    val here = at("""{"a":{"0":10,"1":20},"b":{"0":3}}""")
    assert(includes(here, at("""{"a":{"0":10,"1":19}}""")))
    assert(!includes(here, at("""{"a":{"0":11,"1":19}}""")))
    assert(!includes(here, at("""{"a":{"2":0}}""")), "a partition that was never read")
    assert(!includes(here, at("""{"c":{"0":0}}""")))
  }

  test("several sources in their order; none asked of one that has given nothing") {
    assert(includes(at("3", "4"), at("3", "")))
    assert(!includes(at("3", ""), at("3", "0")))
    assert(!includes(at("3"), at("3", "4")) && !includes(at("3", "4"), at("3")))
  }

  test("an offset that is no JSON is included in itself alone") {
    assert(includes(at("x-7"), at("x-7")) && !includes(at("x-8"), at("x-7")))
  }
}
