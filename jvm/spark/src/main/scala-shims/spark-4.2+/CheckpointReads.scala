package org.apache.spark.sql.execution.streaming.state

import org.apache.spark.sql.SparkSession

/** What Spark's format `statestore` needs on these lines to read the checkpoint of a running query: nothing. */
trait CheckpointReads {

  /** Runs a step of Spark's format `statestore`. It finds the format of the checkpoint out. */
  def readingCheckpoint[A](
      @annotation.unused spark: SparkSession,
      @annotation.unused hasIds: => Boolean
  )(step: => A): A = step

  /** Whether Spark's format `statestore` makes the directories of a state that it is asked for and that is not there; the
    * checkpoint has an operator more from then on, which has no metadata. It does not.
    */
  val makesMissingState: Boolean = false
}
