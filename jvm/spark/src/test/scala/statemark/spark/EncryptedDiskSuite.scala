package statemark.spark

import java.util.UUID
import org.apache.spark.SparkException
import org.apache.spark.sql.execution.streaming.state.{
  NoPrefixKeyStateEncoderSpec,
  StateStoreConf,
  StateStoreId
}
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.streaming.StreamingQueryException
import org.scalatest.funsuite.AnyFunSuite
import statemark.common.InvalidInputException
import statemark.spark.conf.StoreSettings

/** Where Spark encrypts what it writes to local disks, no base store outlives its process. */
class EncryptedDiskSuite extends AnyFunSuite with FileQueries {
  override protected def sessionSettings: Map[String, String] =
    super.sessionSettings + ("spark.io.encryption.enabled" -> "true")

  test("localDir is refused by name on the driver, before any task, and nothing is left there") {
    val e = intercept[StreamingQueryException](run(1))
    assert(e.getCause.isInstanceOf[InvalidInputException])
    assert(e.getCause.getMessage.contains(
      s"localDir is '$local' and spark.io.encryption.enabled is true"
    ))
    assert(!local.toFile.exists)
  }

  test("without it stores go with the process, also on a local master") {
    for (wanted <- Seq(fromNothing, fromCheckpoint))
      assert(served(run(1, hasLocalDir = false)) == Map(wanted))
  }

  test("a provider that was refused on an executor can be closed") {
    val provider = new StatemarkStateStoreProvider
    val conf = new SQLConf
    conf.setConfString(s"${StoreSettings.Prefix}localDir", local.toString)
    provider.init(
      StateStoreId(checkpoint.resolve("state").toString, 0, 0),
      Providers.keySchema,
      Providers.valueSchema,
      NoPrefixKeyStateEncoderSpec(Providers.keySchema),
      useColumnFamilies = false,
      new StateStoreConf(conf),
      Providers.hadoopConf(UUID.randomUUID())
    )
    spark.sparkContext: Unit
    val e = intercept[SparkException](provider.getStore(0))
    assert(e.getCause.getMessage.contains("spark.io.encryption.enabled is true"))
    provider.close()
  }
}
