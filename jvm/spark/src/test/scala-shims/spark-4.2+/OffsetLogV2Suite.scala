package statemark.spark.offline

import java.nio.file.Path
import org.apache.spark.sql.SQLContext
import org.json4s.JInt
import org.json4s.jackson.JsonMethods.parse
import org.scalatest.funsuite.AnyFunSuite
import scala.collection.mutable
import statemark.common.InvalidInputException
import statemark.spark.Line
import statemark.spark.live.LiveLookup
import statemark.spark.conf.ProviderClass
import statemark.spark.offline.cli.ExitCode
import statemark.spark.offline.inspect.InspectCommand
import statemark.spark.offline.repartition.RepartitionCommand
import statemark.spark.offline.switching.SwitchCommand

/** Queries with entries of version 2 in their offset log: the entries of a first run do not name the number of partitions.
  */
class OffsetLogV2Suite extends AnyFunSuite with QueryCheckpoints {
  private val named = Map(
    "spark.sql.streaming.offsetLog.formatVersion" -> "2",
    "spark.sql.shuffle.partitions" -> "3"
  )

  /** A query that starts again goes on with its input. */
  private val inputs = mutable.Map.empty[Path, Line.MemoryStream[Int]]

  /** Runs `body` beside a query that has counted 20 values twice more. */
  private def running[A](checkpoint: Path, provider: ProviderClass)(body: => A): A = {
    implicit val sql: SQLContext = spark.sqlContext
    import spark.implicits._
    val input = inputs.getOrElseUpdate(checkpoint, Line.MemoryStream[Int])
    val all = named + (s"${prefix}providerClass" -> provider.className)
    val before = all.map { case (key, _) => key -> spark.conf.getOption(key) }
    all.foreach { case (k, v) => spark.conf.set(k, v) }
    val query =
      try
        counts(input.toDF()).writeStream.format("noop").outputMode("update").queryName("named")
          .option("checkpointLocation", checkpoint.toString).start()
      finally before.foreach { case (k, v) => v.fold(spark.conf.unset(k))(spark.conf.set(k, _)) }
    try {
      for (_ <- 1 to 2) {
        input.addData(0 until 20)
        query.processAllAvailable()
      }
      body
    } finally query.stop()
  }

  private def rows(format: String, options: (String, String)*): Seq[(Int, Long)] =
    spark.read.format(format).options(options.toMap).load().selectExpr("key.value", "value.count")
      .collect().map(r => r.getInt(0) -> r.getLong(1)).sorted.toSeq

  private val wanted = (0 until 20).map(_ -> 2L)

  test("live reads and lookups in the first run") {
    // The session's own number of partitions is another one.
    running(newDirectory(), ProviderClass.Statemark) {
      assert(rows("statemark", "queryName" -> "named") == wanted)
      val keys = """[{"value": 0}, {"value": 7}, {"value": 99}]"""
      val (found, _) = LiveLookup.find(Map("queryName" -> "named"), keys)
      assert(found.map(_.isDefined) == Seq(true, true, false))
      val operators = spark.read.format("statemark").option("queryName", "named")
        .option("what", "operators").load().selectExpr("key_columns").head().getSeq[String](0)
      assert(operators == Seq("value"))
    }
  }

  test("Spark's own reading of such a batch fails on Spark's own provider, too") {
    val checkpoint = newDirectory()
    running(checkpoint, ProviderClass.RocksDb)(())
    val failure =
      intercept[NoSuchElementException](rows("statestore", "path" -> checkpoint.toString))
    assert(failure.getMessage == "None.get")
  }

  test("inspect takes the number from the operators; a repartition says what to do") {
    val checkpoint = newDirectory()
    running(checkpoint, ProviderClass.Statemark)(())
    val (code, lines) = command(InspectCommand, checkpoint, _ => (), "--json")
    assert(code == ExitCode.Ok && parse(lines.head) \ "partitions" == JInt(3))
    def repartition(): Unit =
      command(RepartitionCommand, checkpoint, _ => (), "--partitions", "5"): Unit
    val refused = intercept[InvalidInputException](repartition()).getMessage
    assert(refused.contains("start the query and stop it after a batch"))
    // What it says helps.
    running(checkpoint, ProviderClass.Statemark)(())
    repartition()
    val after = command(InspectCommand, checkpoint, _ => (), "--json")._2
    assert(parse(after.head) \ "partitions" == JInt(5))
  }

  test("an import from Spark's default provider") {
    val checkpoint = newDirectory()
    running(checkpoint, ProviderClass.Hdfs)(())
    val (code, lines) = command(SwitchCommand, checkpoint, _ => (), "--to", "statemark")
    assert(code == ExitCode.Ok && lines.mkString.contains("3 stores, 20 rows"))
    running(checkpoint, ProviderClass.Statemark) {
      assert(rows("statemark", "queryName" -> "named") == (0 until 20).map(_ -> 4L))
    }
  }
}
