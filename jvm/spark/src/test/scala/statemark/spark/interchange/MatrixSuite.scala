package statemark.spark.interchange

import java.io.File
import java.nio.file.Files
import java.sql.Timestamp
import java.util.concurrent.{ConcurrentHashMap, Executors}
import org.apache.hadoop.fs.FileUtil
import org.apache.spark.sql.{DataFrame, Row, SQLContext, SparkSession}
import org.scalatest.funsuite.AnyFunSuite
import scala.concurrent.{Await, ExecutionContext, Future}
import scala.concurrent.duration.Duration
import scala.jdk.CollectionConverters._
import scala.util.{Failure, Success, Try}
import statemark.common.Clock
import statemark.spark.{Line, StoppedMaintenance}
import statemark.spark.Line.MemoryStream
import statemark.spark.conf.ProviderClass
import statemark.spark.offline.cli.{CommandContext, Waiter}
import statemark.spark.offline.{CommandLine, RecordingConsole}
import statemark.spark.offline.switching.SwitchCommand
import statemark.spark.offline.verify.CheckpointVerifier

/** I10, for whole queries: a checkpoint goes from one provider to the other and back while its query
  * stands, the query's answer is that of a batch, and `verify` has nothing to say of the files.
  *
  * By default each operator runs in one combination of the settings, and they take turns; of joins each kind
  * and each state format runs. `STATEMARK_MATRIX=all` runs every combination, begun by either provider.
  */
class MatrixSuite extends AnyFunSuite with StoppedMaintenance {
  import MatrixSuite._

  private lazy val spark = SparkSession.builder()
    .master("local[4]")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.sql.extensions", "statemark.spark.StatemarkExtensions")
    .config(s"${prefix}stateStore.maintenanceInterval", "200ms")
    .config(s"${prefix}stateStore.minDeltasForSnapshot", "2")
    .getOrCreate()
  private val threads = Executors.newFixedThreadPool(4)
  private implicit val pool: ExecutionContext = ExecutionContext.fromExecutor(threads)

  override protected def afterAll(): Unit = {
    threads.shutdown()
    spark.stop()
    super.afterAll()
  }

  private val isWhole = sys.env.get("STATEMARK_MATRIX").contains("all")

  for {
    (operator, index) <- Operators.all.zipWithIndex
    if isWhole || !joinsAgain(operator.name)
  } test(operator.name) {
    spark: Unit
    val cases = casesOf(operator, index)
    val results = cases.map(c => c -> Future(Try(run(operator, c))))
    val failures = results.flatMap { case (c, result) =>
      Await.result(result, Duration.Inf) match {
        case Success(()) => None
        case Failure(e) => Some(s"$c: ${e.toString.linesIterator.next()}" -> e)
      }
    }
    info(s"${cases.length} combinations")
    failures.headOption.foreach { case (_, e) =>
      fail(s"${failures.length} of ${cases.length} failed\n${failures.map(_._1).mkString("\n")}", e)
    }
  }

  private def casesOf(operator: Operator, index: Int): Seq[Case] = {
    val encodings = if (operator.canUseAvro) Seq("unsaferow", "avro") else Seq("unsaferow")
    val whole = for {
      format <- Seq(1, 2)
      encoding <- encodings
      hasChangelogs <- Seq(true, false)
      hasChecksums <- if (Line.hasStoreOf42) Seq(true, false) else Seq(false)
      beginner <- providers
    } yield Case(format, encoding, hasChangelogs, hasChecksums, beginner)
    // 5 has no divisor in common with the number of combinations, a power of two.
    if (isWhole) whole else Seq(whole(index * 5 % whole.length))
  }

  /** The query under `case`, its checkpoint handed over after each turn. */
  private def run(operator: Operator, setting: Case): Unit = {
    val session = spark.newSession()
    settingsOf(operator, setting).foreach { case (k, v) => session.conf.set(prefix + k, v) }
    implicit val sql: SQLContext = session.sqlContext
    import session.implicits._
    val (left, right) = (MemoryStream[Event], MemoryStream[Event])
    val query = operator.query(left.toDS(), right.toDS())
    val checkpoint = Files.createTempDirectory("statemark-matrix-").toString
    val written = new ConcurrentHashMap[Long, Seq[Row]]

    val others =
      Iterator.iterate(setting.beginner)(p => if (p == providers(0)) providers(1) else providers(0))
    for ((batches, provider) <- turns(setting).zip(others)) {
      if (batches.head > 0) hand(checkpoint, provider, session)
      session.conf.set(s"${prefix}stateStore.providerClass", provider.className)
      val running = query.writeStream.outputMode(operator.mode)
        .option("checkpointLocation", checkpoint)
        .foreachBatch { (rows: DataFrame, id: Long) =>
          written.put(id, rows.collect().toSeq): Unit
        }
        .start()
      try
        for (b <- batches) {
          left.addData(inputs(b)._1)
          right.addData(inputs(b)._2)
          running.processAllAvailable()
        }
      finally running.stop()
    }

    val batch = batchAnswer(session, operator)
    val streamed =
      answer(operator, query.columns.toSeq, written.asScala.toSeq.sortBy(_._1).map(_._2))
    assert(streamed.nonEmpty)
    assert(sorted(streamed) == sorted(batch))

    // The state data source of Spark 4.0 does not know checkpoint ids.
    val isReadable = setting.format == 1 || Line.hasStoreOf41
    val states = providers.map { provider =>
      hand(checkpoint, provider, session)
      operator.stores.filter(_ => isReadable).map(o =>
        sorted(session.read.format("statestore").options(o).load(checkpoint).collect().toSeq)
      )
    }
    assert(states.distinct.length == 1, s"the state data source disagrees on $checkpoint")
    val findings =
      new CheckpointVerifier(contextOf(session), checkpoint, isDeep = false).run().findings
    assert(findings.isEmpty, s"on $checkpoint")
    FileUtil.fullyDelete(new File(checkpoint)): Unit
  }

