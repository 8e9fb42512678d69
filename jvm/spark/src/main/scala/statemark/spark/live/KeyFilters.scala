package statemark.spark.live

import org.apache.spark.sql.catalyst.{CatalystTypeConverters, InternalRow}
import org.apache.spark.sql.catalyst.parser.CatalystSqlParser
import org.apache.spark.sql.sources._
import org.apache.spark.sql.types._
import statemark.spark.reads.{LiveKeys, Projections}

/** Finds the keys and the partitions that filters on the columns of a read name. */
private[live] object KeyFilters {

  /** More keys are read by a scan. */
  private val MaxKeys = 10000

  /** Returns the keys, where the filters name values for leading columns of the key.
    *
    * @param filters all of them hold
    */
  def keys(filters: Seq[Filter], key: StructType): Option[LiveKeys] = {
    val named = filters.flatMap(valuesOf).collect {
      case (KeyColumn +: path, values) if path.nonEmpty => path -> values
    }.toMap
    val columns =
      key.map(f => values(named, Seq(f.name), f.dataType)).takeWhile(_.isDefined).flatten
    val count = columns.map(_.length.toLong).foldLeft(1L)((n, m) => math.min(n * m, MaxKeys + 1L))
    Option.when(columns.nonEmpty && count <= MaxKeys) {
      val schema = StructType(key.take(columns.length))
      val project = Projections.of(schema)
      val rows = product(columns).map(row => project(InternalRow.fromSeq(row)).copy())
      LiveKeys(schema, rows.toArray, columns.length == key.length)
    }
  }

  /** Returns the partitions that filters leave; None where they name none. */
  def partitions(filters: Seq[Filter]): Option[Set[Int]] = filters.flatMap(valuesOf).collect {
    case (Seq(PartitionColumn), values) => values.collect { case id: Int => id }.toSet
  }.reduceOption(_ & _)

  private val KeyColumn = "key"
  private val PartitionColumn = "partition_id"

  private def valuesOf(filter: Filter): Option[(Seq[String], Seq[Any])] = {
    def at(name: String, values: Seq[Any]) =
      Some(CatalystSqlParser.parseMultipartIdentifier(name) -> values)
    filter match {
      case EqualTo(name, value) => at(name, Seq(value))
      case EqualNullSafe(name, value) => at(name, Seq(value))
      case IsNull(name) => at(name, Seq(None.orNull))
      case In(name, values) => at(name, values.toSeq.filter(_ != null).distinct)
      case _ => None
    }
  }

  /** Values of a column in Spark's own form; a struct's are known by all of its fields. */
  private def values(
      named: Map[Seq[String], Seq[Any]],
      path: Seq[String],
      dataType: DataType
  ): Option[Seq[Any]] = dataType match {
    case struct: StructType =>
      val fields = struct.map(f => values(named, path :+ f.name, f.dataType))
      // A field that is null may be so because the struct is.
      val isKnown = fields.forall(_.exists(_.forall(_ != null)))
      Option.when(isKnown && struct.nonEmpty)(product(fields.flatten).map(InternalRow.fromSeq))
    case leaf if isEqualByBytes(leaf) =>
      val convert = CatalystTypeConverters.createToCatalystConverter(leaf)
      named.get(path).map(_.map(convert).map(fitted(_, leaf)))
    case _ => None
  }

  /** Tells whether equal values have equal bytes: not so 0.0 and -0.0, nor strings of a collation. */
  private def isEqualByBytes(dataType: DataType): Boolean = dataType match {
    case BooleanType | ByteType | ShortType | IntegerType | LongType => true
    case DateType | TimestampType | TimestampNTZType | BinaryType => true
    case _: DecimalType => true
    case StringType => true
    case _ => false
  }

  private def fitted(value: Any, dataType: DataType): Any = (value, dataType) match {
    case (decimal: Decimal, of: DecimalType) =>
      Decimal(decimal.toBigDecimal, of.precision, of.scale)
    case _ => value
  }

  private def product(columns: Seq[Seq[Any]]): Seq[Seq[Any]] =
    columns.foldLeft(Seq(Seq.empty[Any]))((rows, values) =>
      for (row <- rows; value <- values) yield row :+ value
    )
}
