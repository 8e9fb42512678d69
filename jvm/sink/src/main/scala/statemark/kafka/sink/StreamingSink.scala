package statemark.kafka.sink

import org.apache.spark.sql.connector.write.{PhysicalWriteInfo, WriterCommitMessage}
import org.apache.spark.sql.connector.write.streaming.{StreamingDataWriterFactory, StreamingWrite}
import statemark.kafka.conf.SinkException
import statemark.kafka.sink.driver.SinkRun
import statemark.kafka.sink.executor.{FinishedAttempt, RowColumns, RowWriterFactory}

/** The driver's side of a batch, as Spark calls it. ''Thread:'' the query's. */
private[sink] final class StreamingSink(
    runOf: String => SinkRun,
    queryId: String,
    columns: RowColumns
) extends StreamingWrite {

  /** Called before the job of a batch: here the sink recovers, and learns whether the batch is decided already. */
  override def createStreamingWriterFactory(info: PhysicalWriteInfo): StreamingDataWriterFactory =
    new RowWriterFactory(runOf(queryId).begin(), columns)

  /** One attempt of each partition counts, and its message says which: Spark need not order them. */
  override def useCommitCoordinator(): Boolean = false

  override def commit(epochId: Long, messages: Array[WriterCommitMessage]): Unit =
    runOf(queryId).commit(
      epochId,
      messages.toSeq.map {
        case FinishedAttempt(message) => message
        case other => throw new SinkException.IllegalCall(
            s"Batch $epochId cannot be committed",
            s"a partition of it has the message $other, and so its rows are not known"
          )
      }
    )

  /** Spark calls it also where the commit has thrown; whatever was decided stands. */
  override def abort(epochId: Long, messages: Array[WriterCommitMessage]): Unit =
    runOf(queryId).abort()
}
