package statemark.spark.offline

import statemark.spark.StatemarkStateStoreProvider

/** A state store provider as an offset entry pins it, by the name of its class. */
sealed abstract class ProviderClass(val className: String, val shortName: String) {
  override def toString: String = shortName

  /** Whether its files in a checkpoint are those of Spark's RocksDB provider. */
  def usesRocksDbFiles: Boolean = this == ProviderClass.Statemark || this == ProviderClass.RocksDb
}

object ProviderClass {
  private val Package = "org.apache.spark.sql.execution.streaming.state"

  case object Statemark
      extends ProviderClass(classOf[StatemarkStateStoreProvider].getName, "statemark")
  case object RocksDb extends ProviderClass(s"$Package.RocksDBStateStoreProvider", "rocksdb")
  case object Hdfs extends ProviderClass(s"$Package.HDFSBackedStateStoreProvider", "hdfs")
  final case class Unknown(name: String) extends ProviderClass(name, name)

  val known: Seq[ProviderClass] = Seq(Statemark, RocksDb, Hdfs)

  def of(className: String): ProviderClass =
    known.find(_.className == className).getOrElse(Unknown(className))
}
