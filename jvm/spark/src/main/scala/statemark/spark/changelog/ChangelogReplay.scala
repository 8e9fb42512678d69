package statemark.spark.changelog

import org.apache.spark.sql.execution.streaming.state._
import statemark.engine.RocksEngine
import statemark.spark.errors.CheckpointDamagedException
import statemark.spark.rows.RowChecksums
import statemark.transaction.Transaction

/** Stages the records of a changelog, in order.
  *
  * ''Source:'' Spark 4.2 `RocksDB.replayChangelog`.
  */
object ChangelogReplay {

  /** Returns the number of bytes of keys and values.
    * @param checksums are verified for every record
    * @throws SparkException where a record's checksum is wrong
    * @throws CheckpointDamagedException where a record is of a column family that no snapshot names
    */
  def stage(
      reader: StateStoreChangelogReader,
      transaction: Transaction,
      checksums: RowChecksums,
      usesFamilies: Boolean
  ): Long = {
    var bytes = 0L
    val familyIds = transaction.families.byName.values.map(_.id).toSet
    try
      reader.foreach { case (kind, key, value) =>
        bytes += key.length + Option(value).fold(0)(_.length)
        // A deleted key stands behind its checksum.
        val bare = if (kind == RecordType.DELETE_RECORD) checksums.decodeDeleted(key) else key
        if (usesFamilies && !familyIds(RocksEngine.familyId(bare)))
          throw unknownFamily(RocksEngine.familyId(bare), transaction.base.version)
        kind match {
          case RecordType.PUT_RECORD =>
            checksums.verify(key, value)
            transaction.put(key, value)
          case RecordType.MERGE_RECORD =>
            checksums.verify(key, value)
            transaction.merge(key, value)
          case RecordType.DELETE_RECORD => transaction.remove(bare)
          case other if RangeDeletes.is(other) =>
            transaction.deleteRange(key, checksums.decodeRangeEnd(key, value))
          case other =>
            throw new IllegalStateException(s"A changelog holds a record of unknown kind $other.")
        }
      }
    finally reader.closeIfNeeded()
    bytes
  }

  private def unknownFamily(id: Short, version: Long): Throwable = new CheckpointDamagedException(
    s"The changelog after version $version writes to column family $id, which the snapshot before it " +
      "does not name: the snapshot that created the family is missing or damaged.",
    "Restore that file, or restart the query from an older batch.",
    None
  )
}
