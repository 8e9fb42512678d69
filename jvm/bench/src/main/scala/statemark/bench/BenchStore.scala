package statemark.bench

import java.nio.file.{Files, Path}

import org.apache.spark.sql.execution.streaming.state._
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
  private val provider = Providers.open(
    contender,
    shape,
    checkpoint.resolve("state").toString,
    // Statemark keeps local state beyond the process; here it goes with the run.
    workspace.resolve("statemark")
  )
  private var committed = 0L

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
}
