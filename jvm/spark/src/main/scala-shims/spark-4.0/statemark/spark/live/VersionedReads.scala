package statemark.spark.live

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.execution.datasources.v2.state.StateSourceOptions
import org.apache.spark.sql.execution.python.EvaluatePython
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types.StructType

/** The members that reads of a running query need, and that differ between lines of Spark. */
private[live] object VersionedReads {

  /** The same read of another batch. Spark 4.0 reads no checkpoint of format v2.
    * @param ids checkpoint ids of the operator's stores, in format v2
    */
  def at(
      options: StateSourceOptions,
      batch: Long,
      @annotation.unused ids: Option[Array[Array[String]]]
  ): StateSourceOptions = options.copy(batchId = batch)

  /** A row as Python's pickles take it. */
  def pythonRow(row: InternalRow, schema: StructType, @annotation.unused conf: SQLConf): Any =
    EvaluatePython.toJava(row, schema)
}
