package statemark.bench

import java.nio.file.{Files, Path}
import java.util.concurrent.locks.LockSupport
import java.util.concurrent.TimeUnit
import statemark.spark.BenchQuery

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state.{StateStore, StateStoreProvider}
import org.apache.spark.sql.functions.{count, max}
import org.apache.spark.sql.streaming.{StreamingQuery, Trigger}

/** State that one process leaves and another comes back to. Each method has a process to itself.
  *
  * @param dir holds the checkpoint; the state is written once and restarted several times
  * @param onlyReads whether a restart leaves the checkpoint as it was
  */
sealed abstract class Restarts(val name: String, val onlyReads: Boolean) {
  def build(dir: Path, contender: Contender, keys: Int): Unit

  /** Milliseconds until the state serves.
    * @param prefix makes the checkpoint location of a path: nothing, or the slow file system
    */
  def restart(dir: Path, contender: Contender, keys: Int, prefix: String, localDir: Path): Double
}

object Restarts {
  val all: Seq[Restarts] = Seq(OneStore, WholeQuery)
}

/** One partition, from the start of the provider to its first row. */
object OneStore extends Restarts("one partition, first row", onlyReads = true) {
  private val batch = 500000

  override def build(dir: Path, contender: Contender, keys: Int): Unit = {
    val provider = open(dir, contender, "", dir.resolve("local"))
    var version = 0L
    for (from <- 0 until keys by batch) {
      val store = provider.getStore(version)
      for (i <- from until math.min(from + batch, keys)) store.put(key(i), Rows.valueOf(i))
      version = store.commit()
      provider.doMaintenance()
    }
    // A few small batches after the last snapshot, as a running query has them.
    for (i <- 0 until 3) {
      val store = provider.getStore(version)
      for (k <- 0 until 1000) store.put(key(k), Rows.valueOf(i))
      version = store.commit()
    }
    provider.close()
    setVersion(dir, version)
  }

  /** The version that was committed last. */
  def version(dir: Path): Long = Files.readString(dir.resolve("version")).toLong

  def setVersion(dir: Path, version: Long): Unit =
    Files.writeString(dir.resolve("version"), version.toString): Unit

  override def restart(
      dir: Path,
      contender: Contender,
      keys: Int,
      prefix: String,
      localDir: Path
  ): Double = {
    org.rocksdb.RocksDB.loadLibrary() // an executor loads it once
    val version = this.version(dir)
    val provider = open(dir, contender, prefix, localDir)
    var found = 0
    val nanos = Rounds.timed {
      val store = provider.getStore(version)
      found = store.get(key(keys / 2), StateStore.DEFAULT_COL_FAMILY_NAME).getInt(0)
      store.abort()
    }
    require(found == keys / 2, s"$found is not the row of ${keys / 2}")
    provider.close()
    nanos / 1e6
  }

  def key(i: Int): UnsafeRow = Rows.keyOf(Integer.reverse(i), i * 1000L)

  def open(
      dir: Path,
      contender: Contender,
      prefix: String,
      localDir: Path
  ): StateStoreProvider = {
    BenchQuery.begin()
    Providers.open(contender, Rows.plain, s"$prefix${dir.resolve("checkpoint/state")}", localDir)
  }
}

/** A query with an aggregation in 64 partitions, from `start()` to its first finished batch. */
object WholeQuery extends Restarts("query of 64 partitions, first batch", onlyReads = false) {
  private val Partitions = 64
  private val Batches = 10
  private val SmallBatch = 1000
  private val MaxBatches = 40

  override def build(dir: Path, contender: Contender, keys: Int): Unit = {
    val often = Map("spark.sql.streaming.stateStore.maintenanceInterval" -> "2s")
    val spark = session(dir, contender, dir.resolve("local"), often)
    for (_ <- 0 until Batches) run(spark, dir, "", keys / Batches): Unit
    // Both come to the same number of changelogs after the snapshot of the whole state.
    var batches = Batches
    while (snapshots(dir).count(_ >= Batches) < Partitions && batches < MaxBatches) {
      run(spark, dir, "", SmallBatch): Unit
      batches += 1
      LockSupport.parkNanos(TimeUnit.SECONDS.toNanos(1))
    }
    val newest = snapshots(dir)
    require(newest.count(_ >= Batches) == Partitions, s"snapshots are at ${newest.sorted}")
    spark.stop()
  }

  override def restart(
      dir: Path,
      contender: Contender,
      keys: Int,
      prefix: String,
      localDir: Path
  ): Double = {
    val spark = session(dir, contender, localDir)
    // A driver that has done something before, as one with several queries has.
    spark.range(1000).groupBy("id").count().count()
    val ms = run(spark, dir, prefix, SmallBatch)
    spark.stop()
    ms
  }

  /** One batch; milliseconds from the start of the query to its end. */
  private def run(spark: SparkSession, dir: Path, prefix: String, rows: Int): Double = {
    val counts = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows).load()
      .groupBy("value").agg(count("*").as("n"), max("timestamp").as("last"))
    Rounds.timed {
      val query: StreamingQuery = counts.writeStream.outputMode("update").format("noop")
        .option("checkpointLocation", s"$prefix${dir.resolve("checkpoint")}")
        .trigger(Trigger.AvailableNow()).start()
      query.awaitTermination()
    } / 1e6
  }

  /** The version of the newest snapshot of each partition. */
  private def snapshots(dir: Path): Seq[Int] = {
    def files(d: Path) = Option(d.toFile.listFiles).toSeq.flatten
    files(dir.resolve("checkpoint/state/0")).flatMap { partition =>
      files(partition.toPath).map(_.getName).filter(_.endsWith(".zip"))
        .map(_.takeWhile(_.isDigit).toInt).maxOption
    }
  }

  private def session(
      dir: Path,
      contender: Contender,
      localDir: Path,
      more: Map[String, String] = Map.empty
  ): SparkSession = {
    val builder = SparkSession.builder().master("local[*]")
      .config("spark.ui.enabled", "false")
      .config("spark.local.dir", dir.resolve("spark").toString)
      .config("spark.sql.shuffle.partitions", Partitions)
      .config("spark.hadoop.fs.slow.impl", classOf[SlowFileSystem].getName)
    // A query has a coordinator that snapshots can be reported to.
    val lag = "spark.sql.streaming.stateStore.coordinatorReportSnapshotUploadLag"
    (contender.settings(localDir) - lag ++ more).foreach { case (k, v) => builder.config(k, v) }
    val spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark
  }
}
