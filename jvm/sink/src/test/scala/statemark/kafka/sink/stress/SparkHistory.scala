package statemark.kafka.sink.stress

import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Path}
import java.util.Random
import org.apache.spark.sql.{DataFrame, SparkSession}
import org.apache.spark.sql.functions.col
import org.apache.spark.sql.streaming.Trigger
import scala.collection.mutable
import scala.jdk.StreamConverters._
import scala.util.control.NonFatal
import statemark.common.Causes
import statemark.kafka.TestBrokers
import statemark.kafka.conf.{SinkException, SinkIdentity}
import statemark.kafka.sim.Conditions
import statemark.kafka.stress.{Outcome, Steps}

/** One random history of a query of Spark's and of copies of its checkpoint: runs that take what there is and end, deaths
  * between decision and commit log, checkpoints that are copied and set back, writes by the streaming sink and by
  * `foreachBatch`, with state and without.
  *
  * After each run that ends well, readers have every row that its query has read, once. Any other run has to fail by the
  * sink's own refusal, and only where a batch was planned twice, or another copy is ahead.
  */
private[stress] final class SparkHistory(
    brokers: TestBrokers,
    spark: SparkSession,
    seed: Long,
    steps: Steps
) {
  import SparkHistory._

  private val random = new Random(seed * 0x9e3779b97f4a7c15L)
  private val root = Files.createTempDirectory("statemark-stress-")
  private val topic = brokers.topic(s"spark-stress-$seed", 1 + random.nextInt(3))
  private val hasState = random.nextBoolean()
  private val session = spark.newSession()
  private var checkpoints = Vector(new Checkpoint(root.resolve("A"), random.nextBoolean()))

  /** What offset logs have said of a batch, by its number. */
  private val plans = mutable.Map.empty[Long, Set[String]].withDefaultValue(Set.empty)
  private val refusals = mutable.ArrayBuffer.empty[String]
  private val counts = mutable.Map.empty[String, Int].withDefaultValue(0)

  def run(): Outcome =
    try {
      val settings = Map(
        "spark.sql.shuffle.partitions" -> "3",
        "spark.sql.streaming.stateStore.providerClass" -> anyOf(providers),
        "spark.sql.streaming.stateStore.checkpointFormatVersion" -> s"${1 + random.nextInt(2)}",
        "spark.sql.streaming.stateStore.statemark.localDir" -> root.resolve("local").toString
      )
      settings.foreach { case (key, value) => session.conf.set(key, value) }
      steps += s"state: $hasState, ${settings.values.mkString(", ")}"
      var faults = Seq.empty[String]
      var left = 4 + random.nextInt(5)
      while (left > 0 && faults.isEmpty && checkpoints.nonEmpty) {
        left -= 1
        between()
        faults = runOne(anyOf(checkpoints))
      }
      Outcome(faults, refusals.toSeq, counts.toMap)
    } finally {
      Seq(topic, s"$topic-commits").filter(brokers.has).foreach(brokers.deleteTopic)
      deleteTree(root)
    }

  // ---- a run

  private def runOne(of: Checkpoint): Seq[String] = {
    if (random.nextInt(8) == 0) of.isBatch = !of.isBatch
    val rows = 1 + random.nextInt(40)
    steps += s"$of runs, $rows rows more${if (of.isBatch) ", in foreachBatch" else ""}"
    count("runs")
    val failure =
      try {
        start(of, rows).awaitTermination()
        None
      } catch { case NonFatal(e) => Some(e) }
    of.plans.foreach { case (batch, plan) => plans(batch) += plan }
    failure.fold(judged(of))(refused(of, _))
  }

  private def start(of: Checkpoint, rows: Int) = {
    val source = session.readStream.format("rate-micro-batch").option("rowsPerBatch", s"$rows")
      .option("numPartitions", "2").load()
    val key = (col("value") % Keys).cast("string").as("key")
    val frame =
      if (hasState) source.groupBy(key).count()
        .select(col("key"), col("count").cast("string").as("value"))
      else source.select(key, col("value").cast("string").as("value"))
    val writer = frame.writeStream.outputMode(if (hasState) "update" else "append")
      .option("checkpointLocation", of.folder.toString).trigger(Trigger.AvailableNow())
    val options = Map(
      "kafka.bootstrap.servers" -> brokers.bootstrap,
      "topic" -> topic,
      "commitTopic" -> s"$topic-commits"
    )
    if (of.isBatch)
      writer.foreachBatch { (rows: DataFrame, batch: Long) =>
        rows.write.format("statemark-kafka").mode("append").options(options)
          .option("txnVersion", batch).save()
      }.start()
    else writer.format("statemark-kafka").options(options).start()
  }

  private def refused(of: Checkpoint, failure: Throwable): Seq[String] = {
    checkpoints = checkpoints.filterNot(_ == of)
    val causes = Causes.of(failure).toVector
    steps += s"$of fails: ${causes.mkString(" caused by ").take(2000)}"
    causes.collectFirst { case e: SinkException.WrongHistory => e } match {
      case Some(_) if plans.values.exists(_.size > 1) =>
        refusals += "WrongHistory: a batch was planned twice"
        Nil
      // Its offsets are counters, which do not tell one history from another.
      case Some(e) if e.values.get("batch").exists(_.toLong < plans.keys.max) =>
        refusals += "WrongHistory: a copy is behind"
        Nil
      case Some(e) => Seq(s"REFUSED, and each batch was planned once: ${e.getMessage}")
      case None => Seq(s"FAILED: ${causes.lastOption.fold("")(e => s"$e".take(500))}")
    }
  }

  /** What readers lack, or have twice, of what the query has read. */
  private def judged(of: Checkpoint): Seq[String] = {
    Conditions.awaitMarkers(brokers, SinkIdentity(of.queryId, topic))
    val found = brokers.read(topic).map(r => (new String(r.key, UTF_8), new String(r.value, UTF_8)))
    val twice = found.diff(found.distinct).distinct
    val end = of.end
    val lost =
      if (hasState) (0L until Keys).filter { key =>
        val last = found.collect { case (k, value) if k == s"$key" => value.toLong }.maxOption
        last.getOrElse(0L) != (0L until end).count(_ % Keys == key)
      }.map(key => s"the last sum of key $key")
      else (0L until end).map(id => (s"${id % Keys}", s"$id")).filterNot(found.toSet)
    Seq(
      Option.when(twice.nonEmpty)(s"DOUBLED: ${twice.mkString(" ")}"),
      Option.when(lost.nonEmpty)(s"LOST: of $end rows ${lost.size}: ${lost.mkString(" ")}")
    ).flatten
  }

  // ---- between runs

  private def between(): Unit = {
    val of = anyOf(checkpoints)
    random.nextInt(8) match {
      case 0 | 1 | 2 if of.isCommitted =>
        steps += s"the driver of $of died behind its last decision"
        of.remove("commits", of.last("commits").get)
        count("deaths behind a decision")
      case 3 | 4 if of.isCommitted && checkpoints.size < 3 =>
        val copy =
          new Checkpoint(root.resolve(s"${"ABCDEFGHIJ" (counts("copies") + 1)}"), of.isBatch)
        copyTree(of.folder, copy.folder)
        steps += s"$copy is a copy of $of"
        checkpoints :+= copy
        count("copies")
      // Spark refuses a first batch that finds state.
      case 5 if of.isCommitted && (!hasState || of.last("commits").exists(_ > 0)) =>
        steps += s"$of loses its last batch"
        val last = of.last("offsets").get
        Seq("offsets", "commits").foreach(of.remove(_, last))
        count("set back by one")
      // State of batches that are not known any more is Spark's own trouble.
      case 6 if of.isCommitted && !hasState =>
        steps += s"$of loses all of its batches"
        Seq("offsets", "commits").foreach(log => of.entries(log).foreach(of.remove(log, _)))
        count("set back to nothing")
      case _ => ()
    }
  }

  private def count(what: String): Unit = counts(what) += 1
  private def anyOf[A](of: Vector[A]): A = of(random.nextInt(of.size))
}

