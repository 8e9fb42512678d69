package statemark.spark

import org.apache.spark.sql.catalyst.expressions.{UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.execution.streaming.state.{StateStore, StateStoreProvider}
import org.apache.spark.sql.functions.timestamp_seconds
import org.apache.spark.sql.SQLContext
import org.scalatest.funsuite.AnyFunSuite
import scala.util.Random
import statemark.spark.provider.RowPairs

/** The scan of `dropDuplicatesWithinWatermark`, which finds what is too old by its values, removes what Spark's own
  * provider removes.
  */
class ScanByValueSuite extends AnyFunSuite with Providers with OneSession {
  private val toValue = UnsafeProjection.create(RowPairs.WithinWatermark)

  private def value(expires: Long): UnsafeRow = toValue(InternalRow(expires)).copy()

  private def opened(
      className: String,
      partition: Int,
      extra: Map[String, String]
  ): StateStoreProvider =
    open(extra, className, values = RowPairs.WithinWatermark, partition = partition)

  private def all(store: StateStore): Map[String, Long] =
    store.iterator().map(row => row.key.getString(0) -> row.value.getLong(0)).toMap

  /** One batch of the operator: rows whose key is new, then what the watermark has passed. */
  private def batch(
      provider: StateStoreProvider,
      version: Long,
      rows: Seq[(String, Long)],
      watermark: Long
  ): (Long, Map[String, Long]) = {
    val store = Line.getStore(provider, version, None, force = false)
    for ((key, expires) <- rows if store.get(Providers.key(key)) == null)
      store.put(Providers.key(key), value(expires))
    store.iterator().foreach { row =>
      if (watermark >= row.value.getLong(0)) store.remove(row.key)
    }
    val left = all(store)
    store.commit(): Unit
    (store.metrics.numKeys, left)
  }

  for (
    (name, extra) <- Seq(
      "rows are counted" -> Map.empty[String, String],
      "rows are not counted" -> Map(
        "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows" -> "false"
      ),
      "row checksums" -> Map("spark.sql.streaming.stateStore.rowChecksum.enabled" -> "true")
    )
  ) test(s"batches evict what they evict with Spark's provider: $name") {
    val random = new Random(7)
    val ours = opened(classOf[StatemarkStateStoreProvider].getName, partition = 0, extra)
    val sparks = opened(Providers.sparksOwn, partition = 1, extra)
    for (version <- 0 until 12) {
      val rows = Seq.fill(200)((s"k${random.nextInt(2000)}", version * 100L + random.nextInt(400)))
      val found = batch(ours, version, rows, watermark = version * 100L)
      assert(found == batch(sparks, version, rows, watermark = version * 100L))
      assert(found._2.values.forall(_ > version * 100L) && found._2.nonEmpty)
    }
  }

  test("a key is read before the scan goes on, or not at all") {
    val provider = opened(classOf[StatemarkStateStoreProvider].getName, partition = 0, Map.empty)
    val empty = Line.getStore(provider, 0, None, force = false)
    for (i <- 1 to 3) empty.put(Providers.key(s"k$i"), value(i.toLong))
    assert(empty.commit() == 1)
    val store = Line.getStore(provider, 1, None, force = false)
    val rows = store.iterator()
    val row = rows.next()
    assert(row.key.getString(0) == "k1" && row.key.getString(0) == "k1")
    for (i <- 2 to 3) {
      assert(rows.hasNext)
      // A value stays a row longer, as with Spark's own provider.
      assert(row.value.getLong(0) == i - 1)
      assert(intercept[IllegalStateException](row.key).getMessage.contains("gone on"))
      rows.next(): Unit
      assert(row.key.getString(0) == s"k${row.value.getLong(0)}")
    }
    assert(!rows.hasNext)
    intercept[IllegalStateException](row.key)
    store.abort()
  }

  test("the values are those that Spark's operator writes") {
    import spark.implicits._
    implicit val context: SQLContext = spark.sqlContext
    val input = Line.MemoryStream[(String, Long)]
    val checkpoint = queryDir.resolve("query").toString
    val query = input.toDF().toDF("key", "s").withColumn("at", timestamp_seconds($"s"))
      .withWatermark("at", "1 second").dropDuplicatesWithinWatermark("key")
      .writeStream.format("noop").option("checkpointLocation", checkpoint).start()
    input.addData(("a", 1L)): Unit
    query.processAllAvailable()
    query.stop()
    val rows = spark.read.format("statestore").load(checkpoint)
    // Nullable or not as well.
    assert(rows.schema("value").dataType == RowPairs.WithinWatermark)
  }
}
