package statemark.spark.conf

import java.util.UUID
import org.apache.hadoop.conf.Configuration

/** A state store provider as an offset entry pins it, by the name of its class. */
sealed abstract class ProviderClass(val className: String, val shortName: String) {
  override def toString: String = shortName

  /** Whether its files in a checkpoint are those of Spark's RocksDB provider. */
  def usesRocksDbFiles: Boolean = this == ProviderClass.Statemark || this == ProviderClass.RocksDb
}

object ProviderClass {
  private final val Package = "org.apache.spark.sql.execution.streaming.state"

  case object Statemark
      extends ProviderClass(ProviderName.Statemark, "statemark")
  case object RocksDb extends ProviderClass(s"$Package.RocksDBStateStoreProvider", "rocksdb")
  case object Hdfs extends ProviderClass(s"$Package.HDFSBackedStateStoreProvider", "hdfs")
  final case class Unknown(name: String) extends ProviderClass(name, name)

  // Not before one is asked for: each object refers to this one while it is made.
  lazy val known: Seq[ProviderClass] = Seq(Statemark, RocksDb, Hdfs)

  def of(className: String): ProviderClass =
    known.find(_.className == className).getOrElse(Unknown(className))

  /** A configuration to open providers with outside of a query: with a run of its own, which they take
    * from this key.
    *
    * ''Source:'' Spark 4.2 `StreamExecution.RUN_ID_KEY`
    */
  def newRun(hadoopConf: Configuration): Configuration = {
    val own = new Configuration(hadoopConf)
    own.set("sql.streaming.runId", UUID.randomUUID().toString)
    own
  }
}
