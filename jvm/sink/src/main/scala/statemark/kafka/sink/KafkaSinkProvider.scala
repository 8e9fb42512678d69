package statemark.kafka.sink

import java.util.{Map => JavaMap}
import org.apache.spark.sql.connector.catalog.{Table, TableProvider}
import org.apache.spark.sql.connector.expressions.Transform
import org.apache.spark.sql.sources.DataSourceRegister
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap
import scala.jdk.CollectionConverters._

/** Format `statemark-kafka`: output of a streaming query to Kafka, each row exactly once for readers at
  * `read_committed`.
  *
  * Spark makes one of each data source to see its name, so nothing here, or in what it extends, names a class of Kafka's.
  */
final class KafkaSinkProvider extends TableProvider with DataSourceRegister {
  override def shortName(): String = KafkaSinkProvider.Name

  override def inferSchema(options: CaseInsensitiveStringMap): StructType = new StructType

  override def getTable(
      schema: StructType,
      partitioning: Array[Transform],
      properties: JavaMap[String, String]
  ): Table = {
    KafkaLibrary.require(getClass.getClassLoader)
    SinkTable.of(properties.asScala.toMap)
  }
}

private[sink] object KafkaSinkProvider {
  val Name: String = "statemark-kafka"
}
