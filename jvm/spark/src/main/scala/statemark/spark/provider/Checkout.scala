package statemark.spark.provider

import org.apache.spark.sql.execution.streaming.state.{StateStoreCheckpointInfo, StateStoreMetrics}
import statemark.engine.ColumnFamilies
import statemark.spark.reads.LiveReads
import statemark.transaction.{Rows, Transaction}

/** A version that a handle has checked out. */
private[spark] sealed trait Checkout {
  def rows: Rows
  def families: ColumnFamilies
}

private[spark] object Checkout {

  /** The store of this provider.
    *
    * @param nextId checkpoint id of the version if it commits, in format v2
    */
  final case class Owned(transaction: Transaction, nextId: Option[String], hasChangelog: Boolean)
      extends Checkout {
    override def rows: Rows = transaction
    override def families: ColumnFamilies = transaction.families
  }

  /** The store of a running query, read beside its owner. */
  final case class Beside(reads: LiveReads) extends Checkout {
    override def rows: Rows = reads.rows
    override def families: ColumnFamilies = reads.families
  }
}

/** What a commit leaves for Spark to ask. */
private[spark] final case class CommitResult(
    metrics: StateStoreMetrics,
    info: StateStoreCheckpointInfo
)
