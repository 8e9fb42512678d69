package statemark.kafka.log

import java.io._
import java.nio.charset.StandardCharsets.UTF_8
import scala.collection.immutable.ArraySeq
import scala.util.control.NonFatal
import statemark.kafka.conf.SinkException

/** What records are made of: texts, lists, options, numbers. FORMAT.md has each. */
private[log] object RecordBytes {

  def partitions(out: DataOutputStream, some: Option[Set[Int]]): Unit =
    option(out, some)(of => list(out, of.toVector.sorted)(out.writeInt))

  def readPartitions(in: DataInputStream): Option[Set[Int]] =
    readOption(in)(readList(in)(in.readInt()).toSet)

  /** Seven bits a byte, the lowest first; the highest bit says that more follow. */
  def varlong(out: DataOutputStream, number: Long): Unit = {
    var left = number
    while ((left & ~0x7fL) != 0) {
      out.writeByte((left & 0x7f | 0x80).toInt)
      left >>>= 7
    }
    out.writeByte(left.toInt)
  }

  def readVarlong(in: DataInputStream): Long = {
    var number = 0L
    var shift = 0
    var byte = in.readByte()
    while (byte < 0 && shift < 63) {
      number |= (byte & 0x7fL) << shift
      shift += 7
      byte = in.readByte()
    }
    number | byte.toLong << shift
  }

  def text(out: DataOutputStream, text: String): Unit = {
    val bytes = text.getBytes(UTF_8)
    out.writeInt(bytes.length)
    out.write(bytes)
  }

  def readText(in: DataInputStream): String =
    new String(in.readNBytes(in.readInt()), UTF_8)

  def digest(out: DataOutputStream, digest: ArraySeq[Byte]): Unit = {
    out.writeByte(digest.length)
    out.write(digest.toArray)
  }

  def readDigest(in: DataInputStream): ArraySeq[Byte] =
    ArraySeq.unsafeWrapArray(in.readNBytes(in.readByte().toInt))

  def option[A](out: DataOutputStream, value: Option[A])(write: A => Unit): Unit = {
    out.writeBoolean(value.isDefined)
    value.foreach(write)
  }

  def readOption[A](in: DataInputStream)(read: => A): Option[A] =
    Option.when(in.readBoolean())(read)

  def list[A](out: DataOutputStream, values: Seq[A])(write: A => Unit): Unit = {
    out.writeInt(values.length)
    values.foreach(write)
  }

  def readList[A](in: DataInputStream)(read: => A): Vector[A] =
    Vector.fill(in.readInt())(read)

  def bytesOf(write: DataOutputStream => Unit): Array[Byte] = {
    val bytes = new ByteArrayOutputStream
    val out = new DataOutputStream(bytes)
    write(out)
    out.flush()
    bytes.toByteArray
  }

  def reading[A](of: String, bytes: Array[Byte])(read: DataInputStream => A): A =
    try read(new DataInputStream(new ByteArrayInputStream(bytes)))
    catch {
      case e: SinkException => throw e
      case NonFatal(e) => throw SinkException.unreadable(of, s"${bytes.length} bytes: $e", Some(e))
    }
}
