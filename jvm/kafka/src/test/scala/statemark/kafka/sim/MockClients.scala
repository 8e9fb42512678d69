package statemark.kafka.sim

import java.util.concurrent.ConcurrentLinkedQueue
import org.apache.kafka.clients.admin.Admin
import org.apache.kafka.clients.consumer.{MockConsumer, OffsetResetStrategy}
import org.apache.kafka.clients.producer.{MockProducer, RoundRobinPartitioner}
import org.apache.kafka.common.TopicPartition
import org.apache.kafka.common.errors.InterruptException
import org.apache.kafka.common.serialization.ByteArraySerializer
import org.scalatest.Assertions.fail
import scala.jdk.CollectionConverters._
import statemark.kafka.{RowConsumer, RowProducer}
import statemark.kafka.clients.KafkaClients

/** Producers that are mocks, consumers that find nothing, and nothing else.
  * @param flushing and `aborting`: what producers do first
  */
final class MockClients(
    autoComplete: Boolean = true,
    flushing: () => Unit = () => (),
    aborting: () => Unit = () => ()
) extends KafkaClients {
  private val queue = new ConcurrentLinkedQueue[MockProducer[Array[Byte], Array[Byte]]]

  /** In the order in which they were asked for. */
  def made: Seq[MockProducer[Array[Byte], Array[Byte]]] = queue.asScala.toSeq

  override def producer(id: String): RowProducer = {
    val bytes = new ByteArraySerializer
    val mock = new MockProducer(autoComplete, new RoundRobinPartitioner, bytes, bytes) {
      override def abortTransaction(): Unit =
        if (Thread.currentThread.isInterrupted)
          throw new InterruptException(new InterruptedException)
        else {
          aborting()
          super.abortTransaction()
        }
      override def flush(): Unit = {
        flushing()
        super.flush()
      }
    }
    queue.add(mock)
    mock
  }
  override def consumer(committedOnly: Boolean): RowConsumer =
    new MockConsumer[Array[Byte], Array[Byte]](OffsetResetStrategy.NONE) {
      override def endOffsets(places: java.util.Collection[TopicPartition]) =
        places.asScala.map(_ -> Long.box(0)).toMap.asJava
    }
  override def admin(): Admin = fail("no admin client is needed")
}
