package statemark.spark.offline.checkpoint

import org.apache.spark.SparkException
import statemark.common.{Causes, StatemarkException}

/** Jobs of commands. */
private[offline] object Jobs {

  /** Runs a Spark job. An error of ours, whether a task throws it or who takes the results, comes as it is
    * and not in Spark's wrapping.
    */
  def run[A](job: => A): A =
    try job
    catch {
      case e: SparkException =>
        throw Causes.of(e).collectFirst { case own: StatemarkException => own }.getOrElse(e)
    }
}
