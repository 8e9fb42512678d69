package statemark.spark.process

import org.apache.spark.TaskContext

/** What the driver says of the query to the task that uses a store.
  *
  * @param queryId persistent id of the streaming query, empty where none runs
  * @param partitions number of state partitions, -1 where unknown
  */
final case class TaskInfo(queryId: String, partitions: Int)

object TaskInfo {
  val none: TaskInfo = TaskInfo("", -1)

  def now(): TaskInfo = Option(TaskContext.get()).fold(none) { task =>
    val queryId = Option(task.getLocalProperty("sql.streaming.queryId")).getOrElse("")
    TaskInfo(queryId, task.numPartitions())
  }
}
