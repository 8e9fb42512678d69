package statemark.spark

import org.apache.spark.sql.execution.streaming.state._
import statemark.common.StoreUnusableException
import statemark.engine.RocksEngine
import statemark.transaction.Transaction

/** Stages the records of a changelog, in order.
  *
  * ''Source:'' Spark 4.2 `RocksDB.replayChangelog`.
  */
object ChangelogReplay {

  /** @param verifier checks every record where row checksums are on
    * @throws SparkException where a record's checksum is wrong
    * @throws StoreUnusableException where a record is of a column family that nobody created
    */
  def stage(
      reader: StateStoreChangelogReader,
      transaction: Transaction,
      verifier: Option[KeyValueIntegrityVerifier],
      usesFamilies: Boolean
  ): Unit = {
    val familyIds = transaction.families.byName.values.map(_.id).toSet
    try
      reader.foreach { case (kind, key, value) =>
        if (usesFamilies && !familyIds(RocksEngine.familyId(key)) && !isChecksummed(kind, verifier))
          throw unknownFamily(RocksEngine.familyId(key), transaction.base.version)
        kind match {
          case RecordType.PUT_RECORD =>
            verifier.foreach(verifyValue(_, key, value))
            transaction.put(key, value)
          case RecordType.MERGE_RECORD =>
            verifier.foreach(verifyValue(_, key, value))
            transaction.merge(key, value)
          case RecordType.DELETE_RECORD =>
            transaction.remove(verifier.fold(key)(deletedKey(_, key)))
          case RecordType.DELETE_RANGE_RECORD =>
            transaction.deleteRange(key, verifier.fold(value)(rangeEnd(_, key, value)))
          case other =>
            throw new IllegalStateException(s"A changelog holds a record of unknown kind $other.")
        }
      }
    finally reader.closeIfNeeded()
  }

  /** Such a key stands behind its checksum. */
  private def isChecksummed(kind: RecordType.Value, verifier: Option[_]): Boolean =
    kind == RecordType.DELETE_RECORD && verifier.isDefined

  private def unknownFamily(id: Short, version: Long): Throwable = new StoreUnusableException(
    s"The changelog after version $version writes to column family $id, which the snapshot before it " +
      "does not name: the snapshot that created the family is missing or damaged. Restore that file, " +
      "or restart the query from an older batch."
  )

  private def verifyValue(
      verifier: KeyValueIntegrityVerifier,
      key: Array[Byte],
      value: Array[Byte]
  ): Unit = {
    val (row, checksum) = KeyValueChecksumEncoder.decodeOneValueRowIndexWithChecksum(value)
    verifier.verify(ArrayIndexRange(key, 0, key.length), Some(row), checksum)
  }

  private def deletedKey(verifier: KeyValueIntegrityVerifier, key: Array[Byte]): Array[Byte] =
    KeyValueChecksumEncoder.decodeAndVerifyKeyRowWithChecksum(Some(verifier), key)

  private def rangeEnd(
      verifier: KeyValueIntegrityVerifier,
      begin: Array[Byte],
      end: Array[Byte]
  ): Array[Byte] =
    KeyValueChecksumEncoder.decodeAndVerifyValueRowWithChecksum(Some(verifier), begin, end, 0)
}
