package statemark.spark.live

import java.nio.file.{Files, Path}
import org.apache.spark.sql.{DataFrame, SQLContext}
import org.apache.spark.sql.functions.{count, sum}
import org.apache.spark.sql.streaming.{StreamingQuery, Trigger}
import org.scalatest.{BeforeAndAfterEach, Suite}
import statemark.spark.{Line, OneSession}
import statemark.spark.Line.MemoryStream
import statemark.spark.local.LocalDirectory

/** Queries whose every batch moves amounts between accounts, so that what all accounts have together is the same
  * after each.
  */
trait Banks extends BeforeAndAfterEach { this: Suite with OneSession =>
  protected val accounts = 40

  /** The checkpoint formats that Spark's format `statestore` reads: it needs the ids of the second. */
  protected def readableFormats: Seq[String] = if (Line.hasStoreOf41) Seq("1", "2") else Seq("1")
  protected var queries = Seq.empty[StreamingQuery]

  override protected def afterEach(): Unit = {
    queries.foreach(_.stop())
    queries = Nil
    super.afterEach()
  }

  /** @param over what comes out of the aggregation goes through it */
  protected final class Bank(
      val name: String,
      format: String,
      over: DataFrame => DataFrame = identity
  ) {
    private val session = spark
    import session.implicits._
    private implicit val context: SQLContext = session.sqlContext
    private val input = MemoryStream[(Int, Long)]
    val checkpoint: Path = Files.createTempDirectory("statemark-live-")
    private var batches = 0

    /** The newest run. */
    @volatile var query: StreamingQuery = started()

    private def started(): StreamingQuery = {
      val key = "spark.sql.streaming.stateStore.checkpointFormatVersion"
      spark.conf.set(key, format)
      val query =
        try
          over(
            input.toDF().toDF("account", "amount").groupBy("account")
              .agg(sum("amount").as("balance"), count("*").as("moves"))
          )
            .writeStream.outputMode("update").format("noop").queryName(name)
            .option("checkpointLocation", checkpoint.toString)
            .trigger(Trigger.ProcessingTime(0)).start()
        finally spark.conf.unset(key)
      queries :+= query
      query
    }

    /** Moves amounts around; no two batches leave the same balances. */
    def add(): Unit = {
      batches += 1
      val moves = (0 until accounts).flatMap { i =>
        val amount = (i * 7L + batches) % 13
        Seq((i, -amount), ((i * 3 + batches) % accounts, amount))
      }
      input.addData(moves): Unit
    }

    def batch(): Unit = {
      add()
      query.processAllAvailable()
    }

    def restart(): Unit = {
      query.stop()
      query = started()
    }

    def delete(): Unit = LocalDirectory.deleteTree(checkpoint.toFile)
  }

  protected def live(name: String, options: (String, String)*): DataFrame =
    spark.read.format("statemark").option("queryName", name).options(options.toMap).load()

  /** Reads all accounts, and checks that they are those after some batch; the number of moves until then. */
  protected def moves(name: String): Long = {
    val row = live(name).agg(sum("value.sum"), sum("value.count"), count("*")).head()
    assert(row.getLong(0) == 0 && row.getLong(2) == accounts)
    assert(row.getLong(1) % (2 * accounts) == 0, "parts of two batches")
    row.getLong(1)
  }
}
