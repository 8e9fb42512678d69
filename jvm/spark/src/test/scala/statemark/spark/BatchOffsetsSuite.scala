package statemark.spark

import java.nio.file.Files
import java.util.concurrent.ConcurrentLinkedQueue
import org.apache.spark.sql.SQLContext
import org.apache.spark.TaskContext
import org.scalatest.funsuite.AnyFunSuite
import statemark.common.Position
import statemark.spark.cluster.{SourceNames, SourcePosition}
import statemark.spark.process.JvmState
import statemark.transaction.CommitPhase

/** The driver tells the tasks of a batch the source offsets that it ends at. */
class SourcePositionSuite extends AnyFunSuite with OneSession {

  test("every offset reads back, known or not") {
    val position = Position(Vector(Some("""{"topic":{"0":42}}"""), None, Some("5")))
    assert(SourcePosition.decode(SourcePosition.encode(position)) == position)
  }

  test("sources can be told apart, and are called the same in each process") {
    val files = "FileStreamSource[file:/in]"
    val described = Seq(files, "MemoryStream[key#12L, value#13]", files, files)
    assert(SourceNames.of(Seq("0", "1", "2", "3"), described) == Seq(
      files,
      "MemoryStream[key, value]",
      s"$files (2)",
      s"$files (3)"
    ))
    val eleven = (0 to 10).map(n => s"s$n")
    val asText = eleven.indices.map(_.toString).sorted
    assert(SourceNames.of(asText, eleven) == asText.map(n => s"s$n"))
    assert(SourceNames.of(Seq("0"), Seq("a.b.Stream@1f2a3b")) == Seq("a.b.Stream"))
    // The log has the names that the query's code gives, in an order of its own.
    assert(SourceNames.of(Seq("clicks", "orders"), Seq("b", "a")) == Seq("clicks", "orders"))
    assert(SourceNames.of(Seq("0", "1"), Seq("one")) == Seq("0", "1"))
  }

  test("offsets of thousands of partitions do not travel with each task") {
    def offsets(partitions: Int) = Position(Vector(Some(
      (0 until partitions).map(p => s""""$p":${1234567890L + p}""").mkString(
        """{"topic":{""",
        ",",
        "}}"
      )
    )))
    val few = offsets(500)
    assert(SourcePosition.property(few).map(SourcePosition.decode).contains(few))
    assert(SourcePosition.encode(offsets(5000)).length > 90000)
    assert(SourcePosition.property(offsets(5000)).isEmpty)
  }

  // Spark 4.2 has a second format, which names sources; earlier ones do not know the setting.
  for (format <- 1 to 2)
    test(s"each batch of a query, and of its next run, has its own (log $format)") {
      spark.conf.set(OffsetLogFormat, format.toString)
      try checkPositions()
      finally spark.conf.unset(OffsetLogFormat)
    }

  private val OffsetLogFormat = "spark.sql.streaming.offsetLog.formatVersion"

  private def checkPositions(): Unit = {
    implicit val sql: SQLContext = spark.sqlContext
    import spark.implicits._
    val seen = new ConcurrentLinkedQueue[(String, String)]
    JvmState.observer.set { phase =>
      if (phase == CommitPhase.BatchSerialized) {
        val task = TaskContext.get()
        seen.add((
          task.getLocalProperty("streaming.sql.batchId"),
          String.valueOf(task.getLocalProperty(SourcePosition.Property))
        )): Unit
      }
    }
    val input = Line.MemoryStream[Int]
    val checkpoint = Files.createTempDirectory("statemark-position-").toString
    for (_ <- 0 until 2) {
      val query = input.toDF().groupBy("value").count().writeStream.outputMode("update")
        .format("noop").option("checkpointLocation", checkpoint).start()
      try
        for (_ <- 0 until 2) {
          input.addData(1, 2, 3)
          query.processAllAvailable()
        }
      finally query.stop()
    }
    val byBatch = scala.jdk.CollectionConverters.CollectionHasAsScala(seen).asScala.toSet
    assert(byBatch == Set(
      "0" -> """["0"]""",
      "1" -> """["1"]""",
      "2" -> """["2"]""",
      "3" -> """["3"]"""
    )): Unit
  }
}
