package statemark.spark.latest

import org.apache.spark.sql.catalyst.FunctionIdentifier
import org.apache.spark.sql.catalyst.analysis.TypeCheckResult
import org.apache.spark.sql.catalyst.analysis.TypeCheckResult.{TypeCheckFailure, TypeCheckSuccess}
import org.apache.spark.sql.catalyst.expressions.aggregate.DeclarativeAggregate
import org.apache.spark.sql.catalyst.expressions.{
  AttributeReference,
  CreateArray,
  Expression,
  ExpressionInfo,
  Literal
}
import org.apache.spark.sql.catalyst.trees.UnaryLike
import org.apache.spark.sql.types._
import statemark.spark.conf.SqlFunctions

/** The aggregate function `statemark_latest(candidate)`: of the records of a key, the one that KIP-280 keeps.
  *
  * A candidate is a struct of
  *  - `row`, which is what the function returns of the winner,
  *  - `version BIGINT`, null where a record has none,
  *  - `topic STRING`, which may be null where there is one alone, `partition INT` and `offset BIGINT`: where the record lies,
  *  - `timestamp TIMESTAMP`,
  *  - `rule BIGINT`, which is the same for all candidates of a query; state with another one is refused.
  *
  * Of the records in one partition the one with the highest version wins, one with a version before one without,
  * then the one with the highest offset (KIP-280 §Compaction Strategies). A key that has moved to another
  * partition has a winner in each. Of these the one with the highest version wins, then the latest by its
  * timestamp, then the one of the highest topic and partition: offsets of two partitions say nothing of each other.
  * So the buffer has a candidate for each partition in which the key has been seen.
  *
  * That is no order of records: it has circles where a timestamp and an offset disagree. Hence `max_by` cannot do it
  * (docs/adr/0020).
  *
  * ''Errors:'' of analysis, where the argument is no such struct.
  */
final case class Latest(child: Expression) extends DeclarativeAggregate with UnaryLike[Expression] {
  private lazy val winners =
    AttributeReference("winners", ArrayType(child.dataType, containsNull = false))()

  override def prettyName: String = Latest.Name
  override def nullable: Boolean = true
  override def dataType: DataType = Candidate.rowOf(child.dataType).getOrElse(NullType)

  override def checkInputDataTypes(): TypeCheckResult =
    if (Candidate.rowOf(child.dataType).isDefined) TypeCheckSuccess
    else TypeCheckFailure(
      s"${Latest.Name} takes ${Candidate.Type}, and was given ${child.dataType.catalogString}"
    )

  override lazy val aggBufferAttributes: Seq[AttributeReference] = Seq(winners)
  override lazy val initialValues: Seq[Expression] = Seq(Literal.create(null, winners.dataType))
  override lazy val updateExpressions: Seq[Expression] =
    Seq(Winners(winners, CreateArray(Seq(child))))
  override lazy val mergeExpressions: Seq[Expression] =
    Seq(Winners(winners.left, winners.right))
  override lazy val evaluateExpression: Expression = Winner(winners, dataType)

  override protected def withNewChildInternal(newChild: Expression): Latest =
    copy(child = newChild)
}

object Latest {
  private[latest] val Name = SqlFunctions.Latest

  /** How a session registers it. */
  def function: (FunctionIdentifier, ExpressionInfo, Seq[Expression] => Expression) = {
    def build(arguments: Seq[Expression]): Expression = arguments match {
      case Seq(candidate) => Latest(candidate)
      case more =>
        throw new IllegalArgumentException(
          s"$Name takes one argument, ${Candidate.Type}, and was given ${more.length}"
        )
    }
    (FunctionIdentifier(Name), new ExpressionInfo(classOf[Latest].getName, Name), build)
  }
}
