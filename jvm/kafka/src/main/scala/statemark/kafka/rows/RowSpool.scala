package statemark.kafka.rows

import java.io._
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Path}
import org.apache.kafka.clients.consumer.ConsumerRecord
import org.apache.kafka.clients.producer.ProducerRecord
import org.apache.kafka.common.TopicPartition
import org.apache.kafka.common.header.internals.RecordHeaders
import scala.collection.mutable
import statemark.common.{Disk, DiskWrites}

/** Rows that were read back: in memory, and from `memoryBytes` on in a temporary file. Rows of several transactions and
  * partitions come side by side; those of one group read back in the order in which they came. Whoever makes a spool
  * closes it. ''Thread:'' one at a time.
  * @param opening opens the file for writing
  */
private[kafka] final class RowSpool(
    memoryBytes: Int,
    directory: Path = Path.of(System.getProperty("java.io.tmpdir")),
    opening: Path => OutputStream = path => Files.newOutputStream(path)
) extends AutoCloseable {
  import RowSpool._

  private var memory = new Memory
  private var file: Option[RandomAccessFile] = None
  private var out: OutputStream = memory
  // Rows of a group that came one after another are one piece.
  private val pieces = mutable.Map.empty[Group, mutable.ArrayBuffer[Piece]]
  private var lastGroup: Option[Group] = None
  private var length = 0L

  /** Keeps a row.
    * @throws statemark.common.DiskUnwritableException where the temporary directory takes no more
    */
  def add(group: Group, record: ConsumerRecord[Array[Byte], Array[Byte]]): Unit = {
    val own = pieces.getOrElseUpdate(group, mutable.ArrayBuffer.empty)
    if (lastGroup.contains(group)) own(own.size - 1) = Piece(own.last.start, own.last.rows + 1)
    else own += Piece(length, 1)
    lastGroup = Some(group)
    val bytes = encoded(record)
    onDisk(out.write(bytes))
    length += bytes.length
    if (file.isEmpty && length > memoryBytes) onDisk(moveToFile())
  }

  /** The rows of groups, a group after another, as they are to be sent again: where they were, with all that they had.
    */
  def records(groups: Seq[Group]): Iterator[ProducerRecord[Array[Byte], Array[Byte]]] = {
    onDisk(out.flush())
    val inMemory = memory.toByteArray
    def from(start: Long): DataInputStream = new DataInputStream(
      file.fold[InputStream](
        new ByteArrayInputStream(inMemory, start.toInt, inMemory.length - start.toInt)
      )(opened => new BufferedInputStream(new FileFrom(opened, start), BufferBytes))
    )
    groups.iterator.flatMap(pieces.getOrElse(_, Nil)).flatMap { piece =>
      val in = from(piece.start)
      Iterator.fill(piece.rows)(decoded(in))
    }
  }

  /** Heap that rows take, in bytes. */
  private[kafka] def heldBytes: Int = memory.capacity

  /** Throws nothing: where the disk is full, what could not be written is not needed. */
  override def close(): Unit = file.foreach { opened =>
    try out.close()
    catch { case _: IOException => () }
    opened.close()
  }

  private def onDisk[A](write: => A): A =
    DiskWrites.to(Disk.Temporary, directory.toString)(write)

  private def moveToFile(): Unit = {
    val path = Files.createTempFile(directory, "statemark-copy-", ".rows")
    // Without a name it goes with the process, however that ends.
    try {
      out = new BufferedOutputStream(opening(path), BufferBytes)
      file = Some(new RandomAccessFile(path.toFile, "r"))
    } finally Files.delete(path)
    memory.writeTo(out)
    // Emptied, it would keep all that it has grown to.
    memory = new Memory
  }
}

private[kafka] object RowSpool {
  val MemoryBytes: Int = 32 << 20
  private val BufferBytes = 64 << 10

  /** Rows of one transaction in one partition. */
  final case class Group(transaction: TransactionName, place: TopicPartition)

  private final case class Piece(start: Long, rows: Int)

  /** The bytes of a file from a place on; several read side by side. */
  private final class FileFrom(file: RandomAccessFile, start: Long) extends InputStream {
    private var position = start

    override def read(): Int = {
      val one = new Array[Byte](1)
      if (read(one, 0, 1) < 0) -1 else one(0) & 0xff
    }

    override def read(bytes: Array[Byte], offset: Int, length: Int): Int = {
      file.seek(position)
      val count = file.read(bytes, offset, length)
      if (count > 0) position += count
      count
    }
  }

  private final class Memory extends ByteArrayOutputStream(0) {
    def capacity: Int = buf.length
  }

  private def encoded(record: ConsumerRecord[Array[Byte], Array[Byte]]): Array[Byte] = {
    val bytes = new ByteArrayOutputStream
    val out = new DataOutputStream(bytes)
    def write(part: Option[Array[Byte]]): Unit = {
      out.writeInt(part.fold(-1)(_.length))
      part.foreach(p => out.write(p))
    }
    write(Some(record.topic.getBytes(UTF_8)))
    out.writeInt(record.partition)
    out.writeLong(record.timestamp)
    write(Option(record.key))
    write(Option(record.value))
    val headers = record.headers.toArray
    out.writeInt(headers.length)
    headers.foreach { header =>
      write(Some(header.key.getBytes(UTF_8)))
      write(Option(header.value))
    }
    bytes.toByteArray
  }

  private def decoded(in: DataInputStream): ProducerRecord[Array[Byte], Array[Byte]] = {
    val topicPartition = new TopicPartition(text(in), in.readInt())
    val timestamp = in.readLong()
    val key = part(in)
    val value = part(in)
    val headers = new RecordHeaders
    (0 until in.readInt()).foreach(_ => headers.add(text(in), part(in)): Unit)
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

  private def text(in: DataInputStream): String = new String(part(in), UTF_8)

  /** Kafka has no value where there is none. */
  private def part(in: DataInputStream): Array[Byte] = {
    val length = in.readInt()
    Option.when(length >= 0)(in.readNBytes(length)).orNull
  }
}
