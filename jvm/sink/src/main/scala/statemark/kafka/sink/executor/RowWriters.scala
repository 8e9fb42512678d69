package statemark.kafka.sink.executor

import org.apache.spark.SparkEnv
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.connector.write.{DataWriter, WriterCommitMessage}
import org.apache.spark.sql.connector.write.streaming.StreamingDataWriterFactory
import statemark.kafka.executor.{AttemptWriter, WriterSpec}
import statemark.kafka.rows.AttemptMessage

/** What a finished task says to the driver. */
private[sink] final case class FinishedAttempt(message: AttemptMessage) extends WriterCommitMessage

/** Begins attempts on executors. ''Thread:'' the task's. */
private[sink] object AttemptWriters {
  def open(spec: WriterSpec, partition: Int, taskAttempt: Long): AttemptWriter = {
    SinkProcess.prepare(spec)
    SinkProcess.sinks.writer(spec, SparkEnv.get.executorId, partition, taskAttempt)
  }
}

/** Makes writers on executors. */
private[sink] final case class RowWriterFactory(spec: WriterSpec, columns: RowColumns)
    extends StreamingDataWriterFactory {

  override def createWriter(
      partitionId: Int,
      taskId: Long,
      epochId: Long
  ): DataWriter[InternalRow] =
    new RowWriter(AttemptWriters.open(spec, partitionId, taskId), columns)
}

/** ''Thread:'' the task's. */
private[sink] final class RowWriter(writer: AttemptWriter, columns: RowColumns)
    extends DataWriter[InternalRow] {
  override def write(row: InternalRow): Unit = writer.write(columns.record(row))
  override def commit(): WriterCommitMessage = FinishedAttempt(writer.commit())
  override def abort(): Unit = writer.abort()
  override def close(): Unit = ()
}
