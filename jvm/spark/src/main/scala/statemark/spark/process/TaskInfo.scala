package statemark.spark.process

import org.apache.spark.TaskContext

/** What the driver says of the query to the task that uses a store.
  *
  * @param queryId persistent id of the streaming query, empty where none runs
  * @param partitions number of state partitions, -1 where unknown
  * @param hasTemporaryCheckpoint whether the query's checkpoint location is deleted when the driver's process ends
  * @param isOfBatch whether the task belongs to a batch of the query; tasks of readers do not
  * @param queryName what users call the query, empty where they gave it no name
  */
final case class TaskInfo(
    queryId: String,
    partitions: Int,
    hasTemporaryCheckpoint: Boolean = false,
    isOfBatch: Boolean = false,
    queryName: String = ""
) {

  /** What names the query in what outlives its runs: its name, or its id. */
  def query: String = if (queryName.isEmpty) queryId else queryName
}

object TaskInfo {

  /** The local property by which the driver tells the tasks of a batch that the query's checkpoint is temporary. */
  val TemporaryCheckpoint: String = "statemark.temporaryCheckpoint"

  /** The local property by which the driver tells the tasks of a batch what the query is called. */
  val QueryName: String = "statemark.queryName"

  val none: TaskInfo = TaskInfo("", -1)

  def now(): TaskInfo = Option(TaskContext.get()).fold(none) { task =>
    val queryId = Option(task.getLocalProperty("sql.streaming.queryId")).getOrElse("")
    val isTemporary = Option(task.getLocalProperty(TemporaryCheckpoint)).contains("true")
    val isOfBatch = Option(task.getLocalProperty("streaming.sql.batchId")).isDefined
    val name = Option(task.getLocalProperty(QueryName)).getOrElse("")
    TaskInfo(queryId, task.numPartitions(), isTemporary, isOfBatch, name)
  }
}
