package statemark.spark.plan

import org.apache.spark.sql.execution.python.streaming.TransformWithStateInPySparkExec
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.{
  TransformWithStateExec,
  TransformWithStateExecBase
}
import statemark.spark.conf.ProviderName

/** Opens Spark's transformWithState nodes to Statemark. */
private[spark] object StatefulNodes extends NodeShims {

  /** `plan` with every transformWithState of a streaming query replaced by one that accepts Statemark.
    * Those of batch queries stay: they run on a temporary store of Spark's.
    */
  def opened(plan: SparkPlan): SparkPlan = plan.transformUp {
    case node: AcceptsStatemark => node
    case node: TransformWithStateExec if node.isStreaming => accepting(node)
    case node: TransformWithStateInPySparkExec if node.isStreaming => accepting(node)
  }
}

/** Lets Statemark pass Spark's check of the provider, and leaves every other provider to that check.
  *
  * Spark keeps the old node of a plan where the new one equals it, so that these are equal to no node
  * of Spark's, in either direction.
  */
private[spark] trait AcceptsStatemark extends TransformWithStateExecBase {
  override protected def validateStateStoreProvider(isStreaming: Boolean): Unit =
    if (!ProviderName.isUsed(conf)) super.validateStateStoreProvider(isStreaming)

  override def canEqual(that: Any): Boolean = that.isInstanceOf[AcceptsStatemark]

  override def equals(that: Any): Boolean = canEqual(that) && super.equals(that)

  override def hashCode(): Int = super.hashCode()
}
