package statemark.spark.process

import org.apache.spark.sql.execution.streaming.checkpointing
import org.apache.spark.sql.execution.streaming.operators.stateful

/** Classes of Spark's whose package differs between its lines. */
object Relocated {
  type StatefulOperator = stateful.StatefulOperator
  type StatefulOperatorStateInfo = stateful.StatefulOperatorStateInfo
  type CheckpointFileManager = checkpointing.CheckpointFileManager
  val CheckpointFileManager: checkpointing.CheckpointFileManager.type =
    checkpointing.CheckpointFileManager
}
