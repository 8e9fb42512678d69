package statemark.spark.offline.verify

import statemark.spark.checkpoint.RepairLimits

/** A version of a store that the commit log names.
  *
  * @param ids in checkpoint format v2, the ids that the batch has for the stores of this partition
  */
final case class CommittedVersion(version: Long, ids: Option[Set[String]])

/** One store to verify.
  *
  * @param directory its path
  * @param relative its path below the checkpoint
  * @param committed what the commit log says, ascending
  */
final case class StoreTask(
    operator: Long,
    partition: Int,
    name: String,
    directory: String,
    relative: String,
    committed: Seq[CommittedVersion]
) {

  /** Whether names of files have ids, as the committed versions say: both where the format has changed. */
  def formats: Set[Boolean] = committed.map(_.ids.isDefined).toSet
}

/** How stores are verified.
  *
  * @param formatVersion of the tables in SST files
  * @param confs settings that the query pins
  * @param repair what a load does where a snapshot is damaged
  * @param readsChecksumFiles whether a load fails on a file that is not what its checksum file says
  * @param isDeep versions are also loaded, and their rows counted
  */
final case class VerifySettings(
    codec: String,
    hasRowChecksums: Boolean,
    mergeDelimiter: String,
    formatVersion: Int,
    confs: Map[String, String],
    repair: RepairLimits,
    readsChecksumFiles: Boolean,
    isDeep: Boolean
)

/** What is known of one store.
  *
  * @param restorable committed versions that can be restored, ascending
  * @param leftovers files of lost attempts, which retention deletes
  * @param listing a sum over what the directory listed: another one, and somebody is writing there
  */
final case class StoreReport(
    task: StoreTask,
    findings: Seq[Finding],
    restorable: Seq[Long],
    files: Int,
    bytesRead: Long,
    snapshots: Int,
    leftovers: Int,
    leftoverBytes: Long,
    listing: Int
)
