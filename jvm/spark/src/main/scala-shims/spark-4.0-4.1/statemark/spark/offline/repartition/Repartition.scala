package statemark.spark.offline.repartition

import org.apache.spark.sql.SparkSession
import scala.annotation.unused
import statemark.spark.offline.checkpoint.QueryCheckpoint
import statemark.spark.offline.cli.UserError

/** These lines of Spark cannot write a store anew at a version, and start a query beside an unfinished
  * repartition.
  */
final class Repartition(
    session: SparkSession,
    checkpoint: QueryCheckpoint,
    @unused progress: RepartitionProgress => Unit
) {
  def run(
      @unused partitions: Int,
      @unused skipUncommitted: Boolean = false
  ): RepartitionResult = refuse()

  def rollback(): RepartitionResult = refuse()

  def dryRun(
      @unused partitions: Int,
      @unused skipUncommitted: Boolean = false
  ): RepartitionResult = refuse()

  def dryRollback(): RepartitionResult = refuse()

  def sinkLacks(@unused directory: String): Seq[Long] = refuse()

  def completeSink(@unused directory: String): Seq[Long] = refuse()

  private def refuse(): Nothing = throw UserError(
    s"${checkpoint.root} cannot be repartitioned with Spark ${session.version}",
    "a repartition needs Spark 4.2 or newer",
    "run the command with the statemark and pyspark of Spark 4.2; the query needs that Spark from then on"
  )
}
