package statemark.spark.latest

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenFallback
import org.apache.spark.sql.catalyst.expressions.{BinaryExpression, Expression, UnaryExpression}
import org.apache.spark.sql.catalyst.util.{ArrayData, GenericArrayData}
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String
import statemark.common.InvalidInputException

/** A record that may be the winner of its key, as a row of [[Latest]]'s argument. */
private[latest] object Candidate {
  val Type =
    "struct<row:struct<...>,version:bigint,topic:string,partition:int,offset:bigint," +
      "timestamp:timestamp,rule:bigint>"

  private val Row = 0
  private val Version = 1
  private val Topic = 2
  private val Partition = 3
  private val Offset = 4
  private val Timestamp = 5
  private val Rule = 6
  private val Fields = 7

  /** The type of the record itself; none where `dataType` is not that of a candidate. */
  def rowOf(dataType: DataType): Option[StructType] = dataType match {
    case StructType(
          Array(
            StructField("row", row: StructType, _, _),
            StructField("version", LongType, _, _),
            StructField("topic", StringType, _, _),
            StructField("partition", IntegerType, _, _),
            StructField("offset", LongType, _, _),
            StructField("timestamp", TimestampType, _, _),
            StructField("rule", LongType, _, _)
          )
        ) => Some(row)
    case _ => None
  }

  def of(candidates: ArrayData): Seq[InternalRow] =
    (0 until candidates.numElements()).map(candidates.getStruct(_, Fields))

  def row(candidate: InternalRow, fields: Int): InternalRow = candidate.getStruct(Row, fields)

  /** Whether both lie in one partition of one topic. */
  def isBeside(a: InternalRow, b: InternalRow): Boolean =
    partition(a) == partition(b) && topic(a) == topic(b)

  private def partition(candidate: InternalRow): Int = candidate.getInt(Partition)

  private def topic(candidate: InternalRow): Option[UTF8String] =
    Option(candidate.getUTF8String(Topic))

  /** State knows neither names of columns nor where a version came from. */
  def requireOneRule(a: InternalRow, b: InternalRow): Unit =
    if (a.getLong(Rule) != b.getLong(Rule)) throw new InvalidInputException(
      "the state of statemark.latest cannot be used\n" +
        "  reason: this checkpoint belongs to another strategy, header, or list of columns\n" +
        "  remedy: start the query with a new checkpoint, or with what it had before"
    )

  def requirePlace(candidate: InternalRow): Unit =
    if (candidate.isNullAt(Partition) || candidate.isNullAt(Offset))
      throw new InvalidInputException(
        "a record without partition or offset was given to statemark.latest\n" +
          "  reason: of two records with one version the one with the higher offset is kept\n" +
          "  remedy: keep these columns as Spark's Kafka source returns them"
      )

  /** Whether `a` wins over `b`, which lies in the same partition. */
  def winsWithin(a: InternalRow, b: InternalRow): Boolean = {
    val versions = compare(a, b, Version)
    if (versions != 0) versions > 0 else a.getLong(Offset) > b.getLong(Offset)
  }

  /** Whether `a` wins over `b`, which lies in another partition. */
  def winsAcross(a: InternalRow, b: InternalRow): Boolean = {
    val versions = compare(a, b, Version)
    val order = if (versions != 0) versions else compare(a, b, Timestamp)
    if (order != 0) order > 0
    else if (topic(a) != topic(b)) topic(b).forall(of => topic(a).exists(_.compareTo(of) > 0))
    else partition(a) > partition(b)
  }

  /** Compares by a number; a candidate without it is the lower one. */
  private def compare(a: InternalRow, b: InternalRow, field: Int): Int =
    (a.isNullAt(field), b.isNullAt(field)) match {
      case (false, false) => a.getLong(field).compare(b.getLong(field))
      case (isNone, isOthersNone) => isOthersNone.compare(isNone)
    }
}

/** The winner of each partition, of those on either side. Each side has one at most of a partition. */
private[latest] final case class Winners(left: Expression, right: Expression)
    extends BinaryExpression
    with CodegenFallback {
  override def nullable: Boolean = true
  override def dataType: DataType = right.dataType

  override def eval(input: InternalRow): Any = {
    def side(of: Expression) = of.eval(input) match {
      case candidates: ArrayData => Candidate.of(candidates)
      case _ => Nil
    }
    new GenericArrayData(side(right).foldLeft(side(left))(kept))
  }

  private def kept(winners: Seq[InternalRow], candidate: InternalRow): Seq[InternalRow] = {
    Candidate.requirePlace(candidate)
    winners.headOption.foreach(Candidate.requireOneRule(_, candidate))
    winners.indexWhere(Candidate.isBeside(_, candidate)) match {
      case -1 => winners :+ candidate
      case at if Candidate.winsWithin(candidate, winners(at)) => winners.updated(at, candidate)
      case _ => winners
    }
  }

  override protected def withNewChildrenInternal(
      newLeft: Expression,
      newRight: Expression
  ): Winners = Winners(newLeft, newRight)
}

/** The record that wins over those of all partitions. */
private[latest] final case class Winner(child: Expression, override val dataType: DataType)
    extends UnaryExpression
    with CodegenFallback {
  override def nullable: Boolean = true

  private val fields = dataType match {
    case row: StructType => row.length
    case _ => 0
  }

  override def eval(input: InternalRow): Any = {
    val winners = child.eval(input) match {
      case of: ArrayData => Candidate.of(of)
      case _ => Nil
    }
    winners.reduceOption((a, b) => if (Candidate.winsAcross(b, a)) b else a)
      .map(Candidate.row(_, fields)).orNull
  }

  override protected def withNewChildInternal(newChild: Expression): Winner =
    copy(child = newChild)
}
