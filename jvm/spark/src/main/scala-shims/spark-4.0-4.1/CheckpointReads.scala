package org.apache.spark.sql.execution.streaming.state

import org.apache.spark.sql.{classic, SparkSession}
import org.apache.spark.sql.internal.SQLConf

/** What Spark's format `statestore` needs on these lines to read the checkpoint of a running query. */
trait CheckpointReads {

  /** Runs a step of Spark's format `statestore`. It takes the format of the checkpoint from the session that
    * reads, and refuses a commit log of the other one.
    */
  def readingCheckpoint[A](spark: SparkSession, hasIds: => Boolean)(step: => A): A = {
    val key = SQLConf.STATE_STORE_CHECKPOINT_FORMAT_VERSION.key
    val format = if (hasIds) "2" else "1"
    if (spark.conf.get(key) == format) step
    else {
      val own = spark.asInstanceOf[classic.SparkSession].cloneSession()
      own.conf.set(key, format)
      own.withActive(step)
    }
  }

  /** Whether Spark's format `statestore` makes the directories of a state that it is asked for and that is not there; the
    * checkpoint has an operator more from then on, which has no metadata. It does.
    */
  val makesMissingState: Boolean = true
}
