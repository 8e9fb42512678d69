package statemark.spark.changelog

import org.apache.spark.sql.execution.streaming.state._
import statemark.changelog.{ChangelogCommit, ChangelogWriter}
import statemark.common.{Clock, Fingerprint}
import statemark.spark.rows.RowChecksums

/** Writes a changelog through Spark's own writer, so that Spark's provider can replay it.
  *
  * With row checksums, values arrive with theirs; a delete carries one in the changelog only.
  *
  * ''Source:'' Spark 4.2 `StateStoreChangelogWriter`, formats v1 to v4.
  *
  * @param fingerprint is asked of the file once it is there
  */
final class FileChangelog(
    writer: StateStoreChangelogWriter,
    checksums: RowChecksums,
    clock: Clock,
    fingerprint: () => Option[Fingerprint]
) extends ChangelogWriter {
  private var isOpen = true

  override def put(key: Array[Byte], value: Array[Byte]): Unit = writer.put(key, value)

  override def merge(key: Array[Byte], operand: Array[Byte]): Unit = writer.merge(key, operand)

  override def delete(key: Array[Byte]): Unit = writer.delete(checksums.encodeDeleted(key))

  override def deleteRange(begin: Array[Byte], end: Array[Byte]): Unit =
    RangeDeletes.write(writer, begin, checksums.encode(begin, end))

  override def commit(): ChangelogCommit = {
    isOpen = false
    val (seen, ms) = Clock.timedMs(clock) {
      writer.commit()
      fingerprint()
    }
    ChangelogCommit(seen, ms)
  }

  override def abort(): Unit = if (isOpen) {
    isOpen = false
    writer.abort()
  }
}
