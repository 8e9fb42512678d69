package statemark.spark

import org.apache.spark.sql.catalyst.encoders.ExpressionEncoder
import org.apache.spark.sql.catalyst.expressions.{Attribute, Expression}
import org.apache.spark.sql.catalyst.plans.logical.TransformWithStateInPySpark
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.python.streaming.TransformWithStateInPySparkExec
import org.apache.spark.sql.execution.streaming.operators.stateful.{
  StatefulOperator,
  StatefulOperatorStateInfo
}
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.{
  TransformWithStateExec,
  TransformWithStateExecBase
}
import org.apache.spark.sql.streaming.{OutputMode, StatefulProcessor, TimeMode}
import org.apache.spark.sql.types.StructType

/** The one place that knows Spark's stateful nodes by their types and constructors. */
private[spark] object StatefulNodes {

  /** Whether a node keeps state in a query's checkpoint. Those of batch queries have a state, too, but
    * no checkpoint, and no store of ours.
    */
  def isStateful(node: SparkPlan): Boolean = node match {
    case operator: StatefulOperator => operator.stateInfo.exists(_.checkpointLocation.nonEmpty)
    case _ => false
  }

  /** `plan` with every transformWithState of a streaming query replaced by one that accepts Statemark.
    * Those of batch queries stay: they run on a temporary store of Spark's.
    */
  def opened(plan: SparkPlan): SparkPlan = plan.transformUp {
    case node: AcceptsStatemark => node
    case node: TransformWithStateExec if node.isStreaming => opened(node)
    case node: TransformWithStateInPySparkExec if node.isStreaming => opened(node)
  }

  def opened(node: TransformWithStateExec): StatemarkTransformWithStateExec =
    new StatemarkTransformWithStateExec(
      node.keyDeserializer,
      node.valueDeserializer,
      node.groupingAttributes,
      node.dataAttributes,
      node.statefulProcessor,
      node.timeMode,
      node.outputMode,
      node.keyEncoder,
      node.outputObjAttr,
      node.stateInfo,
      node.batchTimestampMs,
      node.prevBatchTimestampMs,
      node.eventTimeWatermarkForLateEvents,
      node.eventTimeWatermarkForEviction,
      node.child,
      node.isStreaming,
      node.isRealTimeMode,
      node.hasInitialState,
      node.initialStateGroupingAttrs,
      node.initialStateDataAttrs,
      node.initialStateDeserializer,
      node.initialState
    )

  def opened(node: TransformWithStateInPySparkExec): StatemarkTransformWithStateInPySparkExec =
    new StatemarkTransformWithStateInPySparkExec(
      node.functionExpr,
      node.groupingAttributes,
      node.outputAttrs,
      node.outputMode,
      node.timeMode,
      node.stateInfo,
      node.batchTimestampMs,
      node.prevBatchTimestampMs,
      node.eventTimeWatermarkForLateEvents,
      node.eventTimeWatermarkForEviction,
      node.userFacingDataType,
      node.child,
      node.isStreaming,
      node.hasInitialState,
      node.initialState,
      node.initialStateGroupingAttrs,
      node.initialStateSchema
    )
}

/** Lets Statemark pass Spark's check of the provider, and leaves every other provider to that check.
  *
  * Spark keeps the old node of a plan where the new one equals it, so that these are equal to no node
  * of Spark's, in either direction.
  */
private[spark] trait AcceptsStatemark extends TransformWithStateExecBase {
  override protected def validateStateStoreProvider(isStreaming: Boolean): Unit =
    if (!StatemarkExtensions.isProvider(conf)) super.validateStateStoreProvider(isStreaming)

  override def canEqual(that: Any): Boolean = that.isInstanceOf[AcceptsStatemark]

  override def equals(that: Any): Boolean = canEqual(that) && super.equals(that)

  override def hashCode(): Int = super.hashCode()
}

/** ''Source:'' Spark 4.3 `TransformWithStateExec`; Spark copies nodes by their one constructor. */
private[spark] final class StatemarkTransformWithStateExec(
    keyDeserializer: Expression,
    valueDeserializer: Expression,
    groupingAttributes: Seq[Attribute],
    dataAttributes: Seq[Attribute],
    statefulProcessor: StatefulProcessor[Any, Any, Any],
    timeMode: TimeMode,
    outputMode: OutputMode,
    keyEncoder: ExpressionEncoder[Any],
    outputObjAttr: Attribute,
    stateInfo: Option[StatefulOperatorStateInfo],
    batchTimestampMs: Option[Long],
    prevBatchTimestampMs: Option[Long],
    eventTimeWatermarkForLateEvents: Option[Long],
    eventTimeWatermarkForEviction: Option[Long],
    child: SparkPlan,
    isStreaming: Boolean,
    isRealTimeMode: Boolean,
    hasInitialState: Boolean,
    initialStateGroupingAttrs: Seq[Attribute],
    initialStateDataAttrs: Seq[Attribute],
    initialStateDeserializer: Expression,
    initialState: SparkPlan
) extends TransformWithStateExec(
      keyDeserializer,
      valueDeserializer,
      groupingAttributes,
      dataAttributes,
      statefulProcessor,
      timeMode,
      outputMode,
      keyEncoder,
      outputObjAttr,
      stateInfo,
      batchTimestampMs,
      prevBatchTimestampMs,
      eventTimeWatermarkForLateEvents,
      eventTimeWatermarkForEviction,
      child,
      isStreaming,
      isRealTimeMode,
      hasInitialState,
      initialStateGroupingAttrs,
      initialStateDataAttrs,
      initialStateDeserializer,
      initialState
    )
    with AcceptsStatemark {

  override protected def withNewChildrenInternal(
      newLeft: SparkPlan,
      newRight: SparkPlan
  ): TransformWithStateExec =
    StatefulNodes.opened(super.withNewChildrenInternal(newLeft, newRight))
}

/** ''Source:'' Spark 4.3 `TransformWithStateInPySparkExec`: rows and pandas alike. */
private[spark] final class StatemarkTransformWithStateInPySparkExec(
    functionExpr: Expression,
    groupingAttributes: Seq[Attribute],
    outputAttrs: Seq[Attribute],
    outputMode: OutputMode,
    timeMode: TimeMode,
    stateInfo: Option[StatefulOperatorStateInfo],
    batchTimestampMs: Option[Long],
    prevBatchTimestampMs: Option[Long],
    eventTimeWatermarkForLateEvents: Option[Long],
    eventTimeWatermarkForEviction: Option[Long],
    userFacingDataType: TransformWithStateInPySpark.UserFacingDataType.Value,
    child: SparkPlan,
    isStreaming: Boolean,
    hasInitialState: Boolean,
    initialState: SparkPlan,
    initialStateGroupingAttrs: Seq[Attribute],
    initialStateSchema: StructType
) extends TransformWithStateInPySparkExec(
      functionExpr,
      groupingAttributes,
      outputAttrs,
      outputMode,
      timeMode,
      stateInfo,
      batchTimestampMs,
      prevBatchTimestampMs,
      eventTimeWatermarkForLateEvents,
      eventTimeWatermarkForEviction,
      userFacingDataType,
      child,
      isStreaming,
      hasInitialState,
      initialState,
      initialStateGroupingAttrs,
      initialStateSchema
    )
    with AcceptsStatemark {

  override protected def withNewChildrenInternal(
      newLeft: SparkPlan,
      newRight: SparkPlan
  ): TransformWithStateInPySparkExec =
    StatefulNodes.opened(super.withNewChildrenInternal(newLeft, newRight))
}