private object SparkHistory {
  val Keys = 5L

  val providers: Vector[String] = Vector(
    "statemark.spark.StatemarkStateStoreProvider",
    "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
  )

  def copyTree(from: Path, to: Path): Unit = Files.walk(from).toScala(Seq).foreach { file =>
    Files.copy(file, to.resolve(from.relativize(file).toString)): Unit
  }

  def deleteTree(folder: Path): Unit =
    Files.walk(folder).toScala(Seq).reverse.foreach(file => Files.deleteIfExists(file): Unit)
}

/** A checkpoint, and how its query writes. */
private[stress] final class Checkpoint(val folder: Path, var isBatch: Boolean) {

  /** The numbers in one of its logs, ascending. */
  def entries(log: String): Vector[Long] =
    Option(folder.resolve(log).toFile.list).toVector.flatten.flatMap(_.toLongOption).sorted

  def last(log: String): Option[Long] = entries(log).lastOption

  /** Whether every batch that was planned is committed, and there is one. */
  def isCommitted: Boolean = last("commits").isDefined && last("commits") == last("offsets")

  def remove(log: String, entry: Long): Unit = Seq(s"$entry", s".$entry.crc").foreach { name =>
    Files.deleteIfExists(folder.resolve(log).resolve(name)): Unit
  }

  /** The offset log's entries, by batch. */
  def plans: Map[Long, String] = entries("offsets").map { batch =>
    batch -> Files.readString(folder.resolve("offsets").resolve(s"$batch"))
  }.toMap

  def queryId: String =
    "\"id\":\"([^\"]+)".r.findFirstMatchIn(
      Files.readString(folder.resolve("metadata"))
    ).get.group(1)

  /** How many rows the last batch ends behind. */
  def end: Long = last("offsets").fold(0L) { batch =>
    "\"offset\":(\\d+)".r.findAllMatchIn(plans(batch)).map(_.group(1).toLong).toVector.last
  }

  override def toString: String = folder.getFileName.toString
}
