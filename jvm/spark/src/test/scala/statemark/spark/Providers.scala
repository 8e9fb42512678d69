package statemark.spark

import java.nio.file.{Files, Path => JPath}
import java.util.{Comparator, UUID}
import org.apache.hadoop.conf.Configuration
import org.apache.spark.sql.catalyst.expressions.{UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String
import org.scalatest.{BeforeAndAfterEach, Suite}
import statemark.spark.process.JvmState
import statemark.testkit.{CountingAbstractFileSystem, CountingFileSystem}
import statemark.transaction.CommitPhase

/** Providers on a checkpoint location that counts what is asked of it: keys are strings, values
  * integers.
  */
trait Providers extends BeforeAndAfterEach { this: Suite =>
  protected var location: String = ""
  private var root: Option[JPath] = None
  private var opened = List.empty[StateStoreProvider]

  /** Settings of every provider that a test opens. */
  protected def settings: Map[String, String] = Map.empty

  override protected def beforeEach(): Unit = {
    super.beforeEach()
    val path = Files.createTempDirectory("statemark-provider-")
    root = Some(path)
    location = s"counting://$path/state"
  }

  override protected def afterEach(): Unit = {
    JvmState.clear()
    closeAll()
    root.foreach { path =>
      val walk = Files.walk(path)
      try walk.sorted(Comparator.reverseOrder[JPath]()).forEach(p => Files.deleteIfExists(p): Unit)
      finally walk.close()
    }
    super.afterEach()
  }

  protected def closeAll(): Unit = {
    opened.foreach(_.close())
    opened = Nil
  }

  /** What a provider of the run is handed. */
  protected def hadoopConf(runId: UUID): Configuration = Providers.hadoopConf(runId)

  /** The directory of the query in the local file system. */
  protected def queryDir: JPath = root.getOrElse(throw new IllegalStateException("no test runs"))

  /** Runs `body`, and `beside` while the first snapshot of it is uploaded. Providers of `body` are opened there. */
  protected def besideSnapshot(beside: => Unit)(body: => Unit): Unit = {
    var isDone = false
    JvmState.observer.set { phase =>
      if (phase == CommitPhase.SnapshotStarted && !isDone) {
        isDone = true
        beside
      }
    }
    try body
    finally JvmState.observer.clear()
    assert(isDone, "no snapshot was uploaded")
  }

  protected def storeDir: JPath = queryDir.resolve("state/0/0")

  protected def files(suffix: String): Seq[String] =
    Option(storeDir.toFile.list()).toSeq.flatten
      .filter(n => n.endsWith(suffix) && !n.startsWith(".")).sorted

  protected def open(
      extra: Map[String, String] = Map.empty,
      className: String = classOf[StatemarkStateStoreProvider].getName,
      usesFamilies: Boolean = false,
      runId: UUID = UUID.randomUUID(),
      partition: Int = 0,
      name: String = StateStoreId.DEFAULT_STORE_NAME,
      values: StructType = Providers.valueSchema
  ): StateStoreProvider = {
    val conf = new SQLConf()
    (settings ++ extra).foreach { case (k, v) => conf.setConfString(k, v) }
    val provider = StateStoreProvider.create(className)
    provider.init(
      StateStoreId(location, 0, partition, name),
      Providers.keySchema,
      values,
      NoPrefixKeyStateEncoderSpec(Providers.keySchema),
      usesFamilies,
      new StateStoreConf(conf),
      hadoopConf(runId)
    )
    opened = provider :: opened
    provider
  }

  /** Commits `rows` on `version`; what Spark is told of it. */
  protected def commit(
      provider: StateStoreProvider,
      version: Long,
      rows: Map[String, Int],
      id: Option[String] = None,
      force: Boolean = false
  ): StateStoreCheckpointInfo = {
    val store = Line.getStore(provider, version, id, force)
    put(store, rows)
    assert(store.commit() == version + 1)
    store.getStateStoreCheckpointInfo()
  }

  protected def put(store: StateStore, rows: Map[String, Int]): Unit =
    rows.foreach { case (k, v) => store.put(Providers.key(k), Providers.value(v)) }

  protected def rows(store: ReadStateStore): Map[String, Int] =
    store.iterator().map(pair => pair.key.getString(0) -> pair.value.getInt(0)).toMap

  /** Rows at a version, through a provider of its own. */
  protected def rowsAt(
      version: Long,
      id: Option[String] = None,
      extra: Map[String, String] = Map.empty,
      className: String = classOf[StatemarkStateStoreProvider].getName
  ): Map[String, Int] = {
    val reader = open(extra, className)
    val store = reader.getStore(version, id)
    try rows(store)
    finally {
      store.abort()
      reader.close()
    }
  }
}

object Providers {
  val sparksOwn: String = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

  val keySchema: StructType = StructType(Seq(StructField("key", StringType, nullable = true)))
  val valueSchema: StructType = StructType(Seq(StructField("value", IntegerType, nullable = true)))

  private val toKey = UnsafeProjection.create(keySchema)
  private val toValue = UnsafeProjection.create(valueSchema)

  def key(s: String): UnsafeRow = toKey(InternalRow(UTF8String.fromString(s))).copy()
  def value(i: Int): UnsafeRow = toValue(InternalRow(i)).copy()

  def hadoopConf(runId: UUID): Configuration = {
    val conf = new Configuration()
    conf.set("fs.counting.impl", classOf[CountingFileSystem].getName)
    conf.set("fs.AbstractFileSystem.counting.impl", classOf[CountingAbstractFileSystem].getName)
    conf.set(Line.runIdKey, runId.toString)
    conf
  }

  /** The entry of a batch in a commit log; with the id of its only version in format v2. */
  def commitEntry(id: Option[String]): String = id.fold("v1\n{\"nextBatchWatermarkMs\":0}") { i =>
    s"""v2\n{"nextBatchWatermarkMs":0,"stateUniqueIds":{"0":[["$i"]]}}"""
  }

  val v2: Map[String, String] = Map("spark.sql.streaming.stateStore.checkpointFormatVersion" -> "2")
}
