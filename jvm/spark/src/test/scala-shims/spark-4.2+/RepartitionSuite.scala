package statemark.spark.offline

import java.nio.file.{Files, Path}
import org.apache.spark.sql.{DataFrame, SQLContext}
import org.apache.spark.sql.execution.streaming.runtime.MemoryStream
import org.apache.spark.sql.execution.streaming.state.StatemarkBridge
import org.apache.spark.sql.streaming.StreamingQuery
import org.scalatest.funsuite.AnyFunSuite
import scala.collection.mutable
import statemark.spark.conf.ProviderClass
import statemark.spark.offline.checkpoint.QueryCheckpoint
import statemark.spark.offline.repartition.{Repartition, RepartitionProgress, RepartitionResult}
import statemark.spark.{OneSession, StatemarkExtensions, StatemarkStateStoreProvider}

/** A checkpoint of a query that tests stop, repartition and start again. */
trait RepartitionedQueries extends OneSession { this: AnyFunSuite =>
  protected val prefix = "spark.sql.streaming.stateStore."
  protected val statemark: String = classOf[StatemarkStateStoreProvider].getName
  protected val isWhole: Boolean = sys.env.get("STATEMARK_REPARTITION").contains("all")

  /** Those that a query has before anything is repartitioned. */
  protected val partitions: Int = if (isWhole) 4 else 2

  override protected def sessionSettings: Map[String, String] = Map(
    "spark.sql.shuffle.partitions" -> partitions.toString,
    "spark.sql.extensions" -> classOf[StatemarkExtensions].getName
  )

  protected def withSettings[A](settings: Map[String, String])(body: => A): A = {
    settings.foreach { case (k, v) => spark.conf.set(k, v) }
    try body
    finally settings.keys.foreach(spark.conf.unset)
  }

  /** One query from its first batch on; each `process` is a run of its own. */
  protected class Running(query: StatefulQuery) {
    val checkpoint: Path = Files.createTempDirectory("statemark-repartition-")
    private implicit val sql: SQLContext = spark.sqlContext
    private val input = {
      import spark.implicits._
      MemoryStream[Event]
    }

    def start(into: mutable.Buffer[String] = mutable.Buffer.empty): StreamingQuery = {
      val result = query.build(StatefulQueries.withTime(input.toDF()))
      result.writeStream
        .foreachBatch((rows: DataFrame, _: Long) => into ++= rows.collect().map(_.toString): Unit)
        .outputMode(query.mode)
        .option("checkpointLocation", checkpoint.toString)
        .start()
    }

    /** What a run makes of `batches`, as a sorted list of rows for each. */
    def process(batches: Seq[Seq[Event]]): Seq[Seq[String]] = {
      val rows = mutable.Buffer.empty[String]
      val running = start(rows)
      try
        batches.map { batch =>
          rows.clear()
          input.addData(batch)
          running.processAllAvailable()
          rows.sorted.toSeq
        }
      finally running.stop()
    }

    def add(batch: Seq[Event]): Unit = input.addData(batch): Unit

    def repartition(progress: RepartitionProgress => Unit = _ => ()): Repartition = {
      val hadoopConf = StatemarkBridge.hadoopConf(spark)
      new Repartition(spark, QueryCheckpoint.open(checkpoint.toString, spark, hadoopConf), progress)
    }
  }
}

/** 2 partitions to 6 to 3, with new input after each step: the output is that of a run on Spark's own
  * provider which is never repartitioned. By default each query goes once, in the formats by turns;
  * `STATEMARK_REPARTITION=all` runs both, from 4 partitions to 16 to 3, and some queries on Spark's provider.
  */
class RepartitionSuite extends AnyFunSuite with RepartitionedQueries {
  private val phases = {
    val batches = StatefulQueries.batches
    Seq(batches.take(2), batches.slice(2, 3), batches.drop(3))
  }
  private val many = if (isWhole) 16 else 6
  private val answers = mutable.Map.empty[String, Seq[Seq[Seq[String]]]]

  private def answer(query: StatefulQuery): Seq[Seq[Seq[String]]] = answers.getOrElseUpdate(
    query.name,
    withSettings(query.settings + (s"${prefix}providerClass" -> ProviderClass.RocksDb.className)) {
      val control = new Running(query)
      phases.map(control.process)
    }
  )

  private def continues(query: StatefulQuery, provider: String, format: Int): Unit =
    test(s"${query.name}: format v$format, ${provider.split('.').last}") {
      val expected = answer(query)
      assert(expected.last.flatten.nonEmpty)
      val settings = query.settings ++ Map(
        s"${prefix}providerClass" -> provider,
        s"${prefix}checkpointFormatVersion" -> format.toString
      )
      withSettings(settings) {
        val running = new Running(query)
        assert(running.process(phases(0)) == expected(0))
        for (((from, to), phase) <- Seq((partitions, many), (many, 3)).zip(1 to 2)) {
          val events = mutable.Buffer.empty[RepartitionProgress]
          running.repartition(events += _).run(to) match {
            case moved: RepartitionResult.Moved =>
              assert((moved.from, moved.to) == (from, to))
              assert(moved.rows > 0 && moved.rows == events.last.rows)
              assert(events.last.storesDone == moved.stores && events.last.stores == moved.stores)
            case other => fail(s"$other")
          }
          assert(running.process(phases(phase)) == expected(phase), s"after $from to $to")
        }
      }
    }

  for {
    (query, index) <- StatefulQueries.all.zipWithIndex
    format <- if (isWhole) 1 to 2 else Seq(1 + index % 2)
  } continues(query, statemark, format)

  if (isWhole)
    for (
      query <- StatefulQueries.all
      if Seq("session", "full_o", "transf").exists(query.name.startsWith)
    )
      continues(query, ProviderClass.RocksDb.className, 2)
}
