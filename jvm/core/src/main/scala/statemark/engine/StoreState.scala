package statemark.engine

import statemark.common.{Fingerprint, Position}

/** The identity of a store, wherever its files lie: host, executor and path are no part of it.
  *
  * @param queryId id of the streaming query, empty where no query runs
  * @param partitions number of state partitions of the operator, -1 where unknown
  */
final case class StoreIdentity(
    queryId: String,
    operatorId: Long,
    partitionId: Int,
    storeName: String,
    partitions: Int
)

/** One of Spark's virtual column families: a two-byte key prefix with a name. */
final case class ColumnFamily(id: Short, isInternal: Boolean)

/** The column families of one version and the highest id ever given; ids are never given twice
  * in the history of a store, but those of an aborted batch are no part of it.
  */
final case class ColumnFamilies(byName: Map[String, ColumnFamily], maxId: Short) {

  /** With `name` added; unchanged where it exists. */
  def created(name: String, isInternal: Boolean): ColumnFamilies =
    if (byName.contains(name)) this
    else {
      val id = (maxId + 1).toShort
      ColumnFamilies(byName.updated(name, ColumnFamily(id, isInternal)), id)
    }

  def removed(name: String): ColumnFamilies = copy(byName = byName - name)

  def isInternal(id: Short): Boolean = internalIds.contains(id)

  /** Tells whether no column family of these has an id that another one has in `other`. */
  def agreesWith(other: ColumnFamilies): Boolean = {
    val there = other.byName.map { case (name, family) => family.id -> name }
    byName.forall { case (name, family) => there.get(family.id).forall(_ == name) }
  }

  val hasInternal: Boolean = byName.valuesIterator.exists(_.isInternal)

  private lazy val internalIds: Set[Short] =
    byName.valuesIterator.collect { case ColumnFamily(id, true) => id }.toSet
}

object ColumnFamilies {
  val none: ColumnFamilies = ColumnFamilies(Map.empty, 0)
}

/** A version of a store with the id that checkpoint format v2 gives it. */
final case class VersionId(version: Long, checkpointId: Option[String])

/** Number of rows, or -1 for both where rows are not tracked. */
final case class RowCounts(keys: Long, internalKeys: Long) {
  def isTracked: Boolean = keys >= 0
  def isZero: Boolean = keys == 0 && internalKeys == 0
}

object RowCounts {
  val zero: RowCounts = RowCounts(0, 0)
  val untracked: RowCounts = RowCounts(-1, -1)
}

/** The record of a store about itself. In the base it lies in the offsets column family, written in
  * the same batch as the rows it describes (invariant I2).
  *
  * @param lastSnapshot newest snapshot that this version builds on; version 0 where there is none
  * @param lineage (version, checkpoint id) pairs from the last snapshot up to this version, in
  *   format v2; empty in format v1
  * @param position source offsets that this version includes; None where the caller did not know them
  * @param fingerprint the fingerprint of the file that brought this version, in format v1; None where none was taken
  */
final case class StoreState(
    at: VersionId,
    counts: RowCounts,
    families: ColumnFamilies,
    lastSnapshot: VersionId,
    lineage: Vector[VersionId],
    position: Option[Position],
    fingerprint: Option[Fingerprint] = None
) {
  def version: Long = at.version
}

object StoreState {
  def empty(version: Long, counts: RowCounts): StoreState = {
    val at = VersionId(version, None)
    StoreState(at, counts, ColumnFamilies.none, VersionId(0, None), Vector.empty, None)
  }
}

/** The proof, in checkpoint format v1, that the history which led to a version still stands. */
final case class HistoryProof(version: Long, fingerprint: Fingerprint)

/** An SST file of the base store that lies in the checkpoint location as well.
  *
  * @param version the version of the snapshot that brought it there
  */
final case class UploadedSst(localName: String, remoteName: String, bytes: Long, version: Long)
