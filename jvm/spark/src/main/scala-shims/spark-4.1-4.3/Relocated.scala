package statemark.spark

import org.apache.spark.sql.execution.streaming.checkpointing

/** Classes of Spark's whose package differs between its lines. */
object Relocated {
  type CheckpointFileManager = checkpointing.CheckpointFileManager
  val CheckpointFileManager: checkpointing.CheckpointFileManager.type =
    checkpointing.CheckpointFileManager
}
