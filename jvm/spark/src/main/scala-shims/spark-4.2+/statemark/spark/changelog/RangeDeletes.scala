package statemark.spark.changelog

import org.apache.spark.sql.execution.streaming.state.{RecordType, StateStoreChangelogWriter}

/** Range deletes in Spark's changelogs. */
object RangeDeletes {
  def is(kind: RecordType.Value): Boolean = kind == RecordType.DELETE_RANGE_RECORD

  def write(writer: StateStoreChangelogWriter, begin: Array[Byte], end: Array[Byte]): Unit =
    writer.deleteRange(begin, end)
}
