package statemark.spark.live

import org.apache.spark.SparkEnv
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.connector.read.{
  Batch,
  InputPartition,
  PartitionReader,
  PartitionReaderFactory,
  Scan
}
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.types.{BooleanType, StringType, StructType}
import org.apache.spark.unsafe.types.UTF8String
import statemark.spark.cluster.JarVersions
import statemark.spark.conf.SqlFunctions
import statemark.spark.process.JvmState

/** A process of this application, and which parts of the plugin it has.
  *
  * @param process id of the executor, `driver` for the driver
  * @param version of the jar; None where the classes come from no jar
  * @param hasPlugin whether Spark's setting `spark.plugins` started the plugin there
  * @param hasExtension whether the session was built with the extension; false on executors, which have no session
  */
private[live] final case class Installation(
    process: String,
    version: Option[String],
    hasPlugin: Boolean,
    hasExtension: Boolean
) {
  def row: InternalRow =
    InternalRow(text(process), version.map(text).orNull, hasPlugin, hasExtension)

  private def text(s: String) = UTF8String.fromString(s)
}

private[live] object Installation {
  val schema: StructType = new StructType()
    .add("process", StringType, nullable = false)
    .add("version", StringType)
    .add("plugin", BooleanType, nullable = false)
    .add("extension", BooleanType, nullable = false)

  /** Returns what this process has. */
  def here(hasExtension: Boolean): Installation = Installation(
    SparkEnv.get.executorId,
    JarVersions.own,
    JvmState.askDriver().isDefined,
    hasExtension
  )

  /** Returns what the driver has. */
  def ofDriver(spark: SparkSession): Installation =
    here(hasExtension = spark.catalog.functionExists(SqlFunctions.Latest))
}

/** A row of the driver, and one of each executor that a task of this read met: Spark spreads them over those that are
  * idle, and promises nothing.
  */
private[live] final class InstallationScan(spark: SparkSession) extends Scan with Batch {
  override def readSchema(): StructType = Installation.schema
  override def description(): String = "statemark installation"
  override def toBatch: Batch = this

  override def planInputPartitions(): Array[InputPartition] = {
    val executors =
      if (spark.sparkContext.isLocal) 0
      // Spark counts the driver among them.
      else (spark.sparkContext.statusTracker.getExecutorInfos.length - 1).max(0)
    val driver: InputPartition = DriversRow(Installation.ofDriver(spark))
    driver +: Array.fill[InputPartition](executors)(ExecutorsRow)
  }

  override def createReaderFactory(): PartitionReaderFactory = InstallationReaders
}

private final case class DriversRow(found: Installation) extends InputPartition
private case object ExecutorsRow extends InputPartition

private object InstallationReaders extends PartitionReaderFactory {
  override def createReader(partition: InputPartition): PartitionReader[InternalRow] = {
    val found = partition match {
      case DriversRow(found) => found
      case _ => Installation.here(hasExtension = false)
    }
    new PartitionReader[InternalRow] {
      private val rows = Iterator(found.row)
      override def next(): Boolean = rows.hasNext
      override def get(): InternalRow = rows.next()
      override def close(): Unit = ()
    }
  }
}
