package statemark.kafka.compaction

import java.util.Collections
import java.util.concurrent.ThreadLocalRandom
import org.apache.kafka.clients.admin.{Admin, AlterConfigOp, ConfigEntry}
import org.apache.kafka.common.config.ConfigResource
import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal
import statemark.kafka.clients.{TopicChecks, TopicLookup}
import statemark.kafka.conf.SinkException

/** `min.compaction.lag.ms` of a topic, which keeps the cleaner from records that a repair has not seen yet.
  *
  * While it is held, the value says what it was before, so that whoever comes after a repair that was killed can put that
  * back, and by whom it is held, so that a repair notices when it was put back and held again meanwhile. A held lag is longer
  * than time itself: the cleaner takes no record, however old its timestamp.
  */
private[compaction] final class CompactionLag(admin: Admin, topic: String, rule: VersionRule) {
  import CompactionLag._

  /** What it is now. */
  def current: Lag = TopicChecks.configOf(admin, topic) match {
    case Right(config) => Lag.of(config.get(Setting).flatMap(_.toLongOption).getOrElse(0L))
    case Left(why) =>
      throw new SinkException.UnfitCluster(
        s"It is not known whether the cleaner of topic $topic stands still",
        why,
        "Grant DESCRIBE_CONFIGS on the topic, if it is there",
        Map("topic" -> topic)
      )
  }

  /** Holds the cleaner until [[putBack]]. Where somebody holds it already, this hold takes the place of that one, who will
    * notice.
    * @throws SinkException.RefusedSetting where that one goes by another rule: what lies under its copies is not found by this
    */
  def hold(): Hold = {
    val (before, by, isInherited) = current match {
      case held: Lag.Held if held.rule.exists(_ != Lag.ruleOf(rule)) =>
        throw new SinkException.RefusedSetting(
          s"Topic $topic cannot be repaired by ${rule.name} now",
          "a repair by another strategy, or header, has raised its lag, and may have left copies on better records",
          s"Run that one again first, to its end. Where it has written nothing, set the lag by hand; it was ${held.before.ms}",
          Map("topic" -> topic, Setting -> held.ms.toString)
        )
      case held: Lag.Held => (held.before, held.rule, true)
      case plain: Lag.Plain =>
        (if (isOwn) plain else plain.copy(isOwn = false), Some(Lag.ruleOf(rule)), false)
    }
    val held = Lag.Held(before, Lag.newHold(by))
    try {
      set(AlterConfigOp.OpType.SET, held.ms)
      await(_ == held)
    } catch {
      // Nothing is written yet, by this repair.
      case NonFatal(e) =>
        if (!isInherited)
          try putBack(held): Unit
          catch { case NonFatal(also) => e.addSuppressed(also) }
        throw e
    }
    Hold(held, isInherited)
  }

  /** Sets the lag to what it was before it was held.
    * @return false where somebody has set another value meanwhile, which stays
    */
  def putBack(held: Lag.Held): Boolean = current == held && {
    val before = held.before
    set(if (before.isOwn) AlterConfigOp.OpType.SET else AlterConfigOp.OpType.DELETE, before.ms)
    // It is done; brokers that are behind will hear of it.
    try await(_ != held)
    catch { case _: NotHeard => () }
    true
  }

  /** Waits until the broker that is asked has heard of a change, as the others do at about that time. */
  private def await(isDone: Lag => Boolean): Unit =
    TopicLookup.again(_.isInstanceOf[NotHeard])(if (!isDone(current)) throw new NotHeard(topic))

  private def set(op: AlterConfigOp.OpType, ms: Long): Unit = {
    val change = new AlterConfigOp(new ConfigEntry(Setting, ms.toString), op)
    admin.incrementalAlterConfigs(
      Map(resource -> List(change).asJava.asInstanceOf[java.util.Collection[AlterConfigOp]]).asJava
    ).all().get(): Unit
  }

  private def isOwn: Boolean = admin.describeConfigs(Collections.singleton(resource))
    .values.get(resource).get().entries.asScala
    .exists(e =>
      e.name == Setting && e.source == ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG
    )

  private def resource = new ConfigResource(ConfigResource.Type.TOPIC, topic)
}

private[compaction] object CompactionLag {
  val Setting = "min.compaction.lag.ms"

  private final class NotHeard(topic: String)
      extends IllegalStateException(s"$Setting of topic $topic is not what it was set to")

  /** @param isInherited whether a repair before this one held it, and did not put it back */
  final case class Hold(lag: Lag.Held, isInherited: Boolean)

  sealed trait Lag {
    def ms: Long

    /** The lag between repairs. */
    def beforeMs: Long
  }

  object Lag {

    /** @param isOwn whether the topic has it itself, not from the brokers' defaults */
    final case class Plain(ms: Long, isOwn: Boolean = true) extends Lag {
      override def beforeMs: Long = ms
    }

    /** @param hold a number of whoever holds it, and by which rule */
    final case class Held(before: Plain, hold: Int) extends Lag {

      /** The number of its rule; None where nobody has said which. */
      def rule: Option[Int] = Some(hold / HoldsOfRule).filter(_ > 0)

      override def beforeMs: Long = before.ms

      override def ms: Long =
        (if (before.isOwn) OwnBase else DefaultBase) + hold * MostBefore + before.ms
    }

    // Both are more than the milliseconds since the epoch, by a factor of a million, and so is no lag that somebody means.
    private val OwnBase = 5000000000000000000L
    private val DefaultBase = 4000000000000000000L
    private val Width = OwnBase - DefaultBase

    /** A lag that is not held is shorter than the time since 1970, or as good as held: this is until 2109. */
    val MostBefore: Long = 1L << 42

    // All holds are below the width by the longest lag: 227,373.
    private val Rules = 450
    private val HoldsOfRule = 500

    /** A number that stands for a rule; few rules share one. */
    def ruleOf(rule: VersionRule): Int = 1 + Math.floorMod(rule.name.hashCode, Rules - 1)

    def newHold(rule: Option[Int]): Int =
      rule.getOrElse(0) * HoldsOfRule + ThreadLocalRandom.current.nextInt(1, HoldsOfRule)

    def of(ms: Long): Lag = {
      def held(base: Long, isOwn: Boolean) = {
        val rest = ms - base
        Held(Plain(rest % MostBefore, isOwn), (rest / MostBefore).toInt)
      }
      if (ms >= OwnBase && ms - OwnBase < Width) held(OwnBase, isOwn = true)
      else if (ms >= DefaultBase && ms < OwnBase) held(DefaultBase, isOwn = false)
      else Plain(ms)
    }
  }
}
