package statemark.spark.live

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.execution.datasources.v2.state.StateSourceOptions
import org.apache.spark.sql.execution.python.EvaluatePython
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types.StructType

/** The members that reads of a running query need, and that differ between lines of Spark. */
private[live] object VersionedReads {

  /** The same read of another batch.
    * @param ids checkpoint ids of the operator's stores, in format v2
    */
  def at(
      options: StateSourceOptions,
      batch: Long,
      ids: Option[Array[Array[String]]]
  ): StateSourceOptions = options.copy(
    batchId = batch,
    startOperatorStateUniqueIds = ids,
    endOperatorStateUniqueIds = ids
  )

  /** A row as Python's pickles take it. */
  def pythonRow(row: InternalRow, schema: StructType, conf: SQLConf): Any =
    EvaluatePython.toJava(row, schema, conf.pysparkBinaryAsBytes)
}
