package statemark.spark.live

import java.nio.file.Files
import java.util.concurrent.{ConcurrentLinkedQueue, Semaphore}
import org.apache.spark.sql.{AnalysisException, DataFrame, SaveMode, SparkSession}
import org.apache.spark.sql.execution.streaming.state.StateStore
import org.apache.spark.sql.functions.{sum, udf}
import org.scalatest.funsuite.AnyFunSuite
import statemark.common.InvalidInputException
import statemark.spark.cluster.{AttemptBegun, AttemptRegistry, WriterOf}
import statemark.spark.OneSession
import statemark.spark.Line.MemoryStream
import statemark.spark.local.LocalDirectory
import statemark.spark.errors.{FailureKinds, LookupException}
import statemark.spark.process.JvmState

/** Format `statemark` beside a running query. */
class LiveReadSuite extends AnyFunSuite with OneSession with Banks {
  for (format <- readableFormats) {
    test(s"a read is one committed batch, with the columns of Spark's own source (v$format)") {
      val bank = new Bank(s"bank$format", format)
      (1 to 3).foreach(_ => bank.batch())
      val read = live(s"bank$format")
      assert(read.columns.toSeq == Seq("key", "value", "partition_id"))
      val rows = read.select("key.account", "value.sum", "value.count").collect()
      assert(rows.length == accounts && rows.map(_.getLong(1)).sum == 0)
      assert(rows.map(_.getLong(2)).sum == 3 * 2 * accounts)
      // Pinned anew: the same DataFrame's view shows the next batch.
      read.createOrReplaceTempView(s"live$format")
      def moved = spark.sql(s"SELECT sum(value.count) FROM live$format").head().getLong(0)
      assert(moved == 3 * 2 * accounts)
      bank.batch()
      assert(moved == 4 * 2 * accounts)
      bank.query.stop()
      bank.delete()
    }

    test(
      s"a read that was planned shows its batch, however many come before it begins (v$format)"
    ) {
      val bank = new Bank(s"late$format", format)
      (1 to 2).foreach(_ => bank.batch())
      val read = live(s"late$format").agg(sum("value.count"))
      read.queryExecution.executedPlan: Unit
      (1 to 10).foreach(_ => bank.batch())
      assert(read.collect().head.getLong(0) == 2 * 2 * accounts)
      assert(moves(s"late$format") == 12 * 2 * accounts)
    }

    test(s"a read of some partitions reads these alone (v$format)") {
      val bank = new Bank(s"parts$format", format)
      bank.batch()
      val name = s"parts$format"
      val all = live(name)
      val count = all.rdd.getNumPartitions
      assert(count > 1)
      def in(ids: Int*) = all.where(s"partition_id IN (${ids.mkString(", ")})")
      def option(id: String) = live(name, "partition" -> id)
      assert(all.collect().groupBy(_.getInt(2)).forall { case (id, rows) =>
        Seq(in(id), option(s"$id"), option(s"$id").where(s"partition_id = $id")).forall { some =>
          some.rdd.getNumPartitions == 1 && some.collect().toSet == rows.toSet
        }
      })
      assert(in(0, 1).rdd.getNumPartitions == 2)
      // Keys narrow what the filter leaves.
      val key = all.select("key.account", "partition_id").head()
      val found = in(key.getInt(1)).where(s"key.account = ${key.getInt(0)}")
      assert(found.count() == 1)
      for (nowhere <- Seq(in(count), in(-1), option("0").where("partition_id = 1")))
        assert(nowhere.rdd.getNumPartitions == 0 && nowhere.isEmpty)
      for (bad <- Seq(s"$count", "-1", "x"))
        assert(intercept[AnalysisException](option(bad).collect()).getMessage.contains("partition"))
      bank.query.stop()
      bank.delete()
    }

    test(s"batches come while it is read: every read is whole (v$format)") {
      val bank = new Bank(s"busy$format", format)
      bank.batch()
      @volatile var isReading = true
      val writer = new Thread(() => while (isReading) bank.batch())
      writer.start()
      try {
        val seen = (1 to 30).map(_ => moves(s"busy$format"))
        assert(seen == seen.sorted && seen.distinct.length > 5, s"the query went on: $seen")
      } finally {
        isReading = false
        writer.join()
      }
    }
  }

