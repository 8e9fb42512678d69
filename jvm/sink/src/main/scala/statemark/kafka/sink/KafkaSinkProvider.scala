package statemark.kafka.sink

import java.util.{Map => JavaMap}
import org.apache.spark.sql.{DataFrame, SQLContext, SaveMode}
import org.apache.spark.sql.connector.catalog.{Table, TableProvider}
import org.apache.spark.sql.connector.expressions.Transform
import org.apache.spark.sql.sources.{BaseRelation, CreatableRelationProvider, DataSourceRegister}
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap
import scala.jdk.CollectionConverters._

/** Format `statemark-kafka`: output of a streaming query to Kafka, each row exactly once for readers at
  * `read_committed`.
  *
  * Spark makes one of each data source to see its name, so nothing here, or in what it extends, names a class of Kafka's.
  */
final class KafkaSinkProvider
    extends TableProvider
    with CreatableRelationProvider
    with DataSourceRegister {
  override def shortName(): String = SinkFormat.Name

  override def inferSchema(options: CaseInsensitiveStringMap): StructType = new StructType

  override def getTable(
      schema: StructType,
      partitioning: Array[Transform],
      properties: JavaMap[String, String]
  ): Table = {
    KafkaLibrary.require(getClass.getClassLoader)
    SinkTable.of(properties.asScala.toMap)
  }

  /** Refuses `df.write`, which Spark brings here whatever its mode. */
  override def createRelation(
      sqlContext: SQLContext,
      mode: SaveMode,
      parameters: Map[String, String],
      data: DataFrame
  ): BaseRelation = throw SinkFormat.refused(
    "A batch write",
    "it has no checkpoint that numbers its tries, so a second one could not be told from new rows",
    "Write a stream: a folder or topic that is read with Trigger.AvailableNow is a batch with a " +
      "checkpoint; or use Spark's own sink, which may write rows twice",
    "df.write"
  )
}
