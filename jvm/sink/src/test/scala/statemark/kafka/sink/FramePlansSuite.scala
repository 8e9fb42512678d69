package statemark.kafka.sink

import java.nio.file.Files
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation
import org.apache.spark.sql.execution.{PlanLater, UnionExec}
import org.apache.spark.sql.execution.streaming.state.StatemarkBridge
import org.apache.spark.sql.functions.{broadcast, col, floor, rand}
import org.apache.spark.sql.streaming.Trigger
import org.apache.spark.sql.{DataFrame, Row, SparkSession}
import org.scalatest.BeforeAndAfterAll
import org.scalatest.funsuite.AnyFunSuite
import scala.collection.mutable
import statemark.kafka.decision.Placement
import statemark.kafka.sink.driver.FramePlans

/** What plans say of frames, in a session. */
class FramePlansSuite extends AnyFunSuite with BeforeAndAfterAll {
  private lazy val spark = SparkSession.builder().master("local[2]").appName("plans")
    .config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "3")
    .config("spark.sql.adaptive.enabled", "false").getOrCreate()

  override def afterAll(): Unit = spark.stop()

  private def placed(frame: DataFrame): Placement = FramePlans.placementOf(frame, None).get

  private def numbers: DataFrame = spark.range(0, 100, 1, 4).toDF()

  /** Runs a body with adaptive execution. */
  private def adaptive[A](body: => A): A = {
    spark.conf.set("spark.sql.adaptive.enabled", "true")
    try body
    finally spark.conf.set("spark.sql.adaptive.enabled", "false")
  }

  private def isChosen(frame: DataFrame): Boolean = placed(frame).isChosen

  test("places of rows: inputs, and shuffles in the order of the plan") {
    val plain = Placement(isChosen = false, Vector.empty, Vector(4))
    assert(placed(numbers) == plain)
    assert(placed(numbers.coalesce(1)) == plain, "to one partition there is one way")
    val counted = numbers.groupBy(col("id") % 7).count()
    assert(placed(counted) == plain.copy(shuffles = Vector(3)))
    assert(placed(counted.repartition(5)) == plain.copy(shuffles = Vector(5, 3)))
    // Every partition has all of what is broadcast: how that lay does not matter.
    val joined = numbers.join(broadcast(spark.range(0, 9, 1, 2).toDF("id")), "id")
    assert(placed(joined) == plain)
    val cached = counted.persist()
    assert(placed(cached) == plain.copy(shuffles = Vector(3)))
    cached.unpersist(): Unit
    // As Spark leaves the initial state of a transformWithState that has none.
    val unmade = UnionExec(Seq(numbers.queryExecution.executedPlan, PlanLater(LocalRelation())))
    assert(FramePlans.placed(unmade)._1 == plain)
  }

  test("places that Spark chooses as it runs") {
    assert(isChosen(numbers.coalesce(2)), "by where blocks are")
    assert(isChosen(numbers.orderBy(col("id") % 7)), "by samples")
    assert(adaptive(isChosen(numbers.groupBy(col("id") % 7).count())))
    assert(!adaptive(isChosen(numbers)), "nothing is shuffled")
    // The plan of what a frame was made of is gone.
    assert(isChosen(spark.createDataFrame(numbers.repartition(2).rdd, numbers.schema)))
    assert(!isChosen(spark.createDataFrame(numbers.rdd, numbers.schema)))
  }

  test("places that come out otherwise when a batch runs again") {
    val salted = numbers.withColumn("salt", floor(rand() * 8))
    assert(isChosen(salted.repartition(3, col("salt"))), "by a random value")
    assert(isChosen(numbers.sample(0.5).repartition(3)), "by the rows that are there")
    assert(!isChosen(salted), "nothing is shuffled")
    assert(!isChosen(numbers.repartition(3, col("id")).withColumn("salt", rand())), "behind it")
    def of(rdd: RDD[Row]) = spark.createDataFrame(rdd, numbers.schema)
    val rdd = numbers.rdd
    assert(isChosen(of(rdd.coalesce(2))), "by where blocks are")
    assert(isChosen(of(rdd.repartition(2))), "by the order of rows")
    assert(!isChosen(of(rdd.coalesce(1))), "to one partition there is one way")
  }

  /** Runs a batch of a stream of five rows, and returns what the body makes of its frame. */
  private def ofBatch[A](stream: DataFrame)(body: DataFrame => A): A = {
    val found = mutable.ArrayBuffer.empty[A]
    val checkpoint = Files.createTempDirectory("plans").toString
    val query = stream.writeStream.outputMode("append").trigger(Trigger.AvailableNow())
      .option("checkpointLocation", checkpoint)
      .foreachBatch { (frame: DataFrame, _: Long) =>
        found += body(frame)
        frame.count(): Unit // its state has to be there
      }.start()
    query.awaitTermination()
    found.head
  }

  private def rows: DataFrame =
    spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load()

  private def distinct: DataFrame = rows.dropDuplicates("value")

  test("a frame writes state where it is made of a batch of a stateful query, and not otherwise") {
    import FramePlans.writesState
    assert(!writesState(numbers))
    assert(!ofBatch(rows)(writesState))
    ofBatch(distinct) { frame =>
      val session = frame.sparkSession
      assert(writesState(frame))
      assert(writesState(frame.where("value > 1").groupBy().count()))
      assert(writesState(session.createDataFrame(frame.rdd, frame.schema)))
      assert(writesState(session.range(3).toDF().crossJoin(frame)))
      // In another session, as a client of Spark Connect has one.
      frame.createOrReplaceGlobalTempView("of_batch")
      assert(writesState(spark.newSession().table("global_temp.of_batch")))
      assert(!writesState(frame.localCheckpoint()), "the job that wrote it is over")
    }
    val other = rows.selectExpr("value AS right", "timestamp AS at")
    assert(ofBatch(rows.join(other, col("value") === col("right")))(writesState))
  }

  test(
    "places of a batch's rows are those of its query's plan as well, whose frame says the rest"
  ) {
    def own(frame: DataFrame) =
      FramePlans.placementOf(frame, StatemarkBridge.ownQuery(frame.sparkSession)).get
    ofBatch(distinct) { frame =>
      val stateful = own(frame)
      assert(!stateful.isChosen && stateful.shuffles == Vector(3) && stateful.inputs.nonEmpty)
      assert(own(frame.repartition(5)).shuffles == Vector(3, 5))
    }
    val shuffled = rows.repartition(3)
    val once = ofBatch(shuffled) { frame =>
      // Where the query is not known, it may have adapted itself.
      assert(isChosen(frame))
      own(frame)
    }
    assert(!once.isChosen && ofBatch(shuffled)(own) == once)
    assert(adaptive(ofBatch(shuffled)(own)).isChosen)
    ofBatch(rows.withColumn("salt", rand())) { frame =>
      assert(own(frame.repartition(3, col("salt"))).isChosen, "by a value of the batch's")
      assert(!own(frame).isChosen)
    }
  }

  test("places of a batch that a data source writes") {
    val folder = Files.createTempDirectory("lines")
    Files.writeString(folder.resolve("1.txt"), "a\nb\n")
    val query = spark.readStream.text(folder.toString).repartition(5).writeStream.format("noop")
      .option("checkpointLocation", Files.createTempDirectory("plans").toString).start()
    query.processAllAvailable()
    val output = StatemarkBridge.outputOf(spark, query.id.toString)
    val found = output.flatMap(FramePlans.placementOf)
    assert(found.contains(Placement(isChosen = false, Vector(5), Vector(1))))
    assert(output.flatMap(_.batch()).contains(0L))
    query.stop()
  }
}