  for (format <- readableFormats)
    test(
      s"READ_UNCOMMITTED sees what a batch has staged, READ_COMMITTED nothing of it (v$format)"
    ) {
      val session = spark
      import session.implicits._
      implicit val context: org.apache.spark.sql.SQLContext = session.sqlContext
      val input = MemoryStream[(Int, Long)]
      val checkpoint = Files.createTempDirectory("statemark-live-")
      val afterwards = udf { (_: Long) =>
        LiveReadSuite.reached.release()
        LiveReadSuite.goesOn.acquire()
        true
      }.asNondeterministic()
      val formatKey = "spark.sql.streaming.stateStore.checkpointFormatVersion"
      spark.conf.set(formatKey, format)
      val query =
        try
          input.toDF().toDF("account", "amount").groupBy("account").agg(sum("amount").as("sum"))
            .where(afterwards($"sum")).writeStream.outputMode("update").format("noop")
            .option("checkpointLocation", checkpoint.toString).start()
        finally spark.conf.unset(formatKey)
      queries :+= query
      def found(options: (String, String)*): Option[Long] = {
        val named = options.toMap + ("queryId" -> query.id.toString)
        val (rows, _) = LiveLookup.find(named, """[{"account": 7}]""")
        rows.head.map(_.getStruct(1, 1).getLong(0))
      }
      def balance(level: String) = found("isolationLevel" -> level)
      val dirty = spark.newSession()
      def setLevel(level: String): Unit =
        dirty.conf.set("spark.sql.streaming.stateStore.statemark.isolationLevel", level)
      def balanceIn(asking: SparkSession): Option[Long] = {
        SparkSession.setActiveSession(asking)
        try found()
        finally SparkSession.setActiveSession(spark)
      }
      // As a Spark Connect client asks.
      def balanceAsTable(asking: SparkSession): Long = asking.read.format("statemark")
        .options(Map("queryId" -> query.id.toString, "what" -> "lookup"))
        .option("keys", """[{"account": 7}]""").load().select("row.value.sum").head().getLong(0)
      setLevel("READ_UNCOMMITTED")
      LiveReadSuite.goesOn.release()
      input.addData((7, 5L))
      query.processAllAvailable()
      LiveReadSuite.reached.acquire()
      assert(balance("READ_COMMITTED").contains(5L) && balance("READ_UNCOMMITTED").contains(5L))
      input.addData((7, 30L))
      LiveReadSuite.reached.acquire() // the second batch has written, and stands still
      assert(balance("READ_COMMITTED").contains(5L))
      assert(balance("READ_UNCOMMITTED").contains(35L))
      // Without the option each session has its own level, whichever has asked first.
      assert(balanceIn(dirty).contains(35L) && balanceIn(spark).contains(5L))
      assert(balanceAsTable(dirty) == 35L && balanceAsTable(spark) == 5L)
      setLevel("READ_COMMITTED")
      assert(balanceIn(dirty).contains(5L) && balanceAsTable(dirty) == 5L)
      LiveReadSuite.goesOn.release()
      query.processAllAvailable()
      assert(balance("READ_COMMITTED").contains(35L))
      query.stop()
      intercept[InvalidInputException](balance("READ_COMMITTED"))
      LocalDirectory.deleteTree(checkpoint.toFile)
    }

  test("a key is found where fewer columns than it has place the rows, as before Spark 3.3") {
    val session = spark
    import session.implicits._
    implicit val context: org.apache.spark.sql.SQLContext = session.sqlContext
    val input = MemoryStream[(Int, Int)]
    val strict = "spark.sql.streaming.statefulOperator.useStrictDistribution"
    spark.conf.set(strict, "false")
    val query =
      try
        input.toDF().toDF("a", "b").repartition(2, $"a").groupBy("a", "b").count()
          .writeStream.outputMode("update").format("noop").queryName("old").start()
      finally spark.conf.unset(strict)
    queries :+= query
    val pairs = (0 until 10).map(a => (a, a * 3))
    input.addData(pairs)
    query.processAllAvailable()
    val keys = pairs.map { case (a, b) => s"""{"a": $a, "b": $b}""" }.mkString("[", ",", "]")
    assert(LiveLookup.find(Map("queryName" -> "old"), keys)._1.forall(_.isDefined))
    for ((a, b) <- pairs)
      assert(live("old").where($"key.a" === a && $"key.b" === b).count() == 1)
  }

  test("a read in a foreachBatch is no attempt at a batch, also where the store is open nowhere") {
    val session = spark
    import session.implicits._
    implicit val context: org.apache.spark.sql.SQLContext = session.sqlContext
    val input = MemoryStream[Int]
    val asked = new ConcurrentLinkedQueue[AnyRef]
    def read(rows: DataFrame, batch: Long): Unit = {
      rows.collect(): Unit
      assert(asked.size > 0, "tasks of the query ask")
      StateStore.stop()
      asked.clear()
      if (batch > 0) assert(live("reading").count() == 1)
      assert(asked.isEmpty)
    }
    JvmState.runsOnCluster.set(() => true)
    JvmState.askDriver.set(Some { message =>
      asked.add(message)
      message match {
        case attempt: AttemptBegun => AttemptRegistry.begun(attempt)
        case version: WriterOf => AttemptRegistry.writer(version)
        case other => fail(s"$other is asked")
      }
    })
    try {
      val query = input.toDF().groupBy("value").count().writeStream.outputMode("update")
        .queryName("reading").foreachBatch(read _).start()
      queries :+= query
      for (_ <- 1 to 3) {
        input.addData(1)
        query.processAllAvailable()
      }
      query.stop()
    } finally {
      JvmState.askDriver.clear()
      JvmState.runsOnCluster.clear()
    }
  }

