package statemark.spark.offline.local

import java.io.File
import java.time.Instant
import org.apache.spark.sql.execution.streaming.state.RocksDBLoader
import org.rocksdb.{CompressionType, LRUCache}
import statemark.common.{LocalRejectedException, Position}
import statemark.engine.{BaseRecords, EngineOptions}
import statemark.ReopenedStore
import statemark.spark.local.{DiskUse, LocalDirectory, StoreDirectory}

/** How a home stands. */
sealed abstract class DirectoryState(val name: String)

object DirectoryState {

  /** A restart of its query may use it. */
  case object Idle extends DirectoryState("idle")

  /** Some process uses it. */
  case object InUse extends DirectoryState("in-use")

  /** No process uses it, and none can. */
  case object Unusable extends DirectoryState("unusable")
}

/** What a home says of itself.
  *
  * @param store operator, partition and name, as in its path
  * @param version on disk; of a home in use the one that its owner noted last, None before the first flush
  * @param partitions number of state partitions of the operator, where its records tell
  * @param position source offsets that it holds; None where it does not know them, or is in use
  * @param use what it takes of the disk; several homes may have links to the same file
  * @param problem why it is unusable
  * @param otherOwner the user whose it is, where that is another than this process's
  */
final case class DirectoryFacts(
    path: File,
    queryId: String,
    store: String,
    version: Option[Long],
    checkpointId: Option[String],
    partitions: Option[Int],
    position: Option[Position],
    use: DiskUse,
    usedAtMs: Long,
    state: DirectoryState,
    problem: Option[String],
    otherOwner: Option[String]
) {
  def usedAt: Instant = Instant.ofEpochMilli(usedAtMs)
  def bytes: Long = use.bytes
}

/** Reads homes below a root, without harm to whoever uses them: what no process uses is opened read-only, of the
  * others the owner's note is read. Of another user's homes no file is opened.
  */
final class LocalStores(root: File) {

  /** Ordered by query, store and last use. */
  def all: Seq[DirectoryFacts] = of(StoreDirectory.all(root))

  /** Returns those of one query, ordered by store and last use. */
  def ofQuery(id: String): Seq[DirectoryFacts] =
    of(StoreDirectory.all(root).filter(_.getParentFile.getParentFile.getName == id))

  private def of(homes: Seq[File]): Seq[DirectoryFacts] = if (homes.isEmpty) Nil
  else {
    RocksDBLoader.loadLibrary()
    val cache = new LRUCache(LocalStores.CacheBytes)
    try
      homes.map(facts(_, LocalStores.options(cache)))
        .filter(_.path.exists) // its owner may have deleted it meanwhile
        .sortBy(h => (h.queryId, h.store, h.usedAtMs))
    finally cache.close()
  }

  private def facts(home: File, options: EngineOptions): DirectoryFacts = {
    val store = home.getParentFile
    val base = new File(home, StoreDirectory.BaseName)
    // Native code reads no file that another user may have forged, and no lock of another user's is opened.
    val foreign = LocalDirectory.foreign(root, base)
    val isInUse = foreign.isEmpty && StoreDirectory.isInUse(home)
    val records: Either[String, BaseRecords] =
      if (foreign.isDefined) Left(s"Foreign: ${foreign.get.problem}")
      else if (isInUse) Left("in use")
      else if (StoreDirectory.isTemporary(home)) Left(LocalStores.Temporary)
      else
        try ofItsPath(ReopenedStore.inspect(base, options), home)
        catch { case e: LocalRejectedException => Left(s"${e.reason.name}: ${e.getMessage}") }
    val found = records.toOption
    DirectoryFacts(
      home,
      store.getParentFile.getName,
      store.getName,
      if (isInUse) StoreDirectory.notedVersion(home) else found.map(_.state.version),
      found.flatMap(_.state.at.checkpointId),
      found.map(_.identity.partitions).filter(_ > 0),
      found.flatMap(_.state.position),
      DiskUse.of(home),
      StoreDirectory.usedAtMs(home),
      if (isInUse) DirectoryState.InUse
      else if (found.isDefined) DirectoryState.Idle
      else DirectoryState.Unusable,
      if (isInUse) None else records.left.toOption,
      foreign.flatMap(_.owner)
    )
  }

  /** Somebody may have copied it there. */
  private def ofItsPath(records: BaseRecords, home: File): Either[String, BaseRecords] = {
    val store = home.getParentFile
    val id = records.identity
    val place = s"${id.queryId}/${id.operatorId}-${id.partitionId}-${id.storeName}"
    if (place == s"${store.getParentFile.getName}/${store.getName}") Right(records)
    else Left(s"OtherStore: it holds $place.")
  }
}

private object LocalStores {
  private val CacheBytes = 1L << 20
  private val Temporary =
    "Temporary: the checkpoint of its query has ended with its process. The next query on this directory deletes it."

  /** Enough to read a few records. */
  private def options(cache: LRUCache): EngineOptions = EngineOptions(
    cache,
    writeBufferManager = None,
    isMemoryBounded = false,
    blockSizeBytes = 4096,
    writeBufferBytes = 0,
    maxWriteBuffers = 0,
    CompressionType.NO_COMPRESSION,
    tableFormatVersion = 5,
    mergeDelimiter = ",",
    maxOpenFiles = 16,
    allowFallocate = false
  )
}
