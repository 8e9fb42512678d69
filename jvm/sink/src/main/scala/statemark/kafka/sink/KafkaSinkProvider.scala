package statemark.kafka.sink

import java.util.{Map => JavaMap}
import org.apache.spark.sql.{DataFrame, SQLContext, SaveMode}
import org.apache.spark.sql.catalyst.util.CaseInsensitiveMap
import org.apache.spark.sql.connector.catalog.{Table, TableProvider}
import org.apache.spark.sql.connector.expressions.Transform
import org.apache.spark.sql.sources.{BaseRelation, CreatableRelationProvider, DataSourceRegister}
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap
import scala.jdk.CollectionConverters._
import statemark.kafka.sink.conf.{KafkaLibrary, SinkFormat}
import statemark.spark.errors.FormatRefusedException

/** Format `statemark-kafka`: output of a streaming query, or of a batch, to Kafka, each row exactly once for readers at
  * `read_committed`; and a read that waits for such output ([[OutputTable]]).
  *
  * Spark makes one of each data source to see its name, so nothing here, or in what it extends, names a class of Kafka's.
  */
final class KafkaSinkProvider
    extends TableProvider
    with CreatableRelationProvider
    with DataSourceRegister {
  override def shortName(): String = SinkFormat.Name

  override def inferSchema(options: CaseInsensitiveStringMap): StructType = new StructType

  /** Asks Spark for the columns of a query with its options, before the query starts. */
  override def supportsExternalMetadata(): Boolean = true

  override def getTable(
      schema: StructType,
      partitioning: Array[Transform],
      properties: JavaMap[String, String]
  ): Table = written {
    val options = properties.asScala.toMap
    if (OutputTable.isMeant(options)) new OutputTable(new CaseInsensitiveStringMap(properties))
    else SinkTable.of(options, schema)
  }

  /** Writes a batch: Spark brings `df.write` here whatever its mode. */
  override def createRelation(
      sqlContext: SQLContext,
      mode: SaveMode,
      parameters: Map[String, String],
      data: DataFrame
  ): BaseRelation = {
    written(BatchWrites.write(mode, KafkaSinkProvider.asWritten(parameters), data))
    new Written(sqlContext)
  }

  /** Runs what Spark's user has called: a failure is Spark's own class there. */
  private def written[A](step: => A): A =
    FormatRefusedException.where(s"A write of format '${SinkFormat.Name}' failed") {
      KafkaLibrary.require(getClass.getClassLoader)
      step
    }
}

private[sink] object KafkaSinkProvider {

  /** Returns options as the user has written them: Spark's map says its names in small letters, and a plugin of Kafka's may
    * have capitals in its own.
    */
  def asWritten(parameters: Map[String, String]): Map[String, String] = parameters match {
    case spelt: CaseInsensitiveMap[String @unchecked] => spelt.originalMap
    case other => other
  }
}

/** What Spark wants back from a write, and does not read. */
private final class Written(override val sqlContext: SQLContext) extends BaseRelation {
  override def schema: StructType = new StructType
}
