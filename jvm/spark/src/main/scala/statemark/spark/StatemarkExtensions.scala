package statemark.spark

import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.execution.{ColumnarRule, SparkPlan}
import org.apache.spark.sql.execution.streaming.state.{StateStoreConf, StatemarkBridge}
import org.apache.spark.sql.{SparkSessionExtensions, SparkSessionExtensionsProvider}
import statemark.spark.checkpoint.CheckpointFormat
import statemark.spark.cluster.{BatchOffsets, JarOnExecutors, JarVersions, Placement}
import statemark.spark.conf.{LocalRoot, PinnedProvider, ProviderName, StoreSettings}
import statemark.spark.latest.Latest
import statemark.spark.plan.{StatefulNodes, StreamStart, StreamStarts}
import statemark.spark.process.Relocated.{StatefulOperator, StatefulOperatorStateInfo}
import statemark.spark.process.TaskInfo

/** What Statemark adds to a Spark session: transformWithState runs on Statemark's provider, and its
  * settings, and the checkpoint's format, are checked on the driver when the first batch of a query is planned,
  * before any task. Where a session allows real-time queries, micro-batch queries get the provider as they start. And
  * the function of `statemark.latest`.
  *
  * Spark finds the class by itself where the jar is on the driver's class path when the session is
  * built; `spark.sql.extensions` takes it as well, and both at once do no harm. Sessions and queries
  * without Statemark's provider are left as they are.
  *
  * ''Source:'' Spark 4.2 `SparkSessionExtensionsProvider`.
  */
final class StatemarkExtensions extends SparkSessionExtensionsProvider {
  override def apply(extensions: SparkSessionExtensions): Unit = {
    extensions.injectPostHocResolutionRule(new StreamStarts(_))
    extensions.injectColumnar(_ => StatemarkExtensions.rule)
    extensions.injectFunction(Latest.function)
  }
}

object StatemarkExtensions {

  /** Whether a node keeps state in a query's checkpoint. Those of batch queries have a state, too, but
    * no checkpoint, and no store of ours.
    */
  private def isStateful(node: SparkPlan): Boolean = node match {
    case operator: StatefulOperator => operator.stateInfo.exists(_.checkpointLocation.nonEmpty)
    case _ => false
  }

  // This hook alone sees a streaming plan after Spark has numbered its operators and before any runs.
  private val rule = new ColumnarRule {
    override def preColumnarTransitions: Rule[SparkPlan] = StatefulPlans
  }

  private object StatefulPlans extends Rule[SparkPlan] {
    override def apply(plan: SparkPlan): SparkPlan =
      plan.collect {
        case operator: StatefulOperator if isStateful(operator) => operator.stateInfo
      }.flatten match {
        case Seq() => plan
        case operators => stateful(plan, operators)
      }

    private def stateful(
        plan: SparkPlan,
        operators: Seq[StatefulOperatorStateInfo]
    ): SparkPlan = {
      val info = operators.head
      StreamStart.check(conf)
      PinnedProvider.look(info.queryRunId, info.checkpointLocation, conf.stateStoreProviderClass)
      if (!ProviderName.isUsed(conf)) plan
      else {
        LocalRoot.place(StoreSettings.from(conf.getAllConfs, Runtime.getRuntime.maxMemory)): Unit
        StatemarkBridge.beforeBatch().foreach { batch =>
          CheckpointFormat.check(
            info.queryRunId,
            info.checkpointLocation,
            info.operatorId,
            new StateStoreConf(conf).enableStateStoreCheckpointIds,
            StatemarkBridge.hadoopConf(batch.spark)
          )
          JarOnExecutors.check(batch.spark.sparkContext)
          JarVersions.check()
          batch.setProperty(
            BatchOffsets.Property,
            BatchOffsets(info.queryRunId, batch.batch, batch.start, batch.end).property
          )
          // Each time: a query that a foreachBatch starts inherits the properties of the outer query's thread.
          batch.setProperty(TaskInfo.TemporaryCheckpoint, batch.hasTemporaryCheckpoint.toString)
          batch.setProperty(TaskInfo.QueryName, batch.queryName.orNull)
          Placement.seed(batch.spark, batch.queryId, operators)
        }
        StatefulNodes.opened(plan)
      }
    }
  }
}
