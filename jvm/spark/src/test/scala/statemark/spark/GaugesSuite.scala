package statemark.spark

import com.codahale.metrics.MetricRegistry
import java.util.concurrent.atomic.AtomicLong
import org.scalatest.funsuite.AnyFunSuite
import scala.jdk.CollectionConverters._
import statemark.common.Clock
import statemark.spark.metrics.{GaugeGroup, Gauges, Times}

class GaugesSuite extends AnyFunSuite {

  private final class Ticks extends Clock {
    val now = new AtomicLong(1L << 40)
    def pass(seconds: Long): Unit = now.addAndGet(seconds * 1000000000L): Unit
    override def nanos(): Long = now.get
    override def epochMs(): Long = now.get / 1000000
  }

  private final class Count(var value: Long = 0, var isUsed: Boolean = false) extends GaugeGroup {
    override def gauges: Seq[(String, () => Any)] =
      Seq("a" -> (() => value), "b" -> (() => -value))
  }

  private def shown(registry: MetricRegistry): Map[String, Any] =
    registry.getGauges.asScala.view.mapValues(_.getValue).toMap

  test("times are those of the period that runs and of the one before it") {
    val clock = new Ticks
    val times = new Times(clock)
    def ms(value: Long) = value * 1000000
    assert((times.count, times.perSecond, times.meanMs, times.maxMs) == ((0L, 0.0, 0.0, 0.0)))
    times.add(ms(30))
    times.add(ms(10))
    // Half a second is taken for a whole one.
    assert((times.count, times.perSecond, times.meanMs, times.maxMs) == ((2L, 2.0, 20.0, 30.0)))
    clock.pass(40)
    times.add(ms(5))
    assert((times.perSecond, times.meanMs, times.maxMs) == ((3.0 / 40, 15.0, 30.0)))
    clock.pass(25) // of the first period nothing is left
    times.add(ms(7))
    assert((times.perSecond, times.meanMs, times.maxMs) == ((2.0 / 35, 6.0, 7.0)))
    clock.pass(600)
    assert((times.count, times.perSecond, times.meanMs, times.maxMs) == ((4L, 0.0, 0.0, 0.0)))
  }

  test("groups are shown, those that come later as well, and stay under their name") {
    val gauges = new Gauges
    val registry = new MetricRegistry
    val first = gauges.group("x y.0")(new Count(1))
    gauges.serve(registry)
    gauges.group(Gauges.OfProcess)(new Count(2)): Unit
    assert(shown(registry) == Map("x y.0.a" -> 1, "x y.0.b" -> -1, "a" -> 2, "b" -> -2))
    // Of another run.
    assert(gauges.group("x y.0")(new Count(3)) eq first)
    first.value = 4
    assert(shown(registry)("x y.0.a") == 4)
  }

  test("of groups that are not used the oldest go where there are too many") {
    val gauges = new Gauges
    val registry = new MetricRegistry
    gauges.serve(registry)
    gauges.group("used")(new Count(isUsed = true)): Unit
    gauges.group("old")(new Count): Unit
    gauges.group("again")(new Count): Unit
    def fill(from: Int, until: Int): Unit =
      (from until until).foreach(i => gauges.group(s"g$i")(new Count): Unit)
    fill(3, Gauges.MaxGroups)
    assert(shown(registry).size == 2 * Gauges.MaxGroups)
    gauges.group("old")(new Count): Unit // now it is the newest
    fill(Gauges.MaxGroups, Gauges.MaxGroups + 1)
    assert(shown(registry).size == 2 * Gauges.MaxGroups)
    assert(shown(registry).contains("used.a"))
    assert(shown(registry).contains("old.a"))
    assert(!shown(registry).contains("again.a"))
  }
}
