package statemark.bench

import java.nio.file.Path
import java.util.UUID

import org.apache.hadoop.conf.Configuration
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.internal.SQLConf

/** A provider as an executor opens it: set up from settings, with a run of its own. */
object Providers {

  /** @param location checkpoint location of the state, a path or URI */
  def open(
      contender: Contender,
      shape: Shape,
      location: String,
      localDir: Path
  ): StateStoreProvider = {
    val sqlConf = new SQLConf()
    contender.settings(localDir).foreach { case (k, v) => sqlConf.setConfString(k, v) }
    val hadoopConf = new Configuration()
    hadoopConf.set("sql.streaming.runId", UUID.randomUUID().toString)
    hadoopConf.set("fs.slow.impl", classOf[SlowFileSystem].getName)
    val provider = StateStoreProvider.create(contender.providerClass)
    provider.init(
      StateStoreId(location, operatorId = 0, partitionId = 0),
      shape.key,
      shape.value,
      shape.encoder,
      shape.columnFamilies,
      new StateStoreConf(sqlConf),
      hadoopConf,
      shape.multipleValues
    )
    provider
  }
}
