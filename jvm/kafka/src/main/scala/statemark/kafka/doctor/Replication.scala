package statemark.kafka.doctor

import org.apache.kafka.clients.admin.TopicDescription
import scala.jdk.CollectionConverters._

/** How safe a topic's rows are. */
private[kafka] object Replication {
  private val MinInSync = "min.insync.replicas"

  /** @param name of the check; @param config of the topic, empty where it is not known
    * @return what is not as it should be
    */
  def checks(name: String, topic: TopicDescription, config: Map[String, String]): Seq[Check] = {
    val partitions = topic.partitions.asScala.toVector
    val minInSync = config.get(MinInSync).flatMap(_.toIntOption)
    val copies = partitions.map(_.replicas.size).min
    val without = partitions.filter(p => p.leader == null || p.leader.isEmpty).map(_.partition)
    val behind = partitions.filter(p => minInSync.exists(p.isr.size < _)).map(_.partition)
    Seq(
      Option.when(without.nonEmpty)(Check.problem(
        name,
        s"${topic.name} has no leader of partitions ${without.mkString(", ")}",
        "Start the brokers that hold them"
      )),
      Option.when(without.isEmpty && behind.nonEmpty)(Check.problem(
        name,
        s"${topic.name} takes no rows in partitions ${behind.mkString(", ")}: fewer copies are in " +
          s"sync than $MinInSync=${minInSync.getOrElse(0)}",
        s"Start the brokers that hold them, or lower $MinInSync"
      )),
      few(name, topic.name, copies, minInSync),
      Option.when(config.get("unclean.leader.election.enable").contains("true"))(Check.warning(
        name,
        s"${topic.name} has unclean.leader.election.enable=true: a broker that is behind may become " +
          "leader, and what was committed is gone",
        "Set unclean.leader.election.enable=false on it"
      ))
    ).flatten
  }

  /** @param copies of each row; @param minInSync None where it is not known */
  def few(name: String, topic: String, copies: Int, minInSync: Option[Int]): Option[Check] =
    if (copies == 1) Some(Check.warning(
      name,
      s"$topic has one copy of each row: a broker that is lost takes what was committed with it",
      "Give it 3 replicas"
    ))
    else minInSync.collect {
      case 1 => Check.warning(
          name,
          s"$topic has $MinInSync=1: a row counts as written when one broker has it, and is lost with that",
          s"Set $MinInSync=2 on it"
        )
      case n if n == copies =>
        Check.warning(
          name,
          s"$topic has $MinInSync=$n and as many replicas: nothing can be written while a broker is down",
          s"Give it ${n + 1} replicas, or set $MinInSync=${n - 1}"
        )
    }

  /** The figures, for a check that finds nothing wrong. */
  def text(topic: TopicDescription, config: Map[String, String], keys: Seq[String]): String = {
    val partitions = topic.partitions.asScala
    val shown = (MinInSync +: keys).flatMap(key => config.get(key).map(value => s"$key=$value"))
    (Seq(
      s"${partitions.size} partitions",
      s"replication ${partitions.map(_.replicas.size).min}"
    ) ++ shown).mkString(s"${topic.name}: ", ", ", "")
  }
}
