package statemark.kafka.sink

import org.apache.spark.SparkEnv
import org.apache.spark.sql.execution.streaming.state.StatemarkBridge
import statemark.common.Clock
import statemark.kafka._
import statemark.spark.process.ObjectBytes

/** What the driver asks of an executor. */
private[sink] sealed trait ExecutorRequest

private[sink] object ExecutorRequest {
  final case class Commit(order: CommitOrder) extends ExecutorRequest
  final case class Abort(identity: SinkIdentity) extends ExecutorRequest

  /** The run has ended. */
  final case class Close(identity: SinkIdentity) extends ExecutorRequest
}

/** The sinks of this process, driver or executor. ''Thread:'' any. */
private[sink] object SinkProcess {

  /** Under this name the driver learns where executors can be asked. */
  val Introductions: String = "statemark-kafka-sink"

  lazy val sinks: ExecutorSinks = {
    // A transaction that is left open holds every reader back until its timeout.
    Runtime.getRuntime.addShutdownHook(new Thread(() => sinks.closeAll(), "statemark-kafka-end"))
    new ExecutorSinks(KafkaClients.of, Clock.system, Timer.system, SinkProbe.observer)
  }

  private var introducedIn = Option.empty[SparkEnv]

  /** Makes sure that the driver's orders reach this process, before the first row is written. */
  def prepare(spec: WriterSpec): Unit =
    if (!spec.isLocal) synchronized {
      val env = SparkEnv.get
      if (!introducedIn.contains(env)) {
        val own = StatemarkBridge.serve(s"$Introductions-${env.executorId}", answer(_: Array[Byte]))
        StatemarkBridge.driversEndpoint(Introductions)
          .introduce(ObjectBytes.encode(env.executorId), own)
        introducedIn = Some(env)
      }
    }

  private def answer(request: Array[Byte]): Array[Byte] =
    ObjectBytes.encode(answer(ObjectBytes.decode[ExecutorRequest](request)))

  private def answer(request: ExecutorRequest): CommitAnswer = request match {
    case ExecutorRequest.Commit(order) => sinks.commit(order)
    case ExecutorRequest.Abort(identity) =>
      sinks.abort(identity)
      CommitAnswer.Aborted
    case ExecutorRequest.Close(identity) =>
      sinks.close(identity)
      CommitAnswer.Aborted
  }
}
