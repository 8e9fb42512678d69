package statemark.kafka.sink.driver

import java.util.concurrent.ConcurrentHashMap
import org.apache.spark.SparkEnv
import org.apache.spark.sql.execution.streaming.state.{ReadEndpoint, StatemarkBridge}
import org.slf4j.LoggerFactory
import scala.concurrent.{Await, ExecutionContext, Future}
import scala.concurrent.duration.Duration
import scala.util.control.NonFatal
import statemark.kafka.conf.SinkIdentity
import statemark.kafka.executor.{CommitAnswer, CommitOrder, CommitOrders}
import statemark.kafka.rows.TransactionName
import statemark.spark.process.{BackgroundThreads, ObjectBytes}
import statemark.kafka.sink.executor.{ExecutorRequest, SinkProcess}

/** Brings the driver's orders to executors, over the connections that Spark has. ''Thread:'' any. */
private[sink] object ExecutorOrders extends CommitOrders {
  private val log = LoggerFactory.getLogger(ExecutorOrders.getClass)
  private val executors = new ConcurrentHashMap[String, ReadEndpoint]()
  private lazy val threads =
    ExecutionContext.fromExecutor(BackgroundThreads.pool("statemark-kafka-orders", Threads))
  private val Threads = 32
  private var servedIn = Option.empty[SparkEnv]

  /** Makes sure that executors of this application can introduce themselves. */
  def serve(): Unit = synchronized {
    val env = SparkEnv.get
    if (!servedIn.contains(env)) {
      executors.clear()
      StatemarkBridge.serveIntroductions(SinkProcess.Introductions) { (who, where) =>
        executors.put(ObjectBytes.decode[String](who), where): Unit
      }
      servedIn = Some(env)
    }
  }

  /** Spark has removed an executor. A message to one that is gone is lost without an error. */
  def forget(executorId: String): Unit = executors.remove(executorId): Unit

  override def commit(orders: Seq[CommitOrder]): Map[TransactionName, CommitAnswer] = {
    val asked = orders.map { order =>
      Future(ask(order).map(order.transaction -> _))(threads)
    }
    // Each call ends by itself, at the latest after Spark's own timeout of calls.
    asked.flatMap(Await.result(_, Duration.Inf)).toMap
  }

  override def abort(identity: SinkIdentity, batch: Long): Unit =
    tell(ExecutorRequest.Abort(identity, batch))

  /** Has every executor give up what it has of a run. */
  def close(identity: SinkIdentity, run: Long): Unit = tell(ExecutorRequest.Close(identity, run))

  private def ask(order: CommitOrder): Option[CommitAnswer] =
    Option(executors.get(order.executorId)).flatMap { endpoint =>
      try {
        val answer = endpoint.ask(ObjectBytes.encode(ExecutorRequest.Commit(order)))
        Some(ObjectBytes.decode[CommitAnswer](answer))
      } catch {
        // An error of the JVM, too: nobody else completes the future that is waited for.
        case e: Throwable =>
          forgetIfGone(order.executorId, e)
          log.info(s"Executor ${order.executorId} did not answer the order to commit.", e)
          None
      }
    }

  private def tell(request: ExecutorRequest): Unit = executors.forEach { (id, endpoint) =>
    try endpoint.tell(ObjectBytes.encode(request))
    catch { case NonFatal(e) => forgetIfGone(id, e) }
  }

  private def forgetIfGone(executorId: String, failure: Throwable): Unit =
    if (StatemarkBridge.isGone(failure)) executors.remove(executorId): Unit
}
