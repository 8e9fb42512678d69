package statemark

import statemark.common.Position

/** Offsets that a version holds, written with its rows.
  *
  * ''Source:'' KIP-892, `commit(changelogOffsets)`: there the offsets of its changelog's partitions. Here the changelog
  * of a version is one file, which number and id name.
  *
  * @param checkpointId id of the version, in checkpoint format v2
  * @param position source offsets that the version includes, where the caller knows them
  */
final case class ChangelogOffsets(
    checkpointId: Option[String] = None,
    position: Option[Position] = None
)
