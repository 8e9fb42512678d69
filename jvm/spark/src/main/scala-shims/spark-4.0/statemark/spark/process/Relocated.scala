package statemark.spark.process

import org.apache.spark.sql.execution.streaming

/** Classes of Spark's whose package differs between its lines. */
object Relocated {
  type StatefulOperator = streaming.StatefulOperator
  type StatefulOperatorStateInfo = streaming.StatefulOperatorStateInfo
  type CheckpointFileManager = streaming.CheckpointFileManager
  val CheckpointFileManager: streaming.CheckpointFileManager.type = streaming.CheckpointFileManager
}
