package statemark.spark.live

import java.util.concurrent.ConcurrentHashMap
import org.apache.spark.sql.execution.streaming.state.{
  ReadEndpoint,
  StateStoreId,
  StateStoreProviderId,
  StatemarkBridge
}
import org.apache.spark.sql.SparkSession
import org.slf4j.LoggerFactory
import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal
import statemark.common.Interrupts
import statemark.spark.checkpoint.StoreAddress
import statemark.spark.process.JvmState
import statemark.spark.reads.{ReadNote, ReadReply, ReadRequest, ReadService, StoreRequest}

/** Brings requests to the executor where Spark's coordinator has a store. Lives in the driver.
  *
  * ''Thread:'' any, several at once.
  */
object ReadRouter {
  private val log = LoggerFactory.getLogger(ReadRouter.getClass)
  private val executors = JvmState.ofApplication(new ConcurrentHashMap[String, ReadEndpoint]())

  private[spark] def add(executorId: String, endpoint: ReadEndpoint): Unit =
    executors().put(executorId, endpoint): Unit

  /** Tells the stores of an operator of a read, wherever they are. */
  def tell(note: ReadNote): Unit = {
    ReadService.answer(note): Unit
    executors().forEach((_, endpoint) => endpoint.tell(ReadService.encode(note)))
  }

  /** Returns the partitions of an operator whose stores have begun a batch, wherever they are. Who fails to answer has
    * begun none: the caller asks again until its time is up.
    */
  def begun(asked: ReadRequest.Begun): Set[Int] = {
    val others = executors().asScala.toSeq.flatMap { case (id, executor) =>
      try answered(id)(executor.ask(ReadService.encode(asked)))
      catch {
        case NonFatal(e) =>
          log.info(s"Executor $id does not say which partitions have begun ${asked.batch}.", e)
          None
      }
    }
    (ReadService.answer(asked) +: others).collect { case ReadReply.Partitions(ids) => ids }
      .flatten.toSet
  }

  /** Asks the executor that has the store. Where that is gone, the store is open nowhere; an executor that fails, or
    * answers too late, still has it, and its files are no substitute.
    */
  def ask(request: StoreRequest): ReadReply =
    holderOf(request.address).flatMap(id => Option(executors().get(id)).map((id, _))) match {
      case None => ReadService.answer(request) // the driver's own, or nowhere
      case Some((id, endpoint)) => answerOf(id, request.address) {
          endpoint.ask(ReadService.encode(request))
        }
    }

  /** Returns the answer of an executor. Only a connection that is gone says that the executor is: its own failures
    * stand in its answer.
    */
  private[live] def answerOf(executorId: String, address: StoreAddress)(
      answer: => Array[Byte]
  ): ReadReply =
    ReadService.named(address, s"Executor $executorId, which has the store open,") {
      answered(executorId)(answer).getOrElse(ReadReply.NotHere)
    }

  /** Returns the answer of an executor; None where it is gone. */
  private def answered(executorId: String)(answer: => Array[Byte]): Option[ReadReply] =
    (try Some(Interrupts.apart(answer))
    catch {
      case NonFatal(e) if StatemarkBridge.isGone(e) =>
        log.info(s"Executor $executorId is gone, and with it its stores.", e)
        executors().remove(executorId): Unit
        None
    }).map(ReadService.decode[ReadReply])

  /** Asks like the other `ask`, in bytes, for executors. */
  private[spark] def ask(request: Array[Byte]): Array[Byte] =
    ReadService.served(request)((r: StoreRequest) => ask(r))

  private def holderOf(address: StoreAddress): Option[String] = for {
    spark <- SparkSession.getActiveSession.orElse(SparkSession.getDefaultSession)
    query <- StatemarkBridge.activeQueries(spark).find(_.runId == address.runId)
    location <- locationOf(spark, query.stateRoot, address)
    executor <- executorIn(location)
  } yield executor

  private[live] def locationOf(
      spark: SparkSession,
      stateRoot: String,
      address: StoreAddress
  ): Option[String] = {
    val id = StateStoreId(stateRoot, address.operator, address.partition, address.name)
    StatemarkBridge.locationOf(spark, StateStoreProviderId(id, address.runId))
  }

  /** ''Source:'' Spark 4.2 `ExecutorCacheTaskLocation`: `executor_<host>_<id>`. */
  private def executorIn(location: String): Option[String] =
    Some(location.lastIndexOf('_')).filter(_ > 0).map(i => location.substring(i + 1))
}
