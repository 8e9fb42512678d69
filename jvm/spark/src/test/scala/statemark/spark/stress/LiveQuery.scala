package statemark.spark.stress

import java.nio.file.Path
import java.util.concurrent.{Semaphore, TimeUnit}
import org.apache.spark.sql.functions.{sum, udf}
import org.apache.spark.sql.{SQLContext, SparkSession}
import org.apache.spark.sql.streaming.StreamingQuery
import scala.util.Random
import statemark.common.{Causes, InvalidInputException}
import statemark.IsolationLevel
import statemark.spark.conf.StoreSettings
import statemark.spark.StatemarkStateStoreProvider
import statemark.spark.Line.MemoryStream
import statemark.spark.live.LiveLookup
import statemark.spark.model.{Check, Disagreement}

/** A query of Spark's, beside the store of the history: for what lies between sessions, lookups and runs. It sums
  * amounts by account, one row in each batch, which stands still once that row is staged.
  */
private[stress] final class LiveQuery(random: Random, checkpoint: Path) extends AutoCloseable {
  private val session = LiveQuery.spark.newSession()
  import session.implicits._
  private implicit val context: SQLContext = session.sqlContext
  private val input = MemoryStream[(Int, Long)]
  private val format = 1 + random.nextInt(2)
  private var committed = Map.empty[Int, Long]
  private var query = started(format)

  // Lookups are of sessions with no level of their own, with one that stays, with one that changes.
  private val asking = Vector.fill(3)(session.newSession())
  asking(1).conf.set(LiveQuery.levelKey, IsolationLevel.ReadUncommitted.name)
  batch(_ => ())

  private def started(format: Int): StreamingQuery = {
    LiveQuery.reached.drainPermits()
    LiveQuery.goesOn.drainPermits()
    session.conf.set(LiveQuery.formatKey, format.toString)
    val stands = udf { (_: Long) =>
      LiveQuery.reached.release()
      LiveQuery.goesOn.acquire()
      true
    }.asNondeterministic()
    input.toDF().toDF("account", "amount").groupBy("account").agg(sum("amount").as("sum"))
      .where(stands($"sum")).writeStream.outputMode("update").format("noop")
      .option("checkpointLocation", checkpoint.toString).start()
  }

  /** Lookups of random keys, levels and sessions, beside an open batch and after it. */
  def lookUp(): Unit = {
    batch(staged => (1 to 2 + random.nextInt(4)).foreach(_ => lookUp(staged)))
    lookUp(committed)
  }

  /** The query starts with a format that may be another one than its checkpoint's: it is refused then. Afterwards it
    * goes on as it was.
    */
  def changeFormat(): Unit = {
    val other = 1 + random.nextInt(2)
    query.stop()
    query = started(other)
    if (other == format) batch(_ => ())
    else {
      val row = next()
      input.addData(row)
      if (reachesBatch())
        throw Disagreement(s"format $other refused where the checkpoint has $format", "a batch")
      if (!query.exception.exists(Causes.of(_).exists(_.isInstanceOf[InvalidInputException])))
        throw Disagreement("a refusal of the other format", s"${query.exception}")
      query = started(format)
      finish(row)(_ => ())
    }
  }

  private def next(): (Int, Long) =
    (LiveQuery.accounts(random.nextInt(LiveQuery.accounts.size)), 1L + random.nextInt(1000))

  /** @param beside is given what the batch has staged, while it stands */
  private def batch(beside: Map[Int, Long] => Unit): Unit = {
    val row = next()
    input.addData(row)
    finish(row)(beside)
  }

  private def finish(row: (Int, Long))(beside: Map[Int, Long] => Unit): Unit = {
    val (account, amount) = row
    val staged = committed.updated(account, committed.getOrElse(account, 0L) + amount)
    if (!reachesBatch()) throw Disagreement("a batch", s"none: ${query.exception}")
    try beside(staged)
    finally LiveQuery.goesOn.release()
    query.processAllAvailable()
    committed = staged
  }

  /** Whether a batch comes to stand, and the query does not end instead. */
  private def reachesBatch(): Boolean = {
    def stands = LiveQuery.reached.tryAcquire(LiveQuery.LookMs, TimeUnit.MILLISECONDS)
    Iterator.continually((stands, query.isActive)).collectFirst {
      case (true, _) => true
      case (false, false) => false
    }.get
  }

  private def lookUp(staged: Map[Int, Long]): Unit = {
    val now = asking(random.nextInt(asking.size))
    val level = IsolationLevel.all(random.nextInt(2))
    if (now eq asking(2)) now.conf.set(LiveQuery.levelKey, level.name)
    val option = Option.when(random.nextInt(3) == 0)("isolationLevel" -> level.name)
    val ofSession =
      IsolationLevel.of(now.conf.get(LiveQuery.levelKey, IsolationLevel.ReadCommitted.name))
    val asked = if (option.isDefined) level else ofSession
    SparkSession.setActiveSession(now)
    val (rows, _) =
      try
        LiveLookup.find(
          Map("queryId" -> query.id.toString) ++ option,
          LiveQuery.accounts.map(a => s"""{"account": $a}""").mkString("[", ",", "]")
        )
      finally SparkSession.clearActiveSession()
    val expected = if (asked == IsolationLevel.ReadCommitted) committed else staged
    Check.same(
      s"accounts at ${asked.name} in session ${asking.indexOf(now)}, asked for $option",
      LiveQuery.accounts.map(expected.get),
      rows.map(_.map(_.getStruct(1, 1).getLong(0)))
    )
  }

  override def close(): Unit = query.stop()
}

private object LiveQuery {
  val levelKey: String = s"${StoreSettings.Prefix}isolationLevel"
  val formatKey = "spark.sql.streaming.stateStore.checkpointFormatVersion"

  val LookMs = 20L
  val accounts: Seq[Int] = Seq(1, 2, 3)

  // Of the process, as tasks get copies of what functions hold.
  val reached = new Semaphore(0)
  val goesOn = new Semaphore(0)

  lazy val spark: SparkSession = SparkSession.builder().master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "1")
    .config(
      "spark.sql.streaming.stateStore.providerClass",
      classOf[StatemarkStateStoreProvider].getName
    )
    .getOrCreate()
}
