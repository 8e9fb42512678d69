package statemark.spark.cluster

import org.apache.spark.SparkEnv
import org.slf4j.LoggerFactory
import scala.util.control.NonFatal
import statemark.engine.VersionId
import statemark.spark.checkpoint.StoreAddress
import statemark.spark.process.{Executors, JvmState}

/** Tells the driver what has become of a store on this executor, for [[Placement]]. No answer is waited for: a report
  * that is lost costs a restore and nothing else.
  *
  * ''Thread:'' the owner of the store.
  */
private[spark] final class StoreReports private (
    address: StoreAddress,
    queryId: String,
    tell: AnyRef => Unit
) {
  private var isReported = false

  /** Reports a store that a batch goes on from: it was loaded, or had fallen behind and was brought forward.
    * @param at the version that it stands at
    */
  def opened(at: VersionId): Unit = {
    isReported = true
    report(StoreChange.Opened(at))
  }

  /** Reports the end of a store that was reported as open.
    * @param left the version that a later task finds, and when it went to disk; None where nothing is left
    */
  def closed(left: Option[(VersionId, Long)]): Unit = if (isReported) {
    isReported = false
    report(left.fold[StoreChange](StoreChange.Discarded) { case (at, usedAtMs) =>
      StoreChange.Closed(at, usedAtMs)
    })
  }

  private def report(change: StoreChange): Unit =
    try {
      val executor = SparkEnv.get.executorId
      tell(StoreReport(executor, Executors.host(SparkEnv.get), address, queryId, change))
    } catch {
      case NonFatal(e) =>
        StoreReports.log.info(
          s"The driver was not told of $address: it may be restored elsewhere.",
          e
        )
    }
}

private[spark] object StoreReports {
  private lazy val log = LoggerFactory.getLogger("statemark.spark.cluster.StoreReports")

  /** Returns reports of a store; None without the plugin, and where the driver is the only executor. */
  def of(address: StoreAddress, queryId: String): Option[StoreReports] =
    JvmState.tellDriver().map(new StoreReports(address, queryId, _))
}
