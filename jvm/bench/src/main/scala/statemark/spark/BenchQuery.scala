package statemark.spark

import statemark.spark.process.{JvmState, TaskInfo}

/** Plays the task of a query, which no benchmark has: stores without a query leave nothing on disk. */
object BenchQuery {
  def begin(): Unit = JvmState.runningTask.set(() => TaskInfo("bench-query", 1))
}
