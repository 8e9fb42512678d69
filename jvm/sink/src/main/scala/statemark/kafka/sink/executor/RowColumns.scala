package statemark.kafka.sink.executor

import org.apache.kafka.clients.producer.ProducerRecord
import org.apache.kafka.common.header.Header
import org.apache.kafka.common.header.internals.RecordHeader
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.types._
import scala.jdk.CollectionConverters._
import statemark.kafka.conf.SinkException

/** Where a row has what Kafka wants to know of it: the columns of Spark's own sink, and `timestamp`.
  * @param topic option `topic`; None where rows have a column of that name
  */
private[sink] final case class RowColumns(
    topic: Option[String],
    value: RowColumns.Bytes,
    key: Option[RowColumns.Bytes],
    topicAt: Option[Int],
    partitionAt: Option[Int],
    headersAt: Option[Int],
    timestampAt: Option[Int]
) {

  /** A row as a record. Nothing of the row is kept: Spark uses it again. */
  def record(row: InternalRow): ProducerRecord[Array[Byte], Array[Byte]] = {
    val name = topic.orElse(present(topicAt, row).map(row.getUTF8String(_).toString))
    new ProducerRecord[Array[Byte], Array[Byte]](
      name.getOrElse(throw RowColumns.withoutTopic),
      present(partitionAt, row).map(i => Int.box(natural("partition", row.getInt(i)))).orNull,
      present(timestampAt, row).map(i =>
        Long.box(natural("timestamp", millis(row.getLong(i))))
      ).orNull,
      key.flatMap(_.of(row)).orNull,
      value.of(row).orNull,
      present(headersAt, row).map(headers(row, _).asJava).orNull
    )
  }

  private def present(at: Option[Int], row: InternalRow): Option[Int] = at.filterNot(row.isNullAt)

  private def millis(micros: Long): Long = Math.floorDiv(micros, 1000L)

  /** Kafka has no others. */
  private def natural[A](column: String, number: A)(implicit numeric: Numeric[A]): A =
    if (numeric.gteq(number, numeric.zero)) number
    else throw RowColumns.unsendable(s"its column '$column' is negative", column)

  private def headers(row: InternalRow, at: Int): Iterable[Header] = {
    val array = row.getArray(at)
    (0 until array.numElements()).map { i =>
      if (array.isNullAt(i) || array.getStruct(i, 2).isNullAt(0))
        throw RowColumns.unsendable("one of its headers has no key", "headers")
      val header = array.getStruct(i, 2)
      val bytes = Option.unless(header.isNullAt(1))(header.getBinary(1))
      new RecordHeader(header.getUTF8String(0).toString, bytes.orNull)
    }
  }
}

private[sink] object RowColumns {

  /** A column of text or bytes. */
  final case class Bytes(at: Int, isText: Boolean) {
    def of(row: InternalRow): Option[Array[Byte]] = Option.unless(row.isNullAt(at))(
      if (isText) row.getUTF8String(at).getBytes else row.getBinary(at)
    )
  }

  private val Names = Seq("key", "value", "topic", "partition", "headers", "timestamp")
  private val headersType = "array<struct<key:string,value:binary>>"

  /** Finds the columns, by the names that Spark's own sink gives them.
    * @throws SinkException.RefusedSetting where one is missing, or of another type
    */
  def of(schema: StructType, topic: Option[String]): RowColumns = {
    def find(name: String)(isRight: PartialFunction[DataType, Unit], allowed: String) =
      schema.fields.zipWithIndex.find(_._1.name == name).map { case (field, at) =>
        if (!isRight.isDefinedAt(field.dataType)) throw new SinkException.RefusedSetting(
          s"Column '$name' is of a type that cannot be written",
          s"it is ${field.dataType.catalogString}",
          s"Cast it to $allowed",
          Map("column" -> name)
        )
        (at, field.dataType)
      }
    def bytes(name: String) = find(name)(
      { case _: StringType | BinaryType => () },
      "string or binary"
    ).map { case (at, of) => Bytes(at, of != BinaryType) }
    val value = bytes("value").getOrElse(throw missing("value", schema, "Name one of them 'value'"))
    val topicAt = find("topic")({ case _: StringType => () }, "string").map(_._1)
    if (topic.isEmpty && topicAt.isEmpty) throw missing(
      "topic",
      schema,
      "Set option 'topic', or give rows a column 'topic'"
    )
    RowColumns(
      topic,
      value,
      bytes("key"),
      topicAt,
      find("partition")({ case IntegerType => () }, "int").map(_._1),
      find("headers")(
        { case ArrayType(StructType(Array(k, v)), _) if isHeader(k, v) => () },
        headersType
      ).map(_._1),
      find("timestamp")({ case TimestampType => () }, "timestamp").map(_._1)
    )
  }

  private def isHeader(key: StructField, value: StructField): Boolean =
    key.dataType.isInstanceOf[StringType] && value.dataType == BinaryType

  private def missing(name: String, schema: StructType, remedy: String) =
    new SinkException.RefusedSetting(
      s"Rows have no column '$name'",
      s"they have ${schema.fieldNames.mkString(", ")}; the sink knows ${Names.mkString(", ")}",
      remedy,
      Map("column" -> name)
    )

  private def withoutTopic =
    unsendable("its column 'topic' is null, and option 'topic' is not set", "topic")

  private def unsendable(reason: String, column: String) = new SinkException.RefusedSetting(
    "A row cannot be sent",
    reason,
    "Leave such rows out",
    Map("column" -> column)
  )
}
