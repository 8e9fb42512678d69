package statemark.kafka.clients

import java.util.concurrent.TimeUnit
import java.util.concurrent.locks.LockSupport
import org.apache.kafka.clients.admin.{Admin, DescribeTopicsOptions, TopicDescription}
import org.apache.kafka.common.errors.{InvalidTopicException, UnknownTopicOrPartitionException}
import scala.annotation.tailrec
import scala.jdk.CollectionConverters._
import scala.util.Try
import scala.util.control.NonFatal
import statemark.kafka.conf.SinkException

/** Finds topics. A broker that has just started, or is behind, says of topics which are there that it does not know them:
  * Kafka's clients call that retriable and wait, but for the admin client. What is absent counts as absent only where the
  * same broker knows the commit topic, which is there, and after a while.
  *
  * ''Thread:'' any.
  *
  * @param repeats how often what is absent is asked for again
  */
private[kafka] final class TopicLookup(admin: Admin, commitTopic: String, repeats: Int) {

  /** Those of the topics that are there.
    * @param isWhole whether an answer needs no second question
    * @throws SinkException.Unavailable where no broker knows the commit topic
    */
  def find(topics: Seq[String])(
      isWhole: Map[String, TopicDescription] => Boolean = found => topics.forall(found.contains)
  ): Map[String, TopicDescription] = {
    val found = TopicLookup.repeated[Map[String, TopicDescription]]((found, asked) =>
      isWhole(found) || found.contains(commitTopic) && asked >= repeats
    )(TopicLookup.ask(admin, topics :+ commitTopic))
    if (isWhole(found) || found.contains(commitTopic)) found else throw behind(topics)
  }

  private def behind(topics: Seq[String]) = new SinkException.Unavailable(
    "Nobody knows whether a topic is there",
    "the brokers do not know the commit topic either, as those that have just started do not",
    "Start the query again once all brokers are up",
    Map("topics" -> topics.mkString(" "), "commitTopic" -> commitTopic)
  )
}

private[kafka] object TopicLookup {

  /** One answer is enough. */
  val Once = 0

  /** For two seconds, which a broker that is behind does not need. */
  val ForRows = 7

  /** For ten seconds: the answer decides whether rows count as lost. */
  val ForDecisions = 15

  /** Runs `body` again while it fails because of a broker that is behind, as where a topic was just made. */
  def again[A](isBehind: Throwable => Boolean)(body: => A): A =
    repeated[Try[A]]((result, _) => !result.failed.toOption.exists(isBehind))(Try(body)).get

  /** Runs `body` again, with pauses, until its result is enough, and at most for ten seconds.
    * @param isEnough asked with a result, and how many came before it
    */
  private def repeated[A](isEnough: (A, Int) => Boolean)(body: => A): A = {
    @tailrec def attempt(before: Int): A = {
      val result = body
      if (before >= PausesMs.size || isEnough(result, before)) result
      else {
        LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(PausesMs(before)))
        attempt(before + 1)
      }
    }
    attempt(0)
  }

  private val PausesMs = Vector[Long](20, 40, 80, 160, 320, 640, 740) ++ Vector.fill(8)(1000L)

  /** A topic, if a broker knows it within two seconds: where no other topic says that it is not behind. */
  def patiently(admin: Admin, topic: String): Option[TopicDescription] =
    repeated[Map[String, TopicDescription]]((found, asked) =>
      found.contains(topic) || asked >= ForRows
    )(ask(admin, Seq(topic))).get(topic)

  /** What one broker knows of the topics. */
  def ask(admin: Admin, topics: Seq[String]): Map[String, TopicDescription] = {
    val options = new DescribeTopicsOptions().includeAuthorizedOperations(true)
    val asked = admin.describeTopics(topics.asJava, options).topicNameValues
    topics.distinct.flatMap { topic =>
      try Some(topic -> asked.get(topic).get())
      catch {
        case NonFatal(e) =>
          KafkaFailures.unwrapped(e) match {
            case _: UnknownTopicOrPartitionException | _: InvalidTopicException => None
            case cause if KafkaFailures.isDenied(cause) =>
              throw TopicChecks.denied(topic, "DESCRIBE", Some(cause))
            case cause => throw cause
          }
      }
    }.toMap
  }
}
