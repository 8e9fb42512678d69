package statemark.spark.plan

import org.apache.spark.sql.catalyst.encoders.ExpressionEncoder
import org.apache.spark.sql.catalyst.expressions.{Attribute, Expression}
import org.apache.spark.sql.catalyst.plans.logical.TransformWithStateInPySpark
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.python.streaming.TransformWithStateInPySparkExec
import org.apache.spark.sql.execution.streaming.operators.stateful.StatefulOperatorStateInfo
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.TransformWithStateExec
import org.apache.spark.sql.streaming.{OutputMode, StatefulProcessor, TimeMode}
import org.apache.spark.sql.types.StructType

/** The constructors of Spark's transformWithState nodes, which differ between its lines. */
private[spark] trait NodeShims {

  def accepting(node: TransformWithStateExec): StatemarkTransformWithStateExec =
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

  def accepting(node: TransformWithStateInPySparkExec): StatemarkTransformWithStateInPySparkExec =
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
    StatefulNodes.accepting(super.withNewChildrenInternal(newLeft, newRight))
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
    StatefulNodes.accepting(super.withNewChildrenInternal(newLeft, newRight))
}