  test("keys that are not the operator's are refused with its columns") {
    val bank = new Bank("keys", "1")
    bank.batch()
    def find(keys: String) = LiveLookup.find(Map("queryName" -> "keys"), keys)._1
    assert(find("""[{"account": 3}, {"account": -3}, {"account": 3}]""").map(_.isDefined) ==
      Seq(true, false, true))
    for (
      bad <-
        Seq("{}", "[3]", "[[3, 4]]", """[{"account": 3, "b": 1}]""", """[{"account": "x"}]""")
    )
      assert(intercept[InvalidInputException](find(bad)).getMessage.contains("account: INT"), bad)
  }

  test("a lookup as a table has the rows of its keys, and runs no job") {
    val bank = new Bank("table", "1")
    bank.batch()
    def table(options: (String, String)*) = spark.read.format("statemark")
      .options(Map("queryName" -> "table") ++ options).load()
    val keys = """[{"account": 3}, {"account": -31415}, {"account": 3}]"""
    val rows = table("what" -> "lookup", "keys" -> keys)
    val plan = rows.queryExecution.executedPlan
    assert(plan.collectLeaves().map(_.nodeName) == Seq("LocalTableScan"))
    val found = rows.where("row IS NOT NULL").select("place", "row.key.account").collect().toSeq
    assert(found.map(r => r.getInt(0) -> r.getInt(1)) == Seq(0 -> 3, 2 -> 3))
    assert(!rows.queryExecution.toString.contains("31415"), "plans show no keys")

    val bad = """[{"account": 3, "number": 3}]"""
    val direct = intercept[LookupException](LiveLookup.get("""{"queryName": "table"}""", bad))
    val asTable = intercept[LookupException](table("what" -> "lookup", "keys" -> bad).collect())
    assert(direct.getMessage == asTable.getMessage && direct.getMessage.contains("account: INT"))
    for (
      (options, said) <- Seq(
        Seq("what" -> "lookup") -> "keys is missing",
        Seq("keys" -> keys) -> "what is not 'lookup'",
        Seq("what" -> "position", "keys" -> keys) -> "what is not 'lookup'",
        Seq(
          "what" -> "keys"
        ) -> "Set it to state, position, committedOffset, operators, installation or lookup"
      )
    )
      assert(intercept[Exception](table(options: _*)).getMessage.contains(said), options)
  }

  test("a query that does not run, or is not named, is refused with those that run") {
    val bank = new Bank("here", "1")
    bank.batch()
    def message(options: (String, String)*) = {
      val refused = intercept[AnalysisException](
        spark.read.format("statemark").options(options.toMap).load()
      )
      assert(FailureKinds.nameOf(refused) == "InvalidInput")
      assert(refused.getCondition == "STATEMARK.InvalidInput")
      val lines = refused.getMessage.linesIterator.toSeq
      assert(lines.map(_.takeWhile(_ != ':')) == Seq(lines.head, "  reason", "  remedy"))
      refused.getMessage
    }
    assert(message("queryName" -> "there").contains(s"running are ${bank.query.id} (here)"))
    assert(message("queryId" -> "there").contains("no UUID"))
    assert(message().contains("queryId or option queryName"))
    assert(message("queryName" -> "here", "batchId" -> "0").contains("format 'statestore'"))
    assert(message("queryName" -> "here", "isolationLevel" -> "none").contains("READ_COMMITTED"))
    val misspelt = message("queryName" -> "here", "isolationLevl" -> "READ_UNCOMMITTED")
    assert(misspelt.contains("no option isolationlevl"))
    assert(misspelt.endsWith("remedy: Did you mean isolationLevel?"))
    assert(message("queryName" -> "here", "colour" -> "red").contains("Use one of queryId, "))
    for (mode <- SaveMode.values) {
      def write(options: (String, String)*) = intercept[AnalysisException](
        spark.range(1).write.format("statemark").options(options.toMap).mode(mode).save()
      ).getMessage
      assert(write("queryName" -> "here").startsWith("Format 'statemark' cannot be written"), mode)
      assert(write().contains("The format cannot be written"), mode)
    }
  }
}

private object LiveReadSuite {
  val reached = new Semaphore(0)
  val goesOn = new Semaphore(0)
}
