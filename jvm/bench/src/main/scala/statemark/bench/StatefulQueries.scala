package statemark.bench

import java.sql.Timestamp
import org.apache.spark.sql.{DataFrame, Dataset, Encoders}
import org.apache.spark.sql.streaming._

/** A row of `bench/queries`. */
final case class Measured(key: String, ts: Timestamp, value: Long, side: Int)

/** What is known of a key. */
final case class KeyTotal(key: String, rows: Long, sum: Long)

/** Queries whose state is the user's own, which Python cannot have without a process beside the executor. */
object StatefulQueries {
  import Encoders.{product, STRING}

  private val KeptMs = 2L * 60 * 1000

  /** Totals of a key until it was not seen for two minutes; columns `key STRING, rows LONG, sum LONG`.
    * @param rows `key STRING, ts TIMESTAMP, value LONG, side INT`, with a watermark on `ts`
    */
  def mapGroups(rows: DataFrame): DataFrame =
    grouped(rows).mapGroupsWithState(GroupStateTimeout.EventTimeTimeout)(total)(
      product[KeyTotal],
      product[KeyTotal]
    ).toDF()

  /** The same without state: totals of these rows. */
  def stateless(rows: DataFrame): DataFrame =
    grouped(rows).mapGroups((key, rows) => totalOf(KeyTotal(key, 0, 0), rows)._1)(
      product[KeyTotal]
    ).toDF()

  private def grouped(rows: DataFrame) = typed(rows).groupByKey(_.key)(STRING)

  private def typed(rows: DataFrame): Dataset[Measured] = rows.as[Measured](product[Measured])

  /** Returns the total with the rows added, and the time of the last of them. */
  private def totalOf(before: KeyTotal, rows: Iterator[Measured]): (KeyTotal, Long) =
    rows.foldLeft((before, 0L)) { case ((t, ms), row) =>
      (t.copy(rows = t.rows + 1, sum = t.sum + row.value), math.max(ms, row.ts.getTime))
    }

  private val total: (String, Iterator[Measured], GroupState[KeyTotal]) => KeyTotal =
    (key, rows, state) =>
      if (state.hasTimedOut) {
        val last = state.get
        state.remove()
        last
      } else {
        val before = state.getOption.getOrElse(KeyTotal(key, 0, 0))
        val (after, latest) = totalOf(before, rows)
        state.update(after)
        state.setTimeoutTimestamp(latest + KeptMs)
        after
      }

  /** The same with a value, a list, a map and a timer for each key. */
  def transform(rows: DataFrame): DataFrame =
    grouped(rows).transformWithState(new Totals, TimeMode.EventTime(), OutputMode.Append())(
      product[KeyTotal]
    ).toDF()

  private final class Totals extends StatefulProcessor[String, Measured, KeyTotal] {
    @transient private var total: ValueState[KeyTotal] = _
    @transient private var last: ListState[Long] = _
    @transient private var sides: MapState[Int, Long] = _

    override def init(outputMode: OutputMode, timeMode: TimeMode): Unit = {
      total = getHandle.getValueState("total", product[KeyTotal], TTLConfig.NONE)
      last = getHandle.getListState("last", Encoders.scalaLong, TTLConfig.NONE)
      sides =
        getHandle.getMapState("sides", Encoders.scalaInt, Encoders.scalaLong, TTLConfig.NONE)
    }

    override def handleInputRows(
        key: String,
        rows: Iterator[Measured],
        timers: TimerValues
    ): Iterator[KeyTotal] = {
      val before = if (total.exists()) total.get() else KeyTotal(key, 0, 0)
      val (after, latest) = totalOf(
        before,
        rows.tapEach { row =>
          last.appendValue(row.value)
          val side = if (sides.containsKey(row.side)) sides.getValue(row.side) else 0L
          sides.updateValue(row.side, side + row.value)
        }
      )
      total.update(after)
      getHandle.listTimers().toList.foreach(getHandle.deleteTimer)
      getHandle.registerTimer(latest + KeptMs)
      Iterator(after)
    }

    override def handleExpiredTimer(
        key: String,
        timers: TimerValues,
        expired: ExpiredTimerInfo
    ): Iterator[KeyTotal] = {
      val end = total.get()
      val told = KeyTotal(key, last.get().size.toLong, sides.values().sum)
      total.clear()
      last.clear()
      sides.clear()
      Iterator(end, told)
    }
  }
}
