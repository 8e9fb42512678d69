package statemark.spark.live

import java.nio.file.Files
import java.util.concurrent.Semaphore
import org.apache.spark.sql.execution.streaming.state.StateStore
import org.apache.spark.sql.functions.{col, concat, lit, max, repeat}
import org.apache.spark.sql.SQLContext
import org.apache.spark.sql.util.CaseInsensitiveStringMap
import org.scalatest.concurrent.Eventually
import org.scalatest.funsuite.AnyFunSuite
import org.scalatest.time.{Minutes, Span}
import scala.concurrent.Await
import scala.concurrent.duration.Duration
import scala.jdk.CollectionConverters._
import statemark.common.{Causes, InvalidInputException, ViewClosedException}
import statemark.spark.Line.MemoryStream
import statemark.spark.errors.{CheckpointDamagedException, LookupTimeoutException}
import statemark.spark.OneSession

/** Lookups of stores that are open nowhere. */
class LookupTasksSuite extends AnyFunSuite with OneSession with Banks with Eventually {
  implicit override val patienceConfig: PatienceConfig = PatienceConfig(Span(2, Minutes))

  private def context = spark.sparkContext

  /** Returns how often each account was moved, by a lookup whose jobs are those of `group`. */
  private def lookedUp(
      bank: Bank,
      group: String,
      timeout: String = "9999999999s" // for ever
  ): Seq[Long] = {
    val keys = (0 until accounts).map(a => s"""{"account": $a}""").mkString("[", ",", "]")
    context.setJobGroup(group, group)
    try
      LiveLookup.find(Map("queryName" -> bank.name, "timeout" -> timeout), keys)._1
        .map(_.get.getStruct(1, 2).getLong(1))
    finally context.clearJobGroup()
  }

  private def jobsOf(group: String): Int = context.statusTracker.getJobIdsForGroup(group).length

  for (format <- readableFormats)
    test(s"a task reads a store that is open nowhere, and no job runs for any other (v$format)") {
      val bank = new Bank(s"closed$format", format)
      (1 to 3).foreach(_ => bank.batch())
      val open = lookedUp(bank, s"open$format")
      assert(open.sum == 3 * 2 * accounts)
      StateStore.stop()
      assert(lookedUp(bank, s"closed$format") == open)
      bank.batch()
      assert(lookedUp(bank, s"again$format").sum == 4 * 2 * accounts)
      // Jobs show in the order in which they began.
      StateStore.stop()
      lookedUp(bank, s"last$format"): Unit
      eventually(assert(jobsOf(s"last$format") == 1))
      assert(Seq("open", "closed", "again").map(group => jobsOf(group + format)) == Seq(0, 1, 0))
    }

  test("a task that fails after it has let go of a store has its own reason alone") {
    val bank = new Bank("released", "1")
    bank.batch()
    bank.query.stop()
    val rows = spark.read.format("statestore").load(bank.checkpoint.toString).coalesce(1)
    val last = rows.selectExpr("max(partition_id)").head().getInt(0)
    val failure = intercept[RuntimeException](
      rows.selectExpr(s"IF(partition_id = $last, raise_error('on purpose'), 0)").collect()
    )
    assert(failure.getMessage.contains("on purpose"))
    // Spark adds what listeners of the task throw.
    assert(Causes.of(failure).flatMap(_.getSuppressed).isEmpty)
  }

