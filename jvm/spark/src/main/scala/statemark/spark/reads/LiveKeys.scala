package statemark.spark.reads

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.catalyst.plans.physical.HashPartitioning
import org.apache.spark.sql.catalyst.types.DataTypeUtils
import org.apache.spark.sql.types.{DataType, StructType}

/** The keys that a read is limited to. Rows of other keys may come with them: who reads filters what comes.
  *
  * @param schema leading columns of the key, all or some
  * @param rows values of them
  * @param isWhole they are all
  */
private[spark] final case class LiveKeys(
    schema: StructType,
    rows: Array[UnsafeRow],
    isWhole: Boolean
) {

  /** Returns the way in which a column family finds the keys; None where it has to be read whole.
    *
    * @param key columns of the family's keys: those of the operator, or those in a struct and others after it
    * @param prefixColumns with so many of them a scan may begin
    */
  def in(key: StructType, prefixColumns: Int): Option[KeysThere] =
    if (isWhole && isSame(key, schema)) Some(KeysThere.Whole(rows.toSeq))
    else if (isWhole && prefixColumns == 1 && isSame(key.head.dataType, schema)) {
      val wrap = Projections.of(new StructType().add("key", schema))
      Some(KeysThere.Prefixes(rows.toSeq.map(row => wrap(InternalRow(row)).copy())))
    } else if (
      prefixColumns > 0 && prefixColumns <= schema.length &&
      isSame(StructType(key.take(prefixColumns)), StructType(schema.take(prefixColumns)))
    ) {
      val columns = DataTypeUtils.toAttributes(schema)
      val project = Projections.of(columns.take(prefixColumns), columns)
      Some(KeysThere.Prefixes(rows.toSeq.map(project(_).copy()).distinct))
    } else None

  /** Returns the partitions that have them among `partitions`; None where that cannot be told. */
  def partitions(operatorName: String, partitions: Int): Option[Set[Int]] = {
    val placing = KeyPlacement.columns(operatorName, isWhole, schema)
    placing.map { columns =>
      val all = DataTypeUtils.toAttributes(schema)
      val id = HashPartitioning(all.take(columns), partitions).partitionIdExpression
      val partition = Projections.of(Seq(id), all)
      rows.iterator.map(partition(_).getInt(0)).toSet
    }
  }

  /** Returns a key as `rows` have it. */
  def of(key: InternalRow): UnsafeRow = LiveKeys.of(schema, Seq(key)).rows.head

  private def isSame(a: DataType, b: DataType): Boolean =
    DataType.equalsStructurally(a, b, ignoreNullability = true)
}

private[spark] object LiveKeys {

  /** Whole keys. */
  def of(schema: StructType, keys: Seq[InternalRow]): LiveKeys = {
    val project = Projections.of(schema)
    LiveKeys(schema, keys.map(project(_).copy()).toArray, isWhole = true)
  }
}

/** The way in which a column family finds keys. */
private[spark] sealed trait KeysThere

private[spark] object KeysThere {
  final case class Whole(keys: Seq[UnsafeRow]) extends KeysThere

  /** All rows that begin with one of `keys`, no two of which begin alike. */
  final case class Prefixes(keys: Seq[UnsafeRow]) extends KeysThere
}

/** The columns of the key by which an operator's rows are dealt to partitions. */
private[spark] object KeyPlacement {
  private val Aggregation = "stateStoreSave"
  private val SessionWindow = "sessionWindowStateStoreSaveExec"

  /** ''Source:'' Spark 4.2 `StatefulAggregationStrategy`, which normalizes what is grouped by. */
  val aggregations: Set[String] = Set(Aggregation, SessionWindow)

  private val byWholeKey = Set(
    Aggregation,
    "dedupe",
    "dedupeWithinWatermark",
    "symmetricHashJoin",
    "flatMapGroupsWithState",
    "applyInPandasWithState",
    "transformWithStateExec",
    "transformWithStateInPandasExec",
    "transformWithStateInPySparkExec"
  )

  /** ''Source:'' Spark 4.2 `requiredChildDistribution` of each operator, `StatefulOpClusteredDistribution`.
    *
    * @param schema leading columns of the key
    * @return how many of them; None where the operator is another, or not all are given
    */
  def columns(operatorName: String, isWhole: Boolean, schema: StructType): Option[Int] =
    if (!isWhole || schema.isEmpty) None
    else if (byWholeKey(operatorName)) Some(schema.length)
    // A session's start is the last column of its key, and not what places it.
    else if (operatorName == SessionWindow) Some(schema.length - 1).filter(_ > 0)
    else None
}
