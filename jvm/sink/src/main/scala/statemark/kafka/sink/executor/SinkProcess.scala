package statemark.kafka.sink.executor

import java.util.concurrent.TimeUnit
import org.apache.hadoop.fs.FileSystem
import org.apache.hadoop.util.ShutdownHookManager
import org.apache.spark.SparkEnv
import org.apache.spark.sql.execution.streaming.state.{ReadEndpoint, StatemarkBridge}
import statemark.common.Clock
import statemark.kafka.clients.{KafkaClients, Timer}
import statemark.kafka.conf.SinkIdentity
import statemark.kafka.executor.{CommitAnswer, CommitOrder, ExecutorSinks, WriterSpec}
import statemark.spark.metrics.{GaugeGroup, Gauges}
import statemark.spark.process.ObjectBytes

/** What the driver asks of an executor. */
private[sink] sealed trait ExecutorRequest

private[sink] object ExecutorRequest {
  final case class Commit(order: CommitOrder) extends ExecutorRequest

  /** What is open and holds no rows of later batches. */
  final case class Abort(identity: SinkIdentity, batch: Long) extends ExecutorRequest

  /** The run has ended. */
  final case class Close(identity: SinkIdentity, run: Long) extends ExecutorRequest
}

/** The sinks of this process, driver or executor. ''Thread:'' any. */
private[sink] object SinkProcess {

  /** Under this name the driver learns where executors can be asked. */
  val Introductions: String = "statemark-kafka-sink"

  lazy val sinks: ExecutorSinks = {
    // A transaction that is left open holds every reader back until its timeout.
    ShutdownHookManager.get.addShutdownHook(
      () => sinks.closeAll(),
      EndPriority,
      ExecutorSinks.LongestEndS,
      TimeUnit.SECONDS
    )
    new ExecutorSinks(KafkaClients.of, Clock.system, Timer.system, SinkProbe.observer)
  }

  /** Shows the open transactions of this process as gauges. */
  def show(): Unit = Gauges.current.group("kafka")(new OpenTransactionGauges(sinks.openForMs)): Unit

  /** After a command that ends its query in its own way; before Spark ends the tasks, as there is little time. */
  private val EndPriority = FileSystem.SHUTDOWN_HOOK_PRIORITY + 40

  private val introduction = new Introduction[SparkEnv, ReadEndpoint](
    env => StatemarkBridge.serve(s"$Introductions-${env.executorId}", answer(_: Array[Byte])),
    (env, own) =>
      StatemarkBridge.driversEndpoint(Introductions)
        .introduce(ObjectBytes.encode(env.executorId), own)
  )

  /** Makes sure that the driver's orders reach this process, before the first row is written. */
  def prepare(spec: WriterSpec): Unit = {
    show()
    if (!spec.isLocal) introduction.run(SparkEnv.get)
  }

  private def answer(request: Array[Byte]): Array[Byte] =
    ObjectBytes.encode(answer(ObjectBytes.decode[ExecutorRequest](request)))

  private def answer(request: ExecutorRequest): CommitAnswer = request match {
    case ExecutorRequest.Commit(order) => sinks.commit(order)
    case ExecutorRequest.Abort(identity, batch) =>
      sinks.abort(identity, batch)
      CommitAnswer.Aborted
    case ExecutorRequest.Close(identity, run) =>
      sinks.close(identity, run)
      CommitAnswer.Aborted
  }
}

/** The transactions of this process that are open, and the age of the oldest. ''Thread:'' any. */
private final class OpenTransactionGauges(openForMs: => Seq[Long]) extends GaugeGroup {
  override def isUsed: Boolean = true

  override def gauges: Seq[(String, () => Any)] = Seq(
    "openTransactions" -> (() => openForMs.length.toLong),
    "oldestTransactionMs" -> (() => openForMs.maxOption.getOrElse(0L))
  )
}

/** Has the driver told once where this process can be asked. Where that is interrupted or fails, the next task tries
  * again; what is served is served once, as Spark takes a name only once.
  *
  * ''Thread:'' any.
  *
  * @param serve what makes the process askable in an environment
  * @param introduce what tells the driver
  */
private[sink] final class Introduction[E, A](serve: E => A, introduce: (E, A) => Unit) {
  private var served = Option.empty[(E, A)]
  private var introducedIn = Option.empty[E]

  def run(in: E): Unit = synchronized {
    if (!introducedIn.contains(in)) {
      val own = served.collect { case (`in`, made) => made }.getOrElse {
        val made = serve(in)
        served = Some((in, made))
        made
      }
      introduce(in, own)
      introducedIn = Some(in)
    }
  }
}