  test("rows that are more than a page come page by page, of one batch, wherever the stores are") {
    val session = spark
    import session.implicits._
    implicit val context: SQLContext = session.sqlContext
    val input = MemoryStream[(Int, Int)]
    val text = concat(repeat(lit("x"), 1500000), col("n").cast("string"))
    val query = input.toDF().toDF("account", "n").groupBy("account").agg(max(text).as("text"))
      .writeStream.outputMode("update").format("noop").queryName("long").start()
    queries :+= query
    def batch(n: Int): Unit = {
      input.addData((0 until 10).map(_ -> n))
      query.processAllAvailable()
    }
    batch(1)
    // The last two are not there.
    val keys = (0 until 12).map(a => s"""{"account": $a}""")
    def read(from: Int, asOf: Option[String]): LookupPage = {
      val options = Map("queryName" -> "long", "timeout" -> "600s") ++ asOf.map("asOf" -> _)
      val asked = keys.drop(from).mkString("[", ",", "]")
      LiveLookup.find(LiveOptions(new CaseInsensitiveStringMap(options.asJava)), asked)
    }
    def pages(afterFirst: => Unit = ()): Seq[LookupPage] = {
      val first = read(0, None)
      afterFirst
      Seq(first) ++
        Iterator.unfold(first.rows.length) { from =>
          Option.when(from < keys.length) {
            val page = read(from, Some(first.asOf))
            assert(page.isLast == (from + page.rows.length == keys.length))
            (page, from + page.rows.length)
          }
        }
    }
    def areOf(n: Int, pages: Seq[LookupPage]): Unit = {
      assert(pages.forall(_.rows.flatten.length <= 2), "three rows are more than a page")
      val ends = pages.flatMap(_.rows).map(_.map(_.getStruct(1, 1).getUTF8String(0).toString.last))
      assert(ends == Seq.fill(10)(Some(n.toString.head)) ++ Seq(None, None))
    }
    areOf(1, pages())
    areOf(1, pages(afterFirst = batch(2)))
    areOf(2, pages())
    StateStore.stop()
    areOf(2, pages())
    intercept[ViewClosedException](read(0, Some("another run/1")))
  }

  test("of a key that has more rows than a page, no more are read than tell so") {
    val session = spark
    import session.implicits._
    implicit val context: SQLContext = session.sqlContext
    val (left, right) = (MemoryStream[(Int, Int)], MemoryStream[Int])
    val text = concat(repeat(lit("x"), 1500000), col("n").cast("string"))
    val rows = left.toDF().toDF("k", "n").withColumn("text", text)
    val query = rows.join(right.toDF().toDF("other"), col("k") === col("other"))
      .writeStream.outputMode("append").format("noop").queryName("hot").start()
    queries :+= query
    left.addData((0 until 12).map(1 -> _))
    right.addData(2)
    query.processAllAvailable()
    def refused(): String = intercept[InvalidInputException](LiveLookup.find(
      Map("queryName" -> "hot", "joinSide" -> "left", "timeout" -> "600s"),
      """[{"k": 1}]"""
    )).getMessage
    assert(refused().startsWith("The key has 3 rows or more"))
    StateStore.stop()
    assert(refused().startsWith("The key has 3 rows or more"))
  }

  test("where no executor is free, a lookup fails by name when its time is up, and leaves no job") {
    val bank = new Bank("busy", "1")
    bank.batch()
    lookedUp(bank, "open"): Unit
    StateStore.stop()
    val busy = context.parallelize(1 to 2, 2).foreachAsync { _ =>
      LookupTasksSuite.begun.release()
      LookupTasksSuite.ends.acquire()
    }
    LookupTasksSuite.begun.acquire(2)
    try {
      val late = intercept[LookupTimeoutException](lookedUp(bank, "late", timeout = "1s"))
      assert(late.getMessage.startsWith(
        "2 partitions of a lookup have"
      ) && late.getMessage.contains("1000 ms"))

      @volatile var isInterrupted = false
      val reader = new Thread(() =>
        try lookedUp(bank, "stopped"): Unit
        catch { case _: InterruptedException => isInterrupted = true }
      )
      reader.start()
      eventually(assert(jobsOf("stopped") == 1))
      reader.interrupt()
      reader.join()
      assert(isInterrupted)
      eventually(assert(context.statusTracker.getActiveJobIds().length == 1))
    } finally LookupTasksSuite.ends.release(2)
    Await.result(busy, Duration.Inf)
    assert(lookedUp(bank, "free").sum == 2 * accounts)
  }

  test("what a task fails with is told by its name, without Spark's words for a failed job") {
    val bank = new Bank("damaged", "1")
    bank.batch()
    lookedUp(bank, "open"): Unit
    StateStore.stop()
    val state = bank.checkpoint.resolve("state/0").toFile
    val changelogs = state.listFiles.flatMap(_.listFiles).filter(_.getName.endsWith(".changelog"))
    assert(changelogs.nonEmpty)
    changelogs.foreach(file => Files.writeString(file.toPath, "no changelog"))
    val damaged = intercept[CheckpointDamagedException](lookedUp(bank, "damaged"))
    assert(!damaged.getMessage.contains("stage"))
  }
}

private object LookupTasksSuite {
  val begun = new Semaphore(0)
  val ends = new Semaphore(0)
}
