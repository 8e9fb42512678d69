package statemark.spark.changelog

import org.apache.spark.sql.execution.streaming.state.{RecordType, StateStoreChangelogWriter}

/** The range deletes of lines of Spark that have none: their changelogs have no record for it. */
object RangeDeletes {
  def is(kind: RecordType.Value): Boolean = false

  def write(writer: StateStoreChangelogWriter, begin: Array[Byte], end: Array[Byte]): Unit =
    throw new UnsupportedOperationException(
      "Changelogs of this line of Spark hold no range delete."
    )
}