  private def batchAnswer(session: SparkSession, operator: Operator): Seq[Row] = {
    import session.implicits._
    val (left, right) = (inputs.flatMap(_._1).toDS(), inputs.flatMap(_._2).toDS())
    operator.wanted.map(_(left)).getOrElse(operator.query(left, right)).collect().toSeq
  }

  private def answer(operator: Operator, columns: Seq[String], batches: Seq[Seq[Row]]): Seq[Row] =
    operator.mode match {
      case "append" => batches.flatten
      case "complete" => batches.last
      case "update" =>
        val keys = operator.keys.map(columns.indexOf(_))
        batches.flatten.map(row => keys.map(row.get) -> row).toMap.values.toSeq
    }

  private def sorted(rows: Seq[Row]): Seq[String] = rows.map(_.toString()).sorted
}

object MatrixSuite {
  private val prefix = "spark.sql.streaming."

  /** Joins of which another test has the kind, and another one the state format. */
  private val joinsAgain: Set[String] =
    Seq("inner" -> 2, "full_outer" -> 2, "left_semi" -> 2, "inner" -> 3, "inner" -> 4)
      .map { case (how, version) => s"$how join, state format $version" }.toSet
  private val providers: Seq[ProviderClass] = Seq(ProviderClass.RocksDb, ProviderClass.Statemark)

  /** One combination of settings, begun by one of the providers. */
  private final case class Case(
      format: Int,
      encoding: String,
      hasChangelogs: Boolean,
      hasChecksums: Boolean,
      beginner: ProviderClass
  )

  private def settingsOf(operator: Operator, setting: Case): Map[String, String] =
    operator.settings ++ Map(
      "stateStore.checkpointFormatVersion" -> setting.format.toString,
      "stateStore.encodingFormat" -> setting.encoding,
      "stateStore.rocksdb.changelogCheckpointing.enabled" -> setting.hasChangelogs.toString,
      "stateStore.rowChecksum.enabled" -> setting.hasChecksums.toString
    )

  /** Which batches run in which turn, so that checkpoints change hands after 1, 2, 3, … batches. */
  private def turns(setting: Case): Seq[Range] = {
    val lengths = Seq(Seq(1, 3, 2), Seq(3, 1, 2), Seq(2, 2, 1), Seq(1, 1, 1))
    val ends = lengths(math.floorMod(setting.hashCode, lengths.length)).scanLeft(0)(_ + _) :+
      inputs.length
    ends.zip(ends.tail).map { case (from, until) => from until until }
  }

  /** Ids repeat within a batch and from one to the next; the last batch only moves the watermark. */
  private val inputs: Seq[(Seq[Event], Seq[Event])] = {
    def events(batch: Int, keys: Int): Seq[Event] = Seq.tabulate(40) { i =>
      val id = batch * 30 + i % 35
      val ts = Timestamp.valueOf("2026-01-01 00:00:00").getTime + (id / 30) * 3600000L +
        (id * 97 % 3600) * 1000L
      Event(id, id % keys, id * 7 % 100, new Timestamp(ts))
    }
    val future = Seq(Event(-1, -1, 0, Timestamp.valueOf("2026-06-01 00:00:00")))
    Seq.tabulate(7)(b => events(b, 11) -> events(b, 17)) :+ (future -> future)
  }

  private def hand(checkpoint: String, provider: ProviderClass, session: SparkSession): Unit = {
    // A batch that was stopped half-way is run again by the next provider.
    val args = Seq(checkpoint, "--to", provider.shortName, "--observe", "0", "--force")
    CommandLine.run(SwitchCommand, args, contextOf(session)): Unit
  }

  // Providers of a stopped query may still maintain their stores: `verify` waits for them.
  private def contextOf(session: SparkSession): CommandContext =
    new CommandContext(session, new RecordingConsole, Clock.system, Waiter.system)
}
