package statemark.bench

import java.nio.file.{Files, Path}
import java.util.UUID

import org.apache.hadoop.conf.Configuration
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types.StructType

/** How the rows of a store look to a provider. */
final case class Shape(
    key: StructType,
    value: StructType,
    encoder: KeyStateEncoderSpec,
    columnFamilies: Boolean = false,
    multipleValues: Boolean = false
)

/** One provider over a checkpoint directory of its own, with the version that was committed last. */
final class BenchStore(val contender: Contender, shape: Shape, workspace: Path)
    extends AutoCloseable {
  private val checkpoint = Files.createTempDirectory(workspace, contender.name)
  private val provider = StateStoreProvider.create(contender.providerClass)
  private var committed = 0L
  initialize()

  def version: Long = committed

  def open(): StateStore = provider.getStore(committed)

  /** Commits what `body` stages. `snapshot` makes the commit upload a snapshot, so that a later
    * reload has something to start from.
    */
  def batch[A](snapshot: Boolean = false)(body: StateStore => A): A = {
    val store = provider.getStore(committed, None, snapshot, false)
    val result = body(store)
    commit(store)
    result
  }

  def commit(store: StateStore): Unit = {
    committed = store.commit()
    store.metrics: Unit
  }

  /** Reads without staging; leaves the provider's state as it is. */
  def read[A](body: ReadStateStore => A): A = {
    val store = provider.getReadStore(committed)
    try body(store)
    finally store.release()
  }

  /** Spark runs this once a minute beside the query; here between turns, where nobody waits. */
  def maintain(): Unit = provider.doMaintenance()

  override def close(): Unit = {
    provider.close()
    BaseStore.delete(checkpoint)
  }

  private def initialize(): Unit = {
    val sqlConf = new SQLConf()
    val conf = "spark.sql.streaming.stateStore"
    val own = Map(
      s"$conf.providerClass" -> contender.providerClass,
      // Statemark keeps local state beyond the process; here it goes with the run.
      s"$conf.statemark.localDir" -> workspace.resolve("statemark").toString
    )
    (Contender.shared ++ contender.confs ++ own).foreach { case (k, v) =>
      sqlConf.setConfString(k, v)
    }
    val hadoopConf = new Configuration()
    hadoopConf.set("sql.streaming.runId", UUID.randomUUID().toString)
    provider.init(
      StateStoreId(checkpoint.resolve("state").toString, operatorId = 0, partitionId = 0),
      shape.key,
      shape.value,
      shape.encoder,
      shape.columnFamilies,
      new StateStoreConf(sqlConf),
      hadoopConf,
      shape.multipleValues
    )
  }
}
