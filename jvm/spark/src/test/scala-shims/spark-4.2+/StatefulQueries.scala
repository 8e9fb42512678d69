package statemark.spark.offline

import org.apache.spark.sql.{DataFrame, Encoders}
import org.apache.spark.sql.functions._
import org.apache.spark.sql.streaming._

/** A row of the input: a key, a number, event time in seconds. */
final case class Event(k: String, n: Int, s: Long)

/** A streaming query of one kind of stateful operator, or several. */
final case class StatefulQuery(
    name: String,
    mode: String,
    settings: Map[String, String],
    build: DataFrame => DataFrame
)

/** Keeps something of every kind for each key: a value, a list, a map, one of each that expires, and a
  * timer.
  */
class EverythingProcessor extends StatefulProcessor[String, Event, (String, String)] {
  @transient private var total: ValueState[Long] = _
  @transient private var all: ListState[Int] = _
  @transient private var byNumber: MapState[Int, Long] = _
  @transient private var lastUntil: ValueState[Int] = _
  @transient private var allUntil: ListState[Int] = _
  @transient private var byNumberUntil: MapState[Int, Long] = _

  override def init(mode: OutputMode, timeMode: TimeMode): Unit = {
    val hour = TTLConfig(java.time.Duration.ofHours(1))
    val (int, long) = (Encoders.scalaInt, Encoders.scalaLong)
    total = getHandle.getValueState("total", long, TTLConfig.NONE)
    all = getHandle.getListState("all", int, TTLConfig.NONE)
    byNumber = getHandle.getMapState("byNumber", int, long, TTLConfig.NONE)
    if (timeMode == TimeMode.ProcessingTime()) {
      lastUntil = getHandle.getValueState("lastUntil", int, hour)
      allUntil = getHandle.getListState("allUntil", int, hour)
      byNumberUntil = getHandle.getMapState("byNumberUntil", int, long, hour)
    }
  }

  override def handleInputRows(
      key: String,
      rows: Iterator[Event],
      timers: TimerValues
  ): Iterator[(String, String)] = {
    rows.toSeq.sortBy(e => (e.s, e.n)).foreach { event =>
      total.update(Option(total.get()).getOrElse(0L) + event.n)
      all.appendValue(event.n)
      byNumber.updateValue(event.n, Option(byNumber.getValue(event.n)).getOrElse(0L) + 1)
      if (lastUntil != null) {
        lastUntil.update(event.n)
        allUntil.appendValue(event.n)
        byNumberUntil.updateValue(event.n, event.s)
      } else getHandle.registerTimer((event.s + 30) * 1000)
    }
    Iterator(key -> s"${total.get()} ${all.get().mkString(",")} ${sorted(byNumber)}$untilNow")
  }

  override def handleExpiredTimer(
      key: String,
      timers: TimerValues,
      expired: ExpiredTimerInfo
  ): Iterator[(String, String)] =
    Iterator(key -> s"${expired.getExpiryTimeInMs()} ${total.get()} ${all.get().mkString(",")}")

  private def sorted(map: MapState[Int, Long]): String = map.iterator().toSeq.sorted.mkString(",")

  private def untilNow: String =
    if (lastUntil == null) ""
    else s" ${lastUntil.get()} ${allUntil.get().mkString(",")} ${sorted(byNumberUntil)}"
}

object StatefulQueries {
  private val prefix = "spark.sql.streaming."

  private def query(
      name: String,
      mode: String = "append",
      settings: Map[String, String] = Map.empty
  )(build: DataFrame => DataFrame): StatefulQuery =
    StatefulQuery(name, mode, settings.map { case (k, v) => prefix + k -> v }, build)

