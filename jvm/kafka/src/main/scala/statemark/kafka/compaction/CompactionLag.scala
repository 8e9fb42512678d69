package statemark.kafka.compaction

import java.util.Collections
import org.apache.kafka.clients.admin.{Admin, AlterConfigOp, ConfigEntry}
import org.apache.kafka.common.config.ConfigResource
import scala.jdk.CollectionConverters._
import statemark.kafka.clients.{TopicChecks, TopicLookup}
import statemark.kafka.conf.SinkException

/** `min.compaction.lag.ms` of a topic, which keeps the cleaner from records that a repair has not seen yet.
  *
  * While it is held, the value says what it was before, so that whoever comes after a repair that was killed can put that
  * back. A held lag is longer than time itself: the cleaner takes no record, however old its timestamp.
  */
private[compaction] final class CompactionLag(admin: Admin, topic: String) {
  import CompactionLag._

  /** What it is now. */
  def current: Lag = TopicChecks.configOf(admin, topic) match {
    case Right(config) => Lag.of(config.get(Setting).flatMap(_.toLongOption).getOrElse(0L))
    case Left(why) =>
      throw new SinkException.UnfitCluster(
        s"It is not known whether the cleaner of topic $topic stands still",
        why,
        s"Grant DESCRIBE_CONFIGS on the topic",
        Map("topic" -> topic)
      )
  }

  /** Holds the cleaner until [[putBack]].
    * @return what the lag was before, also where somebody has held it already
    */
  def hold(): Lag.Plain = current match {
    case Lag.Held(before) => before
    case plain: Lag.Plain =>
      val before = if (isOwn) plain else plain.copy(isOwn = false)
      set(AlterConfigOp.OpType.SET, Lag.Held(before).ms)
      await(_.isInstanceOf[Lag.Held])
      before
  }

  /** Sets the lag to what it was before it was held. */
  def putBack(before: Lag.Plain): Unit = {
    set(if (before.isOwn) AlterConfigOp.OpType.SET else AlterConfigOp.OpType.DELETE, before.ms)
    await(_.ms == before.ms)
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

  sealed trait Lag {
    def ms: Long
  }

  object Lag {

    /** @param isOwn whether the topic has it itself, not from the brokers' defaults */
    final case class Plain(ms: Long, isOwn: Boolean = true) extends Lag

    final case class Held(before: Plain) extends Lag {
      override def ms: Long = (if (before.isOwn) OwnBase else DefaultBase) + before.ms
    }

    // Both are more than the milliseconds since the epoch, by a factor of a million, and so is no lag that somebody means.
    private val OwnBase = 5000000000000000000L
    private val DefaultBase = 4000000000000000000L
    private val MostBefore = 1000000000000000000L

    def of(ms: Long): Lag =
      if (ms >= OwnBase && ms - OwnBase < MostBefore) Held(Plain(ms - OwnBase))
      else if (ms >= DefaultBase && ms < OwnBase) Held(Plain(ms - DefaultBase, isOwn = false))
      else Plain(ms)
  }
}
