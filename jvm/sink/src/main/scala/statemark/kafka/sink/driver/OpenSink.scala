package statemark.kafka.sink.driver

import java.util.UUID
import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.atomic.AtomicLong
import java.util.concurrent.locks.ReentrantLock
import org.slf4j.LoggerFactory
import scala.annotation.tailrec
import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal
import statemark.common.Interrupts
import statemark.kafka.clients.KafkaFailures
import statemark.kafka.conf.{SinkException, SinkIdentity, SinkSettings}
import statemark.kafka.decision.{BatchFigures, BatchStart, Outcome, RecoveryReport}
import statemark.kafka.driver.{BatchCoordinator, BatchPlan}
import statemark.kafka.rows.AttemptMessage

/** A sink that this driver writes for, from its first batch until its query has ended.
  *
  * ''Thread:'' the query's, and another that closes it.
  *
  * @param isLocal whether the one executor is this process
  * @param runId of the query's run with which it ends; None outside of queries
  * @param counts what its gauges show
  * @param recovered told of each recovery
  */
private[sink] final class OpenSink(
    val identity: SinkIdentity,
    val settings: SinkSettings,
    coordinator: BatchCoordinator,
    isLocal: Boolean,
    val runId: Option[UUID],
    counts: SinkCounts,
    recovered: RecoveryReport => Unit
) {
  import OpenSink.log

  /** What the option `kafkaConsumerGroup` is for. */
  val input: InputSources = new InputSources(settings)

  private val lock = new ReentrantLock
  private val lost = ConcurrentHashMap.newKeySet[String]()
  private val losses = new AtomicLong
  private var seen = Option.empty[RecoveryReport]
  // From the begin of a batch until it is committed, or has failed.
  @volatile private var isWriting = false
  // Changed with the lock held.
  @volatile private var isClosed = false
  counts.opened()

  def begin(start: BatchStart): BatchPlan = exclusively {
    if (isClosed) throw new SinkException.IllegalCall("A batch cannot begin", "its run has ended")
    isWriting = true
    try coordinator.begin(start)
    catch {
      case e: Throwable =>
        isWriting = false
        throw e
    } finally report()
  }

  def commit(batch: Long, messages: Seq[AttemptMessage]): BatchFigures = exclusively {
    val figures =
      try coordinator.commit(batch, messages)
      finally report()
    isWriting = false
    counts.add(figures)
    if (figures.refusedRows > 0) log.warn(
      s"Batch $batch of sink $identity: ${figures.refusedRows} of ${figures.rows} rows can never be sent, " +
        s"and went to topic ${settings.refusedRowsTopic.getOrElse("")}."
    )
    endLost()
    figures
  }

  /** Completes what was decided, if anything was, after a batch that did not end well.
    * @throws SinkException where it cannot be completed
    */
  def recover(): Outcome = exclusively {
    try coordinator.recover().outcome
    finally report()
  }

  /** Removes what the commit topic knows of the sink: nobody can repeat what was written. */
  def forget(): Unit = exclusively(coordinator.forget())

  /** Notes that an executor is gone. */
  def lose(executorId: String): Unit = {
    lost.add(executorId): Unit
    losses.incrementAndGet(): Unit
  }

  /** Ends what executors have left open that are gone, at once, or after the batch that is being written, whose decision
    * may need it.
    */
  @tailrec
  def endLostIfIdle(): Unit = {
    val seen = losses.get
    if (lock.tryLock()) {
      try if (!isWriting && !isClosed) endLost()
      finally lock.unlock()
      // Whoever lost another one meanwhile has found the lock taken.
      if (losses.get != seen) endLostIfIdle()
    }
  }

  private def endLost(): Unit = {
    val gone = lost.asScala.toSet
    if (gone.nonEmpty)
      try {
        if (coordinator.lastRun > 0) coordinator.fenceExecutors(gone)
        gone.foreach(lost.remove)
      } catch {
        case _: SinkException.Superseded => gone.foreach(lost.remove) // they are the other driver's
        case NonFatal(e) if !KafkaFailures.isInterrupt(e) =>
          log.warn(s"Transactions of lost executors of sink $identity are not ended yet.", e)
      }
  }

  /** Ends what is open, at once: its batch has failed. */
  def abort(): Unit = {
    isWriting = false
    try coordinator.abort()
    catch { case NonFatal(e) => log.warn(s"Sink $identity could not abort a batch.", e) }
  }

  /** Ends what is open, at once, and then the run. */
  def end(): Unit = {
    // What is open in a run that is closed already would be the next one's.
    if (!isClosed) abort()
    close()
  }

  /** Ends the run, once no call of it is inside; an interrupt does not keep it from that. */
  def close(): Unit = {
    lock.lock()
    try if (!isClosed) {
        isClosed = true
        counts.closed()
        KafkaFailures.uninterrupted {
          try endLost()
          finally {
            coordinator.close()
            if (!isLocal) ExecutorOrders.close(identity, coordinator.lastRun)
          }
        }
      }
    catch { case NonFatal(e) => log.warn(s"Sink $identity could not be closed.", e) }
    finally lock.unlock()
  }

  private def report(): Unit =
    coordinator.lastRecovery.filterNot(r => seen.exists(_ eq r)).foreach { recovery =>
      seen = Some(recovery)
      counts.add(recovery)
      recovered(recovery)
      log.info(recovery.line)
      recovery.notes.foreach(note => log.warn(s"Sink $identity: $note"))
    }

  private def exclusively[A](body: => A): A = {
    lock.lockInterruptibly()
    try body
    catch {
      // A query that is stopped ends well only with an exception that Spark knows as an interrupt.
      case NonFatal(e) if KafkaFailures.isInterrupt(e) => throw Interrupts.exceptionOf(e)
    } finally lock.unlock()
  }
}

private object OpenSink {
  private val log = LoggerFactory.getLogger(classOf[OpenSink])
}
