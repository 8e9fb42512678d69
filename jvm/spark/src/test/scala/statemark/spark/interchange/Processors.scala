package statemark.spark.interchange

import java.time.Duration
import org.apache.spark.sql.Encoders
import org.apache.spark.sql.streaming._

/** The running total of a key, kept three times: as a value, as a list and as a map, all with TTL. */
final class EveryVariable extends StatefulProcessor[Int, Event, KeyTotal] {
  @transient private var total: ValueState[KeyTotal] = _
  @transient private var values: ListState[Int] = _
  @transient private var seen: MapState[Int, Int] = _

  override def init(outputMode: OutputMode, timeMode: TimeMode): Unit = {
    val ttl = TTLConfig(Duration.ofDays(30))
    total = getHandle.getValueState("total", Encoders.product[KeyTotal], ttl)
    values = getHandle.getListState("values", Encoders.scalaInt, ttl)
    seen = getHandle.getMapState("seen", Encoders.scalaInt, Encoders.scalaInt, ttl)
  }

  override def handleInputRows(
      key: Int,
      events: Iterator[Event],
      timers: TimerValues
  ): Iterator[KeyTotal] = {
    val added = events.toSeq
    val before = if (total.exists()) total.get() else KeyTotal(key, 0, 0)
    val after = KeyTotal(key, before.n + added.length, before.total + added.map(_.value).sum)
    total.update(after)
    values.appendList(added.map(_.value).toArray)
    added.foreach(e => seen.updateValue(e.id, e.value))
    val listed = values.get().toSeq
    assert(
      listed.length.toLong == after.n && listed.map(_.toLong).sum == after.total,
      s"$after, list $listed"
    )
    assert(
      seen.iterator().map(_._2.toLong).sum <= after.total,
      s"$after, map of ${seen.keys().size}"
    )
    Iterator(after)
  }
}

/** The total of a key, told once, when the watermark has passed the end of what counts. */
final class AtTheEnd extends StatefulProcessor[Int, Event, KeyTotal] {
  @transient private var total: ValueState[KeyTotal] = _

  override def init(outputMode: OutputMode, timeMode: TimeMode): Unit =
    total = getHandle.getValueState("total", Encoders.product[KeyTotal], TTLConfig.NONE)

  override def handleInputRows(
      key: Int,
      events: Iterator[Event],
      timers: TimerValues
  ): Iterator[KeyTotal] = {
    val before = if (total.exists()) total.get() else KeyTotal(key, 0, 0)
    total.update(events.foldLeft(before)((t, e) => t.copy(n = t.n + 1, total = t.total + e.value)))
    getHandle.registerTimer(Operators.end.getTime)
    Iterator.empty
  }

  override def handleExpiredTimer(
      key: Int,
      timers: TimerValues,
      expired: ExpiredTimerInfo
  ): Iterator[KeyTotal] = {
    val last = total.get()
    total.clear()
    Iterator(last)
  }
}
