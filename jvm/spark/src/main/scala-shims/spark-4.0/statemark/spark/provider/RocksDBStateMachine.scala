package statemark.spark.provider

import java.util.concurrent.{Semaphore, TimeUnit}
import org.apache.spark.sql.execution.streaming.state._

/** Who has a store checked out. Spark has this class from 4.1 on; on Spark 4.0 a thread owns a store,
  * and may take over from itself.
  *
  * ''Thread:'' any.
  * ''Source:'' Spark 4.1 `RocksDBStateMachine`, Spark 4.0 `RocksDB.acquire`.
  */
final class RocksDBStateMachine(storeId: StateStoreId, conf: RocksDBConf) {
  private val free = new Semaphore(1, true)
  private var holder: Option[RocksDBStateMachine.Holder] = None
  private var lastStamp = 0L
  private var isClosed = false

  /** Waits for the store as long as Spark's setting says.
    * @throws SparkException where another thread does not give it back in time
    */
  def acquireStamp(): Long = {
    if (!isMine) await("load")
    synchronized {
      if (isClosed) {
        free.release()
        throw closed("load")
      }
      lastStamp += 1
      holder = Some(RocksDBStateMachine.Holder(lastStamp, Thread.currentThread))
      lastStamp
    }
  }

  /** Gives the store back; false where `stamp` is not the holder's.
    * @throws IllegalStateException then, with `throwEx`
    */
  def releaseStamp(stamp: Long, throwEx: Boolean = true): Boolean = synchronized {
    val isHolder = holder.exists(_.stamp == stamp)
    if (isHolder) {
      holder = None
      free.release()
    } else if (throwEx) throw ended(stamp)
    isHolder
  }

  /** @throws IllegalStateException where `stamp` is not the holder's */
  def verifyStamp(stamp: Long): Unit = synchronized {
    if (!holder.exists(_.stamp == stamp)) throw ended(stamp)
  }

  /** @throws StateStoreInvalidStateMachineTransition where the store is closed */
  def verifyForMaintenance(): Unit = synchronized(if (isClosed) throw closed("maintain"))

  /** Whether there is something to close: false the second time. */
  def close(): Boolean =
    if (synchronized(isClosed)) false
    else {
      if (!isMine) await("close")
      synchronized {
        val isFirst = !isClosed
        isClosed = true
        free.release()
        isFirst
      }
    }

  private def isMine: Boolean = synchronized(holder.exists(_.thread eq Thread.currentThread))

  // A store that is free goes to a thread that was interrupted as well, as on later lines.
  private def await(operation: String): Unit =
    if (!free.tryAcquire() && !free.tryAcquire(conf.lockAcquireTimeoutMs, TimeUnit.MILLISECONDS)) {
      val owner = synchronized(holder).fold(Thread.currentThread)(_.thread)
      throw StatemarkBridge.notReleased(
        storeId.toString,
        operation,
        Thread.currentThread,
        owner,
        conf.lockAcquireTimeoutMs
      )
    }

  private def ended(stamp: Long): Throwable = new IllegalStateException(
    s"Cannot use $storeId (stamp $stamp) after already committed or aborted"
  )

  private def closed(operation: String): Throwable =
    new StateStoreInvalidStateMachineTransition(s"Cannot $operation $storeId: it is closed")
}

private object RocksDBStateMachine {
  final case class Holder(stamp: Long, thread: Thread)
}

/** Spark has this class from 4.1 on. */
final class StateStoreInvalidStateMachineTransition(message: String)
    extends IllegalStateException(message)
