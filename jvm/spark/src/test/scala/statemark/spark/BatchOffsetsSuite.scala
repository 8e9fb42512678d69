package statemark.spark

import java.nio.file.Files
import java.util.concurrent.ConcurrentLinkedQueue
import java.util.UUID
import org.apache.spark.sql.SQLContext
import org.apache.spark.TaskContext
import org.scalatest.funsuite.AnyFunSuite
import scala.jdk.CollectionConverters._
import statemark.common.{Position, SourceEnd, SourceOffset}
import statemark.spark.cluster.{BatchOffsets, SourceNames}
import statemark.spark.process.JvmState
import statemark.transaction.CommitPhase

/** The driver tells the tasks of a batch the source offsets at which it begins and ends. */
class BatchOffsetsSuite extends AnyFunSuite with OneSession {

  private val run = UUID.randomUUID()

  private def read(offsets: BatchOffsets) = BatchOffsets.decode(offsets.property)

  test("every offset reads back, known or not, and no start or end at all") {
    val position = Position(Vector(
      SourceOffset("0", SourceEnd.Offset("""{"topic":{"0":42}}""")),
      SourceOffset("clicks", SourceEnd.Nothing),
      SourceOffset("a \"name\"", SourceEnd.Offset("5"))
    ))
    val both = BatchOffsets(run, 7, Some(position), Some(position))
    assert(read(both) == both)
    val neither = BatchOffsets(run, 0, None, None)
    assert(read(neither) == neither)
    assert(BatchOffsets.read(BatchOffsets.written(position)).sources.map(_.end) ==
      position.sources.map(_.end))
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

  test("a source that was added or removed since is no difference") {
    def at(sources: (String, Int)*) =
      Position(sources.map { case (n, o) => SourceOffset(n, SourceEnd.Offset(s"$o")) }.toVector)
    assert(at("clicks" -> 1, "orders" -> 2).differences(at("orders" -> 2, "visits" -> 9)).isEmpty)
    val both = at("clicks" -> 1, "orders" -> 2).differences(at("orders" -> 3, "clicks" -> 1))
    assert(both == Vector((at("orders" -> 2).sources.head, at("orders" -> 3).sources.head)))
    val nothing = Position(Vector(SourceOffset("orders", SourceEnd.Nothing)))
    assert(nothing.differences(nothing).isEmpty && nothing.differences(at("orders" -> 0)).nonEmpty)
  }

  test("offsets of thousands of partitions do not travel with each task, but their digests") {
    def offsets(partitions: Int) = Position(Vector(SourceOffset(
      "0",
      SourceEnd.Offset(
        (0 until partitions).map(p => s""""$p":${1234567890L + p}""").mkString(
          """{"topic":{""",
          ",",
          "}}"
        )
      )
    )))
    val few = BatchOffsets(run, 1, Some(offsets(500)), Some(offsets(500)))
    assert(read(few).end == few.end)
    // Stores know a start nearly always.
    assert(read(few).start == few.start.map(_.shortened(0)) && few.start != read(few).start)
    val many = BatchOffsets(run, 1, Some(offsets(5000)), Some(offsets(5000)))
    assert(BatchOffsets.written(offsets(5000)).length > 90000 && many.property.length < 500)
    assert(read(many).end == many.end.map(_.shortened(0)))
    assert(offsets(5000).differences(read(many).end.get).isEmpty)
    assert(offsets(4999).differences(read(many).end.get).map(_._1.source) == Vector("0"))
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
    val seen = new ConcurrentLinkedQueue[(String, BatchOffsets)]
    JvmState.observer.set { phase =>
      if (phase == CommitPhase.BatchSerialized) {
        val task = TaskContext.get()
        seen.add((
          task.getLocalProperty("streaming.sql.batchId"),
          BatchOffsets.decode(task.getLocalProperty(BatchOffsets.Property))
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
    def shown(position: Option[Position]) = position.map(BatchOffsets.written)
    val byBatch = seen.asScala.map { case (batch, told) =>
      (batch, told.batch, shown(told.start), shown(told.end))
    }.toSet
    assert(byBatch == (0 to 3).map { n =>
      val ends = (n - 1 to n).map(i => Option.when(i >= 0)(s"""["$i"]"""))
      (n.toString, n.toLong, ends.head, ends.last)
    }.toSet): Unit
  }
}
