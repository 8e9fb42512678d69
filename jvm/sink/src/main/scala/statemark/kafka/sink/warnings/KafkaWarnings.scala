package statemark.kafka.sink.warnings

import org.apache.spark.sql.{SparkSession, SparkSessionExtensions, SparkSessionExtensionsProvider}
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.execution.{ColumnarRule, SparkPlan}
import org.apache.spark.sql.execution.streaming.state.{OutputQuery, StatemarkBridge}
import org.slf4j.LoggerFactory
import scala.util.control.NonFatal
import statemark.common.InvalidInputException
import statemark.spark.conf.StoreSettings

/** Warns of queries whose output to Kafka, or whose input from it, is not exactly-once, though they could be. It changes
  * nothing of them. Setting `kafka.warnings` silences it.
  *
  * Spark finds the class by itself, as it does `statemark.spark.StatemarkExtensions`. Kafka's client need not be there:
  * its classes are named where a query uses Kafka.
  *
  * ''Source:'' Spark 4.2 `SparkSessionExtensionsProvider`.
  */
final class KafkaWarnings extends SparkSessionExtensionsProvider {
  override def apply(extensions: SparkSessionExtensions): Unit =
    extensions.injectColumnar(_ => KafkaWarnings.rule)
}

private object KafkaWarnings {
  private val log = LoggerFactory.getLogger(classOf[KafkaWarnings])

  // A plan comes here when its query runs already, and so has an id and all of its sources.
  val rule: ColumnarRule = new ColumnarRule {
    override def preColumnarTransitions: Rule[SparkPlan] = Plans
  }

  private object Plans extends Rule[SparkPlan] {
    override def apply(plan: SparkPlan): SparkPlan = {
      for {
        spark <- SparkSession.getActiveSession
        // While a query is made, its sources may have queries of their own.
        _ <- StatemarkBridge.currentBatch(spark)
        query <- StatemarkBridge.ownQuery(spark)
      }
        try {
          WriteWarnings.check(query, plan, isWanted)
          ReadWarnings.check(query, isWanted)
        } catch {
          // What a query is warned of must not end it.
          case e @ (NonFatal(_) | _: LinkageError) if !e.isInstanceOf[InvalidInputException] =>
            KafkaWarnings.log.warn(
              s"Whether query ${query.id} is exactly-once on Kafka was not looked at.",
              e
            )
        }
      plan
    }

    private def isWanted: Boolean = StoreSettings.warnsOfKafka(conf.getAllConfs)
  }

  def warn(query: OutputQuery, what: String): Unit = log.warn(
    s"Query ${query.name.getOrElse(query.id)} $what ${StoreSettings.KafkaWarnings.key}=false silences this line."
  )
}
