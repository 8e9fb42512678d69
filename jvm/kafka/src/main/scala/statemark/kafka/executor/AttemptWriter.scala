package statemark.kafka.executor

import org.apache.kafka.clients.producer.ProducerRecord
import scala.util.control.NonFatal
import statemark.common.Interrupts
import statemark.kafka.clients.{KafkaFailures, RefusedRecord}
import statemark.kafka.conf.{SinkException, SinkObserver, SinkPhase}
import statemark.kafka.rows.{AttemptId, AttemptMessage, AttemptRows}

/** Writes the rows of one attempt, as Spark's `DataWriter` does. ''Thread:'' the task's. */
trait AttemptWriter {

  /** Sends a row; where its topic has partitions to choose from, the producer's partitioner does, unless the record
    * names one.
    * @throws SinkException where Kafka does not take it: the attempt has failed
    */
  def write(record: ProducerRecord[Array[Byte], Array[Byte]]): Unit

  /** Ends the attempt once every row is acknowledged. Nothing is visible yet.
    * @throws SinkException where one was not taken: the attempt has failed
    */
  def commit(): AttemptMessage

  /** Ends the attempt and the transaction that holds its rows. A second time, and after a failed commit, it does nothing. */
  def abort(): Unit
}

/** Counts rows and drops them: the batch is decided already, or this partition of it is. */
private[kafka] final class DiscardingWriter(attempt: AttemptId, executorId: String)
    extends AttemptWriter {
  override def write(record: ProducerRecord[Array[Byte], Array[Byte]]): Unit = ()
  override def commit(): AttemptMessage = AttemptMessage(attempt, executorId, Map.empty)
  override def abort(): Unit = ()
}

/** Holds its transactions by their line, and not a producer: a task that was given up and still writes finds a closed
  * writer.
  */
private[kafka] final class TransactionWriter(
    attempt: AttemptId,
    executorId: String,
    line: TransactionLine,
    lease: Lease,
    opens: Boolean,
    observer: SinkObserver,
    explain: (Throwable, Map[String, String]) => SinkException,
    refusedRows: Option[RefusedRows]
) extends AttemptWriter {
  private val rows = new AttemptRows(attempt)
  private var refused = 0L
  private var hasSent = false
  @volatile private var isClosed = false

  override def write(record: ProducerRecord[Array[Byte], Array[Byte]]): Unit = {
    requireOpen()
    // Answers that are on their way may tell of the row that was refused, and not of one beside it.
    if (rows.failure.isDefined)
      try requireTaken()
      catch { case NonFatal(e) => throw explained(e, ofTask) }
    try {
      val instead = refusedRows.flatMap(_.instead(attempt.batch, record))
      if (instead.isEmpty && record.topic == line.settings.commitTopic)
        throw TransactionWriter.toCommitTopic
      if (instead.isDefined) refused += 1
      val isFirst = !hasSent
      hasSent = true
      line.send(rows, lease, opens, instead.getOrElse(record))
      if (isFirst) observer.reached(SinkPhase.RowSent)
    } catch { case NonFatal(e) => throw explained(e, KafkaFailures.valuesOf(record) ++ ofTask) }
  }

  override def commit(): AttemptMessage = {
    requireOpen()
    isClosed = true
    try {
      requireTaken()
      val message = rows.message(executorId).copy(refused = refused)
      if (hasSent) observer.reached(SinkPhase.AttemptFinished)
      message
    } catch {
      case NonFatal(e) =>
        end()
        throw explained(e, ofTask)
    }
  }

  override def abort(): Unit = {
    isClosed = true
    end()
  }

  private def end(): Unit = if (hasSent) line.abort(attempt)

  private def ofTask = Map("task" -> attempt.partition.toString)

  private def requireTaken(): Unit = {
    if (hasSent) line.flush()
    rows.failure.foreach(throw _)
  }

  private def requireOpen(): Unit = if (isClosed) throw new SinkException.IllegalCall(
    s"The attempt at partition ${attempt.partition} of batch ${attempt.batch} has ended",
    "it was committed or aborted before"
  )

  private def explained(failure: Throwable, values: Map[String, String]): Throwable = {
    // A topic may be another one than it was when it was asked for.
    refusedRows.foreach(_.forget())
    failure match {
      case e if KafkaFailures.isInterrupt(e) => Interrupts.exceptionOf(e)
      case e: RefusedRecord => explain(e.getCause, e.values)
      case e => explain(e, values)
    }
  }
}

private object TransactionWriter {
  private def toCommitTopic = new SinkException.RefusedSetting(
    "A row cannot be sent",
    "its topic is the commit topic, which holds decisions alone",
    "Leave such rows out, or name another topic in option 'commitTopic'",
    Map("option" -> "commitTopic")
  )
}
