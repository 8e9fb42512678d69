package statemark.kafka.sim

import java.lang.reflect.{InvocationTargetException, Method, Proxy}
import java.util.concurrent.atomic.AtomicInteger
import org.apache.kafka.clients.admin.{Admin, DescribeTopicsResult, TopicDescription}
import org.apache.kafka.common.{KafkaFuture, Uuid}
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException
import org.apache.kafka.common.internals.KafkaFutureImpl
import scala.jdk.CollectionConverters._

/** An admin client whose first answers come from a broker that is behind. */
object BehindAdmin {

  /** @param answers how many; counted down
    * @param knows topics that the broker has heard of
    */
  def apply(real: Admin, answers: AtomicInteger, knows: Set[String]): Admin = {
    val handler = (_: AnyRef, method: Method, arguments: Array[AnyRef]) =>
      try {
        val isTopics = method.getName == "describeTopics" && arguments.head
          .isInstanceOf[java.util.Collection[_]]
        if (isTopics && answers.getAndDecrement() > 0)
          answer(real, arguments.head.asInstanceOf[java.util.Collection[String]], knows)
        else method.invoke(real, Option(arguments).toSeq.flatten: _*)
      } catch { case e: InvocationTargetException => throw e.getCause }
    Proxy.newProxyInstance(
      getClass.getClassLoader,
      Array[Class[_]](classOf[Admin]),
      (proxy, method, arguments) => handler(proxy, method, arguments)
    ).asInstanceOf[Admin]
  }

  private def answer(real: Admin, topics: java.util.Collection[String], knows: Set[String]) = {
    val found = topics.asScala.toSeq.distinct.map { topic =>
      val future: KafkaFuture[TopicDescription] =
        if (knows(topic))
          real.describeTopics(java.util.List.of(topic)).topicNameValues.get(topic)
        else {
          val failed = new KafkaFutureImpl[TopicDescription]
          failed.completeExceptionally(new UnknownTopicOrPartitionException("behind"))
          failed
        }
      topic -> future
    }.toMap
    new Answer(found.asJava)
  }

  private final class Answer(of: java.util.Map[String, KafkaFuture[TopicDescription]])
      extends DescribeTopicsResult(
        Option.empty[java.util.Map[Uuid, KafkaFuture[TopicDescription]]].orNull,
        of
      )
}
