package statemark.kafka.sim

import java.nio.charset.StandardCharsets.UTF_8
import org.apache.kafka.clients.consumer.ConsumerRecord
import org.apache.kafka.clients.producer.ProducerRecord
import org.apache.kafka.common.header.internals.RecordHeader
import scala.jdk.CollectionConverters._
import statemark.kafka.decision.{BatchFigures, BatchStart}
import statemark.kafka.driver.BatchPlan

/** For suites that write rows of their own. */
trait SingleRows extends Simulated {
  type Row = ProducerRecord[Array[Byte], Array[Byte]]

  /** Writes rows in one attempt and commits the batch. */
  def write(s: Simulation, batch: Long, rows: Row*): BatchFigures = {
    val start = BatchStart(batch, "q", Some(Simulation.fingerprint(batch)), isRerun = false)
    val BatchPlan.Write(spec) = s.coordinator.begin(start): @unchecked
    val executor = new SimExecutor(s"${100 + batch}", s.settings, new Deaths)
    s.executors = Vector(executor)
    val writer = executor.sinks.writer(spec, executor.id, 0, batch)
    try {
      rows.foreach(writer.write)
      s.coordinator.commit(batch, Seq(writer.commit()))
    } finally executor.kill()
  }

  def row(topic: String, value: Array[Byte], partition: Option[Int] = None): Row = {
    val own =
      List(new RecordHeader("own", "1".getBytes(UTF_8)): org.apache.kafka.common.header.Header)
    new ProducerRecord(
      topic,
      partition.map(Int.box).orNull,
      "key".getBytes(UTF_8),
      value,
      own.asJava
    )
  }

  def headers(row: ConsumerRecord[Array[Byte], Array[Byte]]): Map[String, String] =
    row.headers.asScala.map(h => h.key -> new String(h.value, UTF_8)).toMap
}
