package statemark.spark.interchange

import java.sql.Timestamp
import org.apache.spark.sql.{DataFrame, Dataset, Encoders}
import org.apache.spark.sql.functions._
import org.apache.spark.sql.streaming._
import statemark.spark.Line

/** A row of the matrix's inputs; `ts` in whole seconds. */
final case class Event(id: Int, key: Int, value: Int, ts: Timestamp)

final case class KeyTotal(key: Int, n: Long, total: Long)

/** A stateful query over two inputs.
  *
  * @param settings
  *   what picks the operator's state format; without the prefix `spark.sql.streaming.`
  * @param keys
  *   in update mode, the columns that tell rows of one result apart; the last one written counts
  * @param stores
  *   what the state data source is asked for, one set of options a read
  * @param query
  *   from both inputs, streams or tables
  * @param wanted
  *   the answer of a batch, where `query` cannot be asked for it
  */
final case class Operator(
    name: String,
    settings: Map[String, String] = Map.empty,
    mode: String = "append",
    keys: Seq[String] = Nil,
    stores: Seq[Map[String, String]] = Seq(Map.empty),
    canUseAvro: Boolean = false,
    query: (Dataset[Event], Dataset[Event]) => DataFrame,
    wanted: Option[Dataset[Event] => DataFrame] = None
)

/** Every stateful operator of Spark, in each of its state formats. */
object Operators {

  // With timeouts of processing time Spark would run batches without data for ever.
  private val onlyWithData = Map("noDataMicroBatches.enabled" -> "false")

  /** Events from here on only move the watermark. */
  val end: Timestamp = Timestamp.valueOf("2026-01-02 00:00:00")

  val all: Seq[Operator] =
    aggregations ++ duplicates ++ joins ++ groups ++ withState ++ Seq(limit, several)

  private def aggregations: Seq[Operator] =
    for (version <- Seq("1", "2"); (mode, keys) <- Seq("update" -> Seq("key"), "complete" -> Nil))
      yield Operator(
        s"aggregation, $mode mode, state format $version",
        Map("aggregation.stateFormatVersion" -> version),
        mode,
        keys,
        query = (events, _) => totals(events)
      )

  private def duplicates: Seq[Operator] = Seq(
    Operator(
      "aggregation, append mode",
      query = (events, _) =>
        timed(events).groupBy(window(col("ts"), "2 hours", "1 hour"), col("key"))
          .agg(count("*").as("n"), max("value").as("top"))
    ),
    Operator(
      "session windows",
      query = (events, _) =>
        timed(events).groupBy(session_window(col("ts"), "10 minutes"), col("key"))
          .agg(count("*").as("n"), sum("value").as("total"))
    ),
    Operator(
      "dropDuplicates",
      query = (events, _) => events.dropDuplicates("id").select("id")
    ),
    Operator(
      "dropDuplicatesWithinWatermark",
      query = (events, _) =>
        timed(events, "30 days").dropDuplicatesWithinWatermark("id").select("id"),
      wanted = Some(events => timed(events).select("id").distinct())
    )
  )

  private def joins: Seq[Operator] =
    for {
      (version, hows) <- Seq(
        "1" -> Seq("inner"),
        "2" -> Seq("inner", "left_outer", "right_outer", "full_outer", "left_semi"),
        "3" -> Seq("inner", "full_outer"),
        "4" -> Seq("inner", "full_outer", "left_semi")
      )
      if version < "3" || Line.hasStoreOf42
      how <- hows
    } yield Operator(
      s"$how join, state format $version",
      Map("join.stateFormatVersion" -> version, "join.stateFormatV4.enabled" -> "true"),
      stores = Seq(Map("joinSide" -> "left"), Map("joinSide" -> "right")),
      query = joined(how, _, _)
    )

  private def joined(how: String, left: Dataset[Event], right: Dataset[Event]): DataFrame =
    timed(left).join(
      timed(right).toDF("rid", "rkey", "rvalue", "rts"),
      expr("key = rkey AND rts >= ts AND rts <= ts + INTERVAL 1 HOUR"),
      how
    )

  private def groups: Seq[Operator] =
    for {
      // Format 1 declares the time of a timeout as an integer: Spark refuses its own rows of today.
      (version, timeout) <-
        Seq("1" -> GroupStateTimeout.NoTimeout, "2" -> GroupStateTimeout.ProcessingTimeTimeout)
    } yield Operator(
      s"flatMapGroupsWithState, state format $version",
      onlyWithData + ("flatMapGroupsWithState.stateFormatVersion" -> version),
      "update",
      Seq("key"),
      query = (events, _) =>
        events.groupByKey(_.key)(Encoders.scalaInt)
          .mapGroupsWithState(timeout)(runningTotal(timeout))(
            Encoders.product[KeyTotal],
            Encoders.product[KeyTotal]
          ).toDF(),
      wanted = Some(totals)
    )

  private def runningTotal(timeout: GroupStateTimeout)(
      key: Int,
      events: Iterator[Event],
      state: GroupState[KeyTotal]
  ): KeyTotal = {
    val before = state.getOption.getOrElse(KeyTotal(key, 0, 0))
    val after = events.foldLeft(before)((t, e) => t.copy(n = t.n + 1, total = t.total + e.value))
    state.update(after)
    if (timeout != GroupStateTimeout.NoTimeout) state.setTimeoutDuration("30 days")
    after
  }

  private def withState: Seq[Operator] = Seq(
    Operator(
      "transformWithState, value, list and map state with TTL",
      onlyWithData,
      mode = "update",
      keys = Seq("key"),
      stores = Seq("total", "values", "seen").map(v => Map("stateVarName" -> v)),
      canUseAvro = true,
      query = (events, _) =>
        events.groupByKey(_.key)(Encoders.scalaInt).transformWithState(
          new EveryVariable,
          TimeMode.ProcessingTime(),
          OutputMode.Update()
        )(Encoders.product[KeyTotal]).toDF(),
      wanted = Some(totals)
    ),
    Operator(
      "transformWithState, timers",
      stores = Seq(Map("stateVarName" -> "total"), Map("readRegisteredTimers" -> "true")),
      canUseAvro = true,
      query = (events, _) =>
        timed(events).as(events.encoder).groupByKey(_.key)(Encoders.scalaInt)
          .transformWithState(new AtTheEnd, TimeMode.EventTime(), OutputMode.Append())(
            Encoders.product[KeyTotal]
          ).toDF(),
      wanted = Some(events => totals(timed(events)))
    )
  )

  private def limit: Operator = Operator(
    "limit",
    query = (events, _) => events.select("id").limit(7).select(lit(1).as("row"))
  )

  private def several: Operator = Operator(
    "three operators in a row",
    query = (events, _) =>
      timed(events)
        .groupBy(window(col("ts"), "1 hour"), col("key")).agg(sum("value").as("v"))
        .groupBy(window(col("window"), "6 hours")).agg(count("*").as("groups"), sum("v").as("v"))
        .groupBy(window(
          col("window"),
          "24 hours"
        )).agg(sum("groups").as("groups"), sum("v").as("v"))
  )

  /** What counts; all of the input moves the watermark. */
  private def timed(events: Dataset[Event], delay: String = "1 hour"): DataFrame = {
    val marked = if (events.isStreaming) events.withWatermark("ts", delay) else events
    marked.where(col("ts") < end).toDF()
  }

  private def totals(events: Dataset[_]): DataFrame =
    events.groupBy("key").agg(count("*").as("n"), sum("value").as("total"))
}
