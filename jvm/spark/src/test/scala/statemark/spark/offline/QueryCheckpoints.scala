package statemark.spark.offline

import java.nio.file.{Files, Path, StandardCopyOption}
import java.util.concurrent.{CountDownLatch, TimeUnit}
import org.apache.spark.sql.{DataFrame, SQLContext}
import org.scalatest.Suite
import scala.collection.mutable
import scala.jdk.CollectionConverters._
import statemark.common.Clock
import statemark.spark.{Line, OneSession, StoppedMaintenance}
import statemark.spark.conf.ProviderClass
import statemark.spark.offline.cli.{Command, CommandContext, Console, ExitCode, Waiter}
import statemark.spark.offline.verify.VerifyCommand

/** Checkpoints that queries wrote, and the commands on them. */
trait QueryCheckpoints extends StoppedMaintenance with OneSession { this: Suite =>
  protected val prefix = "spark.sql.streaming.stateStore."
  override protected def sessionSettings: Map[String, String] =
    Map(
      "spark.sql.streaming.noDataMicroBatches.enabled" -> "false",
      // Spark's default, but not where spark.testing is set.
      s"${prefix}autoSnapshotRepair.enabled" -> "true"
    )

  /** A query that starts again goes on with its input. */
  private val inputs = mutable.Map.empty[Path, Line.MemoryStream[Int]]

  protected def newDirectory(): Path = Files.createTempDirectory("statemark-offline-")

  /** Runs batches of a query on a checkpoint. */
  protected def runQuery(
      checkpoint: Path,
      provider: ProviderClass,
      settings: Map[String, String],
      batches: Int,
      plan: DataFrame => DataFrame = counts,
      between: () => Unit = () => ()
  ): Unit = {
    implicit val sql: SQLContext = spark.sqlContext
    import spark.implicits._
    val all = settings + (s"${prefix}providerClass" -> provider.className)
    all.foreach { case (k, v) => spark.conf.set(k, v) }
    try {
      val input = inputs.getOrElseUpdate(checkpoint, Line.MemoryStream[Int])
      val query = plan(input.toDF()).writeStream.format("noop")
        .outputMode(if (plan eq counts) "update" else "append")
        .option("checkpointLocation", checkpoint.toString).start()
      try
        for (b <- 0 until batches) {
          input.addData((0 until 40).map(i => i * (b + 3) % 97))
          query.processAllAvailable()
          between()
        }
      finally query.stop()
    } finally all.keys.foreach(spark.conf.unset)
  }

  protected val counts: DataFrame => DataFrame = _.groupBy("value").count()

  protected def context(console: Console, waiter: Waiter = _ => ()): CommandContext =
    new CommandContext(spark, console, Clock.system, waiter)

  /** The exit code and the lines of the result. */
  protected def command(
      command: Command,
      checkpoint: Path,
      waiter: Waiter,
      words: String*
  ): (ExitCode, Seq[String]) = {
    val console = new RecordingConsole
    val code = CommandLine.run(command, checkpoint.toString +: words, context(console, waiter))
    (code, console.results)
  }

  protected def verify(checkpoint: Path, words: String*): (ExitCode, Seq[String]) =
    command(VerifyCommand, checkpoint, _ => (), words: _*)

  /** A copy without Hadoop's own checksum files, so that damage is not hidden behind theirs. */
  protected def copyOf(checkpoint: Path): Path = {
    val target = newDirectory()
    val walk = Files.walk(checkpoint)
    try
      walk.iterator.asScala.filterNot(_.getFileName.toString.startsWith(".")).foreach { from =>
        val to = target.resolve(checkpoint.relativize(from).toString)
        if (Files.isDirectory(from)) Files.createDirectories(to): Unit
        else Files.copy(from, to, StandardCopyOption.COPY_ATTRIBUTES): Unit
      }
    finally walk.close()
    target
  }

  protected def names(directory: Path, suffix: String): Seq[String] =
    Option(directory.toFile.list).toSeq.flatten.filter(n =>
      n.endsWith(suffix) && !n.startsWith(".")
    )
      .sortBy(n => (n.takeWhile(_.isDigit).toLongOption, n))
}

object Waiters {

  /** Waits a little, for queries that run meanwhile. */
  val short: Waiter = _ => new CountDownLatch(1).await(300, TimeUnit.MILLISECONDS): Unit
}
