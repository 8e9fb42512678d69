package statemark.spark.changelog

import org.apache.spark.sql.execution.streaming.state._
import statemark.changelog.{ChangelogCommit, ChangelogWriter}
import statemark.common.{Clock, Disk, DiskWrites, Fingerprint}
import statemark.spark.rows.RowChecksums

/** Writes a changelog through Spark's own writer, so that Spark's provider can replay it.
  *
  * With row checksums, values arrive with theirs; a delete carries one in the changelog only.
  *
  * ''Source:'' Spark 4.2 `StateStoreChangelogWriter`, formats v1 to v4.
  *
  * @param path the file, as messages name it
  * @param fingerprint is asked of the file once it is there
  */
final class FileChangelog(
    path: String,
    writer: StateStoreChangelogWriter,
    checksums: RowChecksums,
    clock: Clock,
    fingerprint: () => Option[Fingerprint]
) extends ChangelogWriter {
  private var isOpen = true

  override def put(key: Array[Byte], value: Array[Byte]): Unit =
    try writer.put(key, value)
    catch { case e: Throwable => throw told(e) }

  override def merge(key: Array[Byte], operand: Array[Byte]): Unit =
    try writer.merge(key, operand)
    catch { case e: Throwable => throw told(e) }

  override def delete(key: Array[Byte]): Unit =
    try writer.delete(checksums.encodeDeleted(key))
    catch { case e: Throwable => throw told(e) }

  override def deleteRange(begin: Array[Byte], end: Array[Byte]): Unit =
    try RangeDeletes.write(writer, begin, checksums.encode(begin, end))
    catch { case e: Throwable => throw told(e) }

  // Hadoop throws an Error where a local disk is full. A closure for each row would cost more than this.
  private def told(failure: Throwable): Throwable =
    DiskWrites.told(Disk.Checkpoint, path, failure)

  override def commit(): ChangelogCommit = {
    isOpen = false
    val (seen, ms) = Clock.timedMs(clock) {
      DiskWrites.to(Disk.Checkpoint, path)(writer.commit())
      fingerprint()
    }
    ChangelogCommit(seen, ms)
  }

  override def abort(): Unit = if (isOpen) {
    isOpen = false
    writer.abort()
  }
}
