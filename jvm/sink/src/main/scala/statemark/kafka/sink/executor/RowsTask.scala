package statemark.kafka.sink.executor

import org.apache.spark.TaskContext
import org.apache.spark.sql.catalyst.InternalRow
import scala.util.control.NonFatal
import statemark.kafka.executor.WriterSpec
import statemark.kafka.rows.AttemptMessage

/** Writes the rows of one partition. ''Thread:'' the task's. */
private[sink] final case class RowsTask(spec: WriterSpec, columns: RowColumns)
    extends ((TaskContext, Iterator[InternalRow]) => AttemptMessage) {

  override def apply(task: TaskContext, rows: Iterator[InternalRow]): AttemptMessage = {
    val writer = AttemptWriters.open(spec, task.partitionId(), task.taskAttemptId())
    try {
      rows.foreach(row => writer.write(columns.record(row)))
      writer.commit()
    } catch {
      case e: Throwable =>
        try writer.abort()
        catch { case NonFatal(second) => e.addSuppressed(second) }
        throw e
    }
  }
}
