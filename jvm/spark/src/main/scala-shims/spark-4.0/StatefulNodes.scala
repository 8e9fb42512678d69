package statemark.spark

import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.streaming.StatefulOperator

/** The one place that knows Spark's stateful nodes by their types. */
private[spark] object StatefulNodes {

  /** Whether a node keeps state in a query's checkpoint. Those of batch queries have a state, too, but
    * no checkpoint, and no store of ours.
    */
  def isStateful(node: SparkPlan): Boolean = node match {
    case operator: StatefulOperator => operator.stateInfo.exists(_.checkpointLocation.nonEmpty)
    case _ => false
  }

  /** `plan` as it is: transformWithState of this line takes every provider with column families. */
  def opened(plan: SparkPlan): SparkPlan = plan
}
