package statemark.spark.metrics

import com.codahale.metrics.{Gauge, MetricRegistry}
import scala.collection.mutable
import scala.reflect.ClassTag
import statemark.spark.process.JvmState

/** Gauges that come together, and go together. */
trait GaugeGroup {

  /** The gauges by name, each with what it shows: a number. Spark's reporters ask on threads of their own. */
  def gauges: Seq[(String, () => Any)]

  /** Tells whether something may still change what they show. */
  def isUsed: Boolean
}

/** The gauges of this process in Spark's metrics system, where the plugin brings them. Groups bear the names of queries
  * and sinks, not of runs: what restarts goes on with its gauges. Of those that are not used the oldest go where there are
  * too many.
  *
  * ''Thread:'' any.
  */
final class Gauges {
  private val groups = mutable.LinkedHashMap.empty[String, GaugeGroup]
  private var registries = Vector.empty[MetricRegistry]

  /** Shows all gauges in `registry`, those that come later as well. */
  def serve(registry: MetricRegistry): Unit = synchronized {
    registries :+= registry
    groups.foreach { case (name, group) => show(registry, name, group) }
  }

  /** Returns the group of a name, which it makes where there is none. */
  def group[A <: GaugeGroup: ClassTag](name: String)(make: => A): A = synchronized {
    val group = groups.remove(name).collect { case group: A => group }.getOrElse {
      val unused = groups.collect { case (other, of) if !of.isUsed => other }
      unused.take(groups.size + 1 - Gauges.MaxGroups).foreach(drop)
      val made = make
      registries.foreach(show(_, name, made))
      made
    }
    groups(name) = group // which makes it the newest
    group
  }

  private def show(registry: MetricRegistry, name: String, group: GaugeGroup): Unit =
    group.gauges.foreach { case (gauge, value) =>
      val shown: Gauge[Any] = () => value()
      registry.register(Gauges.nameOf(name, gauge), shown): Unit
    }

  private def drop(name: String): Unit = groups.remove(name).foreach { group =>
    for (registry <- registries; (gauge, _) <- group.gauges)
      registry.remove(Gauges.nameOf(name, gauge))
  }
}

object Gauges {

  private val shared = JvmState.ofApplication(new Gauges)

  /** Returns the gauges of this application in this process. */
  def current: Gauges = shared()

  /** The group whose gauges are of the process, and bear no name but their own. */
  val OfProcess: String = ""

  /** The groups that are kept at least, whether they are used or not. */
  private[spark] val MaxGroups = 100

  private def nameOf(group: String, gauge: String): String =
    MetricRegistry.name(group, gauge) // which leaves out what is empty
}
