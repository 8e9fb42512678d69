package statemark.spark

import java.nio.file.{Files, Path}
import org.apache.spark.sql.SQLContext
import org.apache.spark.sql.streaming.StreamingQuery
import org.scalatest.funsuite.AnyFunSuite
import statemark.spark.conf.{ProviderName, StoreSettings}
import statemark.spark.conf.PinnedProvider

/** Goal: nobody takes a query for one on Statemark whose checkpoint pins another provider, or the other way round. Method:
  * queries that go on in a session which names another provider than the one in which they began.
  */
class PinnedProviderSuite extends AnyFunSuite with OneSession {
  private val rocksdb = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
  private val hdfs = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
  private val statemark = ProviderName.Statemark

  /** A count of rows, in runs on one checkpoint. */
  private class Count {
    private implicit val context: SQLContext = spark.sqlContext
    import spark.implicits._
    private val input = Line.MemoryStream[Long]
    val checkpoint: Path = Files.createTempDirectory("pinned")

    def add(): Unit = input.addData(1L, 2L): Unit

    def begun(): StreamingQuery =
      input.toDF().groupBy("value").count().writeStream.format("noop")
        .outputMode("update").option("checkpointLocation", checkpoint.toString).start()

    /** Runs it in a session that names a provider, or none, and returns what was said of the run. */
    def noteIn(chosen: Option[String]): Option[String] = {
      chosen.fold(spark.conf.unset(ProviderName.Key))(spark.conf.set(ProviderName.Key, _))
      add()
      val query = begun()
      try query.processAllAvailable()
      finally query.stop()
      PinnedProvider.noteOf(query.runId)
    }
  }

  private def moved(chosen: String, used: String, target: String): Unit =
    test(s"a query that pins ${shortOf(used)} in a session that names ${shortOf(chosen)}") {
      val count = new Count
      assert(count.noteIn(Some(used)).isEmpty)
      val note = count.noteIn(Some(chosen)).get
      assert(note.startsWith(s"The state is kept in $used, which the checkpoint "))
      assert(note.contains(s"and not in $chosen, which the session named. "))
      assert(note.endsWith(s": statemark switch file:${count.checkpoint} --to $target"))
    }

  private def shortOf(name: String) = name.split('.').last

  moved(chosen = statemark, used = rocksdb, "statemark")
  moved(chosen = statemark, used = hdfs, "statemark")
  moved(chosen = rocksdb, used = statemark, "rocksdb")

  test("nothing is said where the session names none, or neither of the two is Statemark") {
    val ours = new Count
    assert(ours.noteIn(Some(statemark)).isEmpty)
    assert(ours.noteIn(None).isEmpty)
    val theirs = new Count
    assert(theirs.noteIn(Some(hdfs)).isEmpty)
    assert(theirs.noteIn(Some(rocksdb)).isEmpty)
  }

  test("a session that allows real-time queries names Statemark without its class") {
    val count = new Count
    assert(count.noteIn(Some(rocksdb)).isEmpty)
    spark.conf.set(StoreSettings.AllowRealTime.key, "true")
    try assert(count.noteIn(None).exists(_.endsWith("--to statemark")))
    finally spark.conf.unset(StoreSettings.AllowRealTime.key)
  }

  test("a provider of somebody else's cannot be moved") {
    val note = PinnedProvider.note("/c", used = "a.Provider", chosen = statemark).get
    assert(note.endsWith("To use that one, begin with a new checkpoint location."))
  }

  test("what a session named counts, whatever it names by the time that a batch is planned") {
    val count = new Count
    spark.conf.set(ProviderName.Key, statemark)
    val query = count.begun()
    spark.conf.set(ProviderName.Key, rocksdb)
    try {
      count.add()
      query.processAllAvailable()
    } finally query.stop()
    assert(PinnedProvider.noteOf(query.runId).isEmpty)
  }

  test("a location that a shell would split is quoted") {
    val note = PinnedProvider.note("/my c'p", used = rocksdb, chosen = statemark).get
    assert(note.endsWith("""run: statemark switch '/my c'\''p' --to statemark"""))
  }
}
