package statemark.kafka

import java.io._
import java.nio.file.{Files, Path}
import org.apache.kafka.clients.consumer.ConsumerRecord
import org.apache.kafka.clients.producer.ProducerRecord
import org.apache.kafka.common.TopicPartition
import org.apache.kafka.common.header.internals.RecordHeaders

/** Rows that were read back, in the order of their reading: in memory, and from `memoryBytes` on in a temporary file.
  * Whoever makes one closes it. ''Thread:'' one at a time.
  */
private[kafka] final class RowSpool(memoryBytes: Int) {
  private val memory = new ByteArrayOutputStream
  private var file: Option[Path] = None
  private var out = new DataOutputStream(memory)
  private var reading: Option[DataInputStream] = None
  private var rows = 0L

  def count: Long = rows

  def add(record: ConsumerRecord[Array[Byte], Array[Byte]]): Unit = {
    out.writeUTF(record.topic)
    out.writeInt(record.partition)
    out.writeLong(record.timestamp)
    write(Option(record.key))
    write(Option(record.value))
    val headers = record.headers.toArray
    out.writeInt(headers.length)
    headers.foreach { header =>
      out.writeUTF(header.key)
      write(Option(header.value))
    }
    rows += 1
    if (file.isEmpty && memory.size > memoryBytes) moveToFile()
  }

  /** The rows as they are to be sent again: where they were, with all that they had. At most once at a time. */
  def records: Iterator[ProducerRecord[Array[Byte], Array[Byte]]] = {
    out.flush()
    reading.foreach(_.close())
    val in = new DataInputStream(file match {
      case Some(path) => new BufferedInputStream(new FileInputStream(path.toFile))
      case None => new ByteArrayInputStream(memory.toByteArray)
    })
    reading = Some(in)
    Iterator.range(0L, rows).map(_ => read(in))
  }

  def close(): Unit = {
    out.close()
    reading.foreach(_.close())
    file.foreach(Files.deleteIfExists(_): Unit)
  }

  private def moveToFile(): Unit = {
    val path = Files.createTempFile("statemark-copy-", ".rows")
    file = Some(path)
    val stream = new BufferedOutputStream(new FileOutputStream(path.toFile))
    memory.writeTo(stream)
    memory.reset()
    out = new DataOutputStream(stream)
  }

  private def read(in: DataInputStream): ProducerRecord[Array[Byte], Array[Byte]] = {
    val topicPartition = new TopicPartition(in.readUTF(), in.readInt())
    val timestamp = in.readLong()
    val key = readBytes(in)
    val value = readBytes(in)
    val headers = new RecordHeaders
    (0 until in.readInt()).foreach(_ => headers.add(in.readUTF(), readBytes(in)): Unit)
    new ProducerRecord(
      topicPartition.topic,
      topicPartition.partition,
      // Records of old clients have no time.
      if (timestamp < 0) Option.empty[java.lang.Long].orNull else timestamp,
      key,
      value,
      headers
    )
  }

  private def write(bytes: Option[Array[Byte]]): Unit = {
    out.writeInt(bytes.fold(-1)(_.length))
    bytes.foreach(b => out.write(b))
  }

  /** Kafka has no value where there is none. */
  private def readBytes(in: DataInputStream): Array[Byte] = {
    val length = in.readInt()
    Option.when(length >= 0)(in.readNBytes(length)).orNull
  }
}

private[kafka] object RowSpool {
  val MemoryBytes: Int = 32 << 20
}
