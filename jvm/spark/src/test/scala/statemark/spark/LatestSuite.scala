package statemark.spark

import java.nio.file.Files
import org.apache.spark.sql.functions.{col, expr}
import org.apache.spark.sql.streaming.StreamingQueryException
import org.apache.spark.sql.{AnalysisException, DataFrame, SQLContext}
import org.scalatest.funsuite.AnyFunSuite
import scala.util.Random
import statemark.common.{Causes, InvalidInputException}
import statemark.spark.Line.MemoryStream

/** The function `statemark_latest`. Its rules: `tests/e2e/test_latest.py`. */
class LatestSuite extends AnyFunSuite with OneSession {
  override protected def sessionSettings: Map[String, String] =
    super.sessionSettings + ("spark.sql.extensions" -> classOf[StatemarkExtensions].getName)

  private type Record = (Int, Option[Long], Int, Long, Long)

  private def winners(records: DataFrame, row: String = "struct(*)", rule: Long = 1): DataFrame =
    records.toDF("key", "version", "partition", "offset", "time").groupBy("key").agg(expr(
      s"statemark_latest(named_struct('row', $row, 'version', version, 'topic', 't', 'partition', partition, " +
        s"'offset', offset, 'timestamp', timestamp_micros(time), 'rule', ${rule}L))"
    ).as("winner"))

  private def found(records: Seq[Record], slices: Int): Map[Int, (Int, Long)] = {
    import spark.implicits._
    winners(spark.sparkContext.parallelize(records, slices).toDF())
      .select("key", "winner.partition", "winner.offset").as[(Int, Int, Long)].collect()
      .map { case (key, partition, offset) => key -> ((partition, offset)) }.toMap
  }

  test("the winner does not depend on the order of records, nor on who aggregates which") {
    val random = new Random(280)
    val records = for (key <- 0 until 40; i <- 0 until 12)
      yield (
        key,
        Option.when(random.nextBoolean())(random.nextLong(3)),
        random.nextInt(3),
        i.toLong,
        random.nextLong(4)
      )
    val first = found(records, slices = 1)
    assert(first.size == 40)
    for (slices <- Seq(1, 4, 40)) assert(found(random.shuffle(records), slices) == first)
  }

  test("a record without a place fails by name") {
    import spark.implicits._
    val e = intercept[Exception](
      winners(Seq((1, None: Option[Long], 0, 1L, 1L)).toDF().withColumn(
        "_4",
        expr("CAST(NULL AS BIGINT)")
      ))
        .collect()
    )
    assert(Causes.of(e).exists(_.isInstanceOf[InvalidInputException]), e)
  }

  test("what is no candidate is refused where the query is analyzed") {
    val e = intercept[AnalysisException](spark.range(1).select(expr("statemark_latest(id)")))
    assert(e.getMessage.contains("statemark_latest takes struct<row:struct<...>"))
  }

  test("a query whose columns have changed does not read rows of the old ones") {
    import spark.implicits._
    val checkpoint = Files.createTempDirectory("statemark-latest-").toString
    implicit val sql: SQLContext = spark.sqlContext
    val input = MemoryStream[Record]
    def run(row: String, rule: Long = 1): Unit = {
      input.addData((1, None, 0, 1L, 1L))
      val query = winners(input.toDF(), row, rule).select(col("winner.*")).writeStream
        .outputMode("update").format("noop").option("checkpointLocation", checkpoint).start()
      try query.processAllAvailable()
      finally query.stop()
    }
    run("struct(*)")
    val e = intercept[StreamingQueryException](run("struct(key, offset)"))
    assert(Causes.of(e).exists(_.toString.contains("STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE")), e)
    // Spark compares types alone: two columns of one type that change places would pass.
    val other = intercept[StreamingQueryException](run("struct(*)", rule = 2))
    assert(Causes.of(other).exists(_.toString.contains("belongs to another strategy")), other)
    run("struct(*)")
  }
}
