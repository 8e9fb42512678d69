package statemark.spark

import scala.concurrent.duration.DurationInt
import scala.reflect.ClassTag
import scala.util.Random
import statemark.spark.process.Relocated.CheckpointFileManager

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types.StructType
import org.scalactic.source.Position
import org.scalatest.Tag
import org.scalatest.concurrent.Eventually.{eventually, timeout}

/** Spark's own acceptance suite for state store providers, run against the class `P` through the
  * public interface alone: what a provider holds is always asked of a second one on the same
  * checkpoint.
  *
  * Every test runs under each of [[variants]], with a file system that counts open streams; a
  * stream left open fails the test that left it.
  *
  * Tests that Spark wires to its HDFS provider whatever `P` is (Spark 4.2.0,
  * StateStoreSuite.scala): "two concurrent StateStores … with release()" (2072, conf 2079),
  * "getWriteStore correctly uses existing read store" (2123, conf 2127), "StateStore.get" (2248,
  * conf 2257) and "SPARK-48997" (2446, conf 2456).
  */
abstract class ProviderSuiteBase[P <: StateStoreProvider: ClassTag] extends SparkSuite[P] {
  import StateStoreTestsHelper.{newDir, rowPairToDataPair}

  /** Settings that every test runs under: each pair of values of two settings occurs once. */
  protected def variants: Seq[ProviderSuiteBase.Variant] = ProviderSuiteBase.variants

  protected def providerClass: Class[_] = implicitly[ClassTag[P]].runtimeClass

  override protected def test(testName: String, testTags: Tag*)(testBody: => Any)(implicit
      pos: Position
  ): Unit =
    variants.filterNot(_ => notForOthers(testName)).foreach { variant =>
      super.test(s"$testName ($variant)", testTags: _*) {
        val settings = variant.settings :+
          (SQLConf.STATE_STORE_PROVIDER_CLASS.key -> providerClass.getName)
        withSQLConf(settings: _*)(testBody)
      }
    }

  override protected def beforeEach(): Unit = {
    super.beforeEach()
    StateStore.stop()
    TestFiles.forget()
  }

  override protected def afterEach(): Unit =
    try {
      StateStore.stop()
      eventually(timeout(5.seconds))(TestFiles.assertClosed())
    } finally super.afterEach()

  super.test("the file system of these tests notices a stream left open") {
    val dir = new Path(newDir())
    val manager = CheckpointFileManager.create(dir, TestFiles.forTest(new Configuration()))
    manager.createAtomic(new Path(dir, "file"), overwriteIfPossible = false).close()
    val stream = manager.open(new Path(dir, "file"))
    intercept[IllegalStateException](TestFiles.assertClosed())
    stream.close()
    TestFiles.assertClosed()
  }

  override def newStoreProvider(): P = newStoreProvider(useColumnFamilies = false)

  override def newStoreProvider(useColumnFamilies: Boolean): P =
    newStoreProvider(newStoreId(), useColumnFamilies)

  override def newStoreProvider(storeId: StateStoreId): P =
    newStoreProvider(storeId, useColumnFamilies = false)

  override def newStoreProvider(storeId: StateStoreId, useColumnFamilies: Boolean): P =
    open(storeId, useColumnFamilies = useColumnFamilies)

  override def newStoreProvider(storeId: StateStoreId, conf: Configuration): P =
    open(storeId, hadoopConf = conf)

  override def newStoreProvider(
      minDeltasForSnapshot: Int,
      numOfVersToRetainInMemory: Int
  ): P = {
    val conf = getDefaultSQLConf(minDeltasForSnapshot, numOfVersToRetainInMemory)
    open(newStoreId(), sqlConf = conf)
  }

  override def newStoreProvider(
      keySchema: StructType,
      keyStateEncoderSpec: KeyStateEncoderSpec,
      useColumnFamilies: Boolean
  ): P = open(newStoreId(), keySchema, Some(keyStateEncoderSpec), useColumnFamilies)

  override def newStoreProviderWithClonedConf(storeId: StateStoreId): P =
    open(storeId, sqlConf = cloneSQLConf())

  override def newStoreProviderNoInit(): P =
    providerClass.getConstructor().newInstance().asInstanceOf[P]

  override def getLatestData(
      storeProvider: P,
      useColumnFamilies: Boolean
  ): Set[((String, Int), Int)] = {
    val latest = CheckpointFiles.of(storeProvider.stateStoreId).latestVersion
    getData(storeProvider, latest.toInt, useColumnFamilies)
  }

  override def getData(
      storeProvider: P,
      version: Int,
      useColumnFamilies: Boolean
  ): Set[((String, Int), Int)] =
    tryWithProviderResource(newStoreProvider(storeProvider.stateStoreId, useColumnFamilies)) {
      reader =>
        val store = reader.getStore(version)
        try store.iterator().map(rowPairToDataPair).toSet
        finally store.abort()
    }

  override def getDefaultSQLConf(
      minDeltasForSnapshot: Int,
      numOfVersToRetainInMemory: Int
  ): SQLConf = {
    val conf = cloneSQLConf()
    conf.setConf(SQLConf.STATE_STORE_MIN_DELTAS_FOR_SNAPSHOT, minDeltasForSnapshot)
    conf.setConf(SQLConf.MAX_BATCHES_TO_RETAIN_IN_MEMORY, numOfVersToRetainInMemory)
    conf
  }

  private def newStoreId(): StateStoreId = StateStoreId(newDir(), Random.nextInt().toLong, 0)

  private def open(
      storeId: StateStoreId,
      keySchema: StructType = keySchema,
      keyEncoder: Option[KeyStateEncoderSpec] = None,
      useColumnFamilies: Boolean = false,
      sqlConf: SQLConf = SQLConf.get,
      hadoopConf: Configuration = new Configuration()
  ): P = {
    val provider = newStoreProviderNoInit()
    provider.init(
      storeId,
      keySchema,
      valueSchema,
      keyEncoder.getOrElse(NoPrefixKeyStateEncoderSpec(keySchema)),
      useColumnFamilies,
      new StateStoreConf(sqlConf),
      TestFiles.forTest(hadoopConf),
      stateSchemaProvider = Some(new TestStateSchemaProvider)
    )
    provider
  }
}

object ProviderSuiteBase {

  final case class Variant(encoding: String, changelog: Boolean, rowChecksum: Boolean) {
    def settings: Seq[(String, String)] = Seq(
      "spark.sql.streaming.stateStore.encodingFormat" -> encoding,
      "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled" -> changelog.toString,
      "spark.sql.streaming.stateStore.rowChecksum.enabled" -> rowChecksum.toString
    )
    override def toString: String = s"$encoding, changelog $changelog, row checksum $rowChecksum"
  }

  val variants: Seq[Variant] = Seq(
    Variant("unsaferow", changelog = true, rowChecksum = false),
    Variant("unsaferow", changelog = false, rowChecksum = true),
    Variant("avro", changelog = true, rowChecksum = true),
    Variant("avro", changelog = false, rowChecksum = false)
  )
}
