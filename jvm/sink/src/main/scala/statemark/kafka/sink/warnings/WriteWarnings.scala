package statemark.kafka.sink.warnings

import java.util.UUID
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.command.ExecutedCommandExec
import org.apache.spark.sql.execution.datasources.SaveIntoDataSourceCommand
import org.apache.spark.sql.execution.datasources.v2.WriteToDataSourceV2Exec
import org.apache.spark.sql.execution.streaming.sources.{
  MicroBatchWrite,
  WriteToMicroBatchDataSource
}
import org.apache.spark.sql.execution.streaming.state.OutputQuery
import statemark.kafka.conf.{ProducerRules, SinkSettings}
import statemark.kafka.sink.conf.SinkFormat
import statemark.kafka.sink.driver.Recent

/** Warns once in a run of a query that writes with Spark's own sink, as a stream or in `foreachBatch`. */
private object WriteWarnings {
  private val warned = new Recent[UUID]

  // Spark's connector is not on the class path of this project: its classes are known by their names.
  private val StreamingWrite = "org.apache.spark.sql.kafka010.KafkaStreamingWrite"
  private val Provider = "org.apache.spark.sql.kafka010.KafkaSourceProvider"

  /** @param isWanted asked where there is something to warn of */
  def check(query: OutputQuery, plan: SparkPlan, isWanted: => Boolean): Unit =
    optionsOf(query, plan).foreach { options =>
      if (isWanted && warned.add(query.runId)) {
        KafkaWarnings.warn(
          query,
          "writes to Kafka with Spark's own sink: rows of a batch that fails may appear twice. " +
            s"""format("${SinkFormat.Name}") writes each row once."""
        )
        val kafka = SinkSettings.kafkaOptions(options)
        ProducerRules.withoutIdempotence(kafka).foreach { case (name, value) =>
          KafkaWarnings.warn(
            query,
            s"switches the idempotence of Kafka's producer off with option kafka.$name=$value: a row that the producer " +
              "sends again may appear twice, or behind later ones. Leave the option out."
          )
        }
      }
    }

  /** The options of a write to Kafka by Spark's own sink, if the plan is one. */
  private def optionsOf(query: OutputQuery, plan: SparkPlan): Option[Map[String, String]] =
    plan match {
      case ExecutedCommandExec(save: SaveIntoDataSourceCommand)
          if save.dataSource.getClass.getName == Provider =>
        Some(save.options)
      case write: WriteToDataSourceV2Exec =>
        write.batchWrite match {
          case batch: MicroBatchWrite if batch.writeSupport.getClass.getName == StreamingWrite =>
            query.plan().collectFirst { case to: WriteToMicroBatchDataSource => to.writeOptions }
          case _ => None
        }
      case _ => None
    }
}
