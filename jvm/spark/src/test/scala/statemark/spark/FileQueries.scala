package statemark.spark

import java.nio.file.attribute.FileTime
import java.nio.file.{Files, Path}
import org.apache.spark.sql.execution.streaming.state.StateStore
import org.apache.spark.sql.functions.count
import org.apache.spark.sql.streaming.{StreamingQueryProgress, Trigger}
import org.scalatest.{BeforeAndAfterEach, Suite}
import scala.jdk.CollectionConverters._
import statemark.spark.conf.StoreSettings
import statemark.spark.local.LocalDirectory

/** A query that counts the rows of files, one file in a batch, run after run; between two runs nothing stays
  * but the disk, as between two processes.
  */
trait FileQueries extends StoppedMaintenance with OneSession with BeforeAndAfterEach {
  this: Suite =>

  protected val stateStore = "spark.sql.streaming.stateStore"
  protected val loads = "statemarkLoad"
  protected val partitions = 2

  override protected def sessionSettings: Map[String, String] = Map(
    "spark.sql.shuffle.partitions" -> partitions.toString,
    "spark.sql.streaming.noDataMicroBatches.enabled" -> "false"
  )

  protected var directory: Path = _
  private var files = 0
  private var rows = Vector.empty[Int]
  private var answer = Map.empty[Int, Long]

  protected def checkpoint: Path = directory.resolve("checkpoint")
  protected def local: Path = directory.resolve("local")

  override protected def beforeEach(): Unit = {
    super.beforeEach()
    directory = Files.createTempDirectory("statemark-query-")
    clearInput()
  }

  override protected def afterEach(): Unit = {
    StateStore.stop()
    LocalDirectory.deleteTree(directory.toFile)
    super.afterEach()
  }

  private def input: Path = directory.resolve("input")

  protected def clearInput(): Unit = {
    LocalDirectory.deleteTree(input.toFile)
    Files.createDirectories(input)
    rows = Vector.empty
  }

  /** What a file has, which no other has. */
  protected def rowsOf(file: Int): Seq[Int] = (0 to 20 + file % 7).map(i => i * (file + 3) % 11)

  /** The next file. */
  protected def addFile(): Unit = {
    val added = rowsOf(files)
    rows ++= added
    val file = input.resolve(f"$files%04d.json")
    Files.write(file, added.map(k => s"""{"k": $k}""").asJava)
    // Spark reads in the order of modification times.
    Files.setLastModifiedTime(file, FileTime.fromMillis(1700000000000L + files * 1000L))
    files += 1
  }

  /** Processes the files that came, checks the answer, and ends as a process does.
    * @param leavesOpen whether its stores stay open, as those of a process that goes on do
    */
  protected def run(
      added: Int,
      settings: Map[String, String] = Map.empty,
      hasLocalDir: Boolean = true,
      at: Path = checkpoint,
      leavesOpen: Boolean = false
  ): Seq[StreamingQueryProgress] = {
    (0 until added).foreach(_ => addFile())
    val place =
      Option.when(hasLocalDir)(s"${StoreSettings.Prefix}localDir" -> local.toString).toMap
    val ours = s"$stateStore.providerClass" -> classOf[StatemarkStateStoreProvider].getName
    val all = place + ours ++ settings
    all.foreach { case (k, v) => spark.conf.set(k, v) }
    val query =
      try
        spark.readStream.schema("k INT").option("maxFilesPerTrigger", 1).json(input.toString)
          .groupBy("k").agg(count("k").as("n"))
          .writeStream.outputMode("complete").trigger(Trigger.AvailableNow())
          .option("checkpointLocation", at.toString)
          .foreachBatch { (counted: org.apache.spark.sql.DataFrame, _: Long) =>
            answer = counted.collect().map(r => r.getInt(0) -> r.getLong(1)).toMap
          }.start()
      finally all.keys.foreach(spark.conf.unset)
    try query.awaitTermination()
    finally {
      query.stop()
      if (!leavesOpen) StateStore.stop()
    }
    assert(answer == rows.groupBy(identity).map { case (k, all) => k -> all.length.toLong })
    query.recentProgress.filter(_.stateOperators.nonEmpty).toSeq
  }

  /** How the stores of a run's first batch were loaded. */
  protected def served(run: Seq[StreamingQueryProgress]): Map[String, Long] =
    figures(run.head).collect {
      case (name, n)
          if n > 0 && name.endsWith("Count") &&
            (name.startsWith(loads) || name.startsWith("statemarkDistrust")) => name -> n
    }

  protected def figures(progress: StreamingQueryProgress): Map[String, Long] =
    progress.stateOperators.head.customMetrics.asScala.map { case (k, v) => k -> v.toLong }.toMap

  /** A figure that every store has once. */
  protected def each(name: String): (String, Long) = name -> partitions.toLong
  protected def fromCheckpoint: (String, Long) = each(s"${loads}CheckpointCount")
  protected def fromLocal: (String, Long) = each(s"${loads}LocalCount")
  protected def fromNothing: (String, Long) = each(s"${loads}NewCount")

  /** Runs `body` without the local directory as another disk would have it, then brings back the one that was. */
  protected def onAnotherDisk(body: => Unit): Unit = {
    val kept = directory.resolve("kept")
    Files.move(local, kept)
    try body
    finally {
      LocalDirectory.deleteTree(local.toFile)
      Files.move(kept, local): Unit
    }
  }

  protected def entries(log: String, of: Path = checkpoint): Seq[Path] = {
    val list = Files.list(of.resolve(log))
    try list.iterator.asScala.toVector
    finally list.close()
  }

  protected def batchOf(entry: Path): Option[Long] =
    entry.getFileName.toString.stripPrefix(".").stripSuffix(".crc").toLongOption

  /** Deletes the last entries of the logs, as people do. */
  protected def rollBack(toBatch: Long, of: Path = checkpoint): Unit =
    for (
      log <- Seq("offsets", "commits"); entry <- entries(log, of)
      if batchOf(entry).exists(_ > toBatch)
    )
      Files.delete(entry)
}
