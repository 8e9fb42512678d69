package statemark.spark

import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Path, Paths, StandardCopyOption}
import java.util.concurrent.atomic.{AtomicInteger, AtomicReference}
import org.apache.spark.sql.{DataFrame, SparkSession}
import org.apache.spark.sql.functions.{count, sum}
import org.apache.spark.sql.streaming.StreamingQueryListener
import org.apache.spark.sql.streaming.StreamingQueryListener._
import scala.io.StdIn
import scala.jdk.CollectionConverters._
import statemark.spark.process.JvmState
import statemark.transaction.CommitPhase

/** The process that is killed: a query over the files of a directory, which says where it is and goes on
  * for ever, or to the end of its input.
  *
  * Arguments: root, checkpoint format. It starts a session, which takes seconds, and reads a line: the name of
  * the phase to stop at or "none", and at which visit. At "snapshot-upload" it does not stop: it says when
  * an upload begins and when it has ended.
  */
object CrashChild {
  val AtPhase = "at"
  val Ready = "ready"
  val Loaded = "loaded"
  val Batch = "batch"
  val Uploading = "snapshot-upload"
  val Uploaded = "uploaded"

  def main(args: Array[String]): Unit = {
    val root = Paths.get(args(0))
    val spark = session(root, args(1))
    val Array(phase, visit) = StdIn.readLine().split(" "): @unchecked
    val visits = new AtomicInteger
    val uploader = new AtomicReference[Thread]
    JvmState.observer.set { reached =>
      if (phase == Uploading) {
        if (reached == CommitPhase.SnapshotStarted && visits.incrementAndGet() == visit.toInt) {
          uploader.set(Thread.currentThread)
          say(s"$AtPhase $phase")
        }
        if (reached == CommitPhase.SnapshotEnded && uploader.get == Thread.currentThread)
          say(Uploaded)
      } else if (reached.name == phase && visits.incrementAndGet() == visit.toInt) {
        say(s"$AtPhase $phase")
        // The parent kills this process here; the other threads go on, as they would.
        Thread.currentThread.join()
      }
    }
    val query = spark.readStream.schema("k INT, v INT").option("maxFilesPerTrigger", 1)
      .json(root.resolve("input").toString)
      .groupBy("k").agg(count("v").as("n"), sum("v").as("total"))
      .writeStream.outputMode("update")
      .option("checkpointLocation", root.resolve("checkpoint").toString)
      .foreachBatch((rows: DataFrame, id: Long) => write(root, id, rows))
      .start()
    say(Ready)
    if (phase == "none") {
      query.processAllAvailable()
      query.stop()
      JvmState.observer.clear()
      spark.stop()
    } else query.awaitTermination()
  }

  private def session(root: Path, format: String): SparkSession = {
    val store = "spark.sql.streaming.stateStore"
    val spark = SparkSession.builder().master("local[2]")
      .config("spark.ui.enabled", "false")
      .config("spark.sql.shuffle.partitions", "3")
      .config("spark.sql.streaming.minBatchesToRetain", "5")
      .config(s"$store.providerClass", classOf[StatemarkStateStoreProvider].getName)
      .config(s"$store.statemark.localDir", root.resolve("local").toString)
      // Some of the batches have room, others go to disk, open or prepared.
      .config(s"$store.statemark.maxUncommittedBytes", "4k")
      .config(s"$store.checkpointFormatVersion", format)
      .config(s"$store.minDeltasForSnapshot", "3")
      .config(s"$store.maintenanceInterval", "300ms")
      .getOrCreate()
    spark.streams.addListener(new StreamingQueryListener {
      override def onQueryStarted(event: QueryStartedEvent): Unit = ()
      override def onQueryTerminated(event: QueryTerminatedEvent): Unit = ()
      override def onQueryProgress(event: QueryProgressEvent): Unit =
        event.progress.stateOperators.foreach { operator =>
          val figures = operator.customMetrics.asScala.toSeq.collect {
            case (name, n) if n > 0 && name.matches("statemark(Load.*Count|Distrust.*)") =>
              s"$name=$n"
          }
          say(s"$Loaded ${event.progress.batchId} ${figures.sorted.mkString(" ")}")
        }
    })
    spark
  }

  private def write(root: Path, id: Long, rows: DataFrame): Unit = {
    val lines = rows.collect().map(r => s"${r.getInt(0)} ${r.getLong(1)} ${r.getLong(2)}").sorted
    val file = root.resolve(s"output/$id")
    val fresh = Files.createTempFile(root.resolve("output"), ".", ".new")
    Files.write(fresh, lines.toSeq.asJava, UTF_8)
    Files.move(fresh, file, StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING)
    say(s"$Batch $id")
  }

  private def say(text: String): Unit = Console.out.synchronized {
    Console.out.println(s"CHILD $text")
    Console.out.flush()
  }
}
