package statemark.kafka.executor

import java.util.concurrent.ConcurrentHashMap
import scala.jdk.CollectionConverters._
import statemark.kafka.clients.Timer
import statemark.kafka.rows.{AttemptId, FirstFailure, TransactionName}

/** A transaction that has begun and is not ended. ''Thread:'' any.
  * @param ending what ends it when it has been open for too long
  */
private[kafka] final class OpenTransaction(
    val name: TransactionName,
    val begunNanos: Long,
    val ending: Timer.Cancel
) {
  private val writers = ConcurrentHashMap.newKeySet[AttemptId]()

  /** What every attempt of the transaction is told. */
  val firstFailure = new FirstFailure

  /** Notes that rows of the attempt may be in the transaction. */
  def add(attempt: AttemptId): Unit = if (!writers.contains(attempt)) writers.add(attempt): Unit

  def attempts: Set[AttemptId] = writers.asScala.toSet

  def failure: Option[Throwable] = firstFailure.get
}

/** From when on an executor may use its transactional id. A later one makes it initialize the id. It may do so again under
  * the same one, after it has read that no later run has the id.
  * @param run of the sink; ascends over all runs
  * @param generation of the id; ascends each time that the run's driver has fenced it
  * @param since up to where the run's driver has read the commit topic: a later run is noted behind
  */
final case class Lease(run: Long, generation: Int, since: Long = 0)

object Lease {
  val none: Lease = Lease(-1, 0)
  implicit val order: Ordering[Lease] = Ordering.by(lease => (lease.run, lease.generation))
}