  private def joinIn(format: Int, how: String, more: (String, String)*): StatefulQuery =
    query(
      s"$how join, state format $format",
      "append",
      Map("join.stateFormatVersion" -> format.toString) ++ more
    ) { events =>
      val left =
        events.where("n % 2 = 0").select(col("k").as("lk"), col("n").as("ln"), col("t").as("lt"))
      val right =
        events.where("n % 3 = 0").select(col("k").as("rk"), col("n").as("rn"), col("t").as("rt"))
      val within =
        expr("lk = rk AND rt BETWEEN lt - INTERVAL 20 SECONDS AND lt + INTERVAL 20 SECONDS")
      left.join(right, within, how)
    }

  private val counted
      : (String, Iterator[Event], GroupState[(Int, Long)]) => Iterator[(String, Int, Long)] =
    (key, events, state) => {
      val (count, sum) = events.foldLeft(state.getOption.getOrElse((0, 0L))) {
        case ((c, s), e) => (c + 1, s + e.n)
      }
      state.update((count, sum))
      Iterator((key, count, sum))
    }

  private def transform(events: DataFrame, timeMode: TimeMode): DataFrame = {
    val spark = events.sparkSession
    import spark.implicits._
    events.as[Event].groupByKey(_.k)
      .transformWithState(new EverythingProcessor, timeMode, OutputMode.Update()).toDF()
  }

  /** A query on processing time never runs out of batches, unless those without data are off. */
  private def expiring(name: String, more: (String, String)*): StatefulQuery =
    query(name, "update", Map("noDataMicroBatches.enabled" -> "false") ++ more)(
      transform(_, TimeMode.ProcessingTime())
    )

  val all: Seq[StatefulQuery] = Seq(
    query("aggregation", "update")(_.groupBy("k").agg(count("*"), sum("n"))),
    query(
      "aggregation, row checksums",
      "update",
      Map("stateStore.rowChecksum.enabled" -> "true")
    )(
      _.groupBy("k", "n").agg(count("*"), max("s"))
    ),
    query("aggregation without keys", "update")(_.agg(count("*"), sum("n"))),
    query("windowed aggregation")(_.groupBy(window(col("t"), "15 seconds"), col("k")).count()),
    query("dropDuplicates")(_.dropDuplicates("k", "n").select("k", "n")),
    query("dropDuplicatesWithinWatermark")(
      _.dropDuplicatesWithinWatermark("k", "n").select("k", "n", "s")
    ),
    query("session window")(
      _.groupBy(session_window(col("t"), "8 seconds"), col("k")).agg(count("*"), sum("n"))
    ),
    joinIn(1, "inner"),
    joinIn(2, "left_outer"),
    joinIn(3, "full_outer"),
    joinIn(4, "left_outer", "join.stateFormatV4.enabled" -> "true"),
    query("flatMapGroupsWithState", "update") { events =>
      val spark = events.sparkSession
      import spark.implicits._
      events.select("k", "n", "s").as[Event].groupByKey(_.k)
        .flatMapGroupsWithState(OutputMode.Update(), GroupStateTimeout.NoTimeout())(counted).toDF()
    },
    query("limit")(_.select("k", "n", "s").limit(90)),
    query("a join, then duplicates, then windows") { events =>
      val other = events.where("n % 3 = 0").select(col("k").as("rk"), col("t").as("rt"))
      events.join(other, expr("k = rk AND rt BETWEEN t AND t + INTERVAL 20 SECONDS"))
        .dropDuplicates("k", "t").groupBy(window(col("t"), "15 seconds"), col("k")).count()
    },
    query("transformWithState with timers", "update")(transform(_, TimeMode.EventTime())),
    expiring("transformWithState with expiry"),
    expiring("transformWithState with expiry, Avro", "stateStore.encodingFormat" -> "avro")
  )

  /** Batches of input: keys come back, times go on, some rows are twice there. */
  val batches: Seq[Seq[Event]] = Seq.tabulate(5) { b =>
    Seq.tabulate(24)(i => Event(s"key-${(i * 7 + b * 5) % 19}", (i * 11 + b) % 12, b * 20L + i % 9))
  }

  def withTime(events: DataFrame): DataFrame =
    events.withColumn("t", timestamp_seconds(col("s"))).withWatermark("t", "10 seconds")
}
