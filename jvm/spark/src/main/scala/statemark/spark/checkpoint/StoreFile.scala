package statemark.spark.checkpoint

import statemark.engine.VersionId

/** A file in the directory of a store, by its name. */
sealed trait StoreFile

object StoreFile {
  final case class Snapshot(at: VersionId) extends StoreFile
  final case class Changelog(at: VersionId) extends StoreFile

  /** A changelog of Spark's HDFS-backed provider. */
  final case class Delta(version: Long) extends StoreFile

  /** A snapshot of Spark's HDFS-backed provider. */
  final case class FullMap(version: Long) extends StoreFile

  /** The checksum file of another file. */
  final case class Sidecar(of: String) extends StoreFile

  /** A file that snapshots name: an SST file or an archived log. */
  case object Shared extends StoreFile

  /** A temporary file of an atomic write, or a checksum file of Hadoop's. */
  case object Hidden extends StoreFile
  case object Foreign extends StoreFile

  private val Id = "([0-9]+)(?:_([0-9a-fA-F-]+))?"
  private val SnapshotName = s"$Id\\.zip".r
  private val ChangelogName = s"$Id\\.changelog".r
  private val DeltaName = "([0-9]+)\\.delta".r
  private val FullMapName = "([0-9]+)\\.snapshot".r
  private val SharedName = "(?:SSTs/[^/]+-[^/]+\\.sst|logs/[^/]+-[^/]+\\.log)".r

  private val UnfinishedName = """\.(.+)\.[0-9a-fA-F-]{36}(?:\.TID[0-9]+)?\.tmp""".r

  /** @param name relative to the directory of the store */
  def of(name: String): StoreFile = name match {
    case hidden if hidden.split('/').exists(part => part.startsWith(".") || part.startsWith("_")) =>
      Hidden
    case SnapshotName(version, id) => Snapshot(versionId(version, id))
    case ChangelogName(version, id) => Changelog(versionId(version, id))
    case DeltaName(version) => number(version).fold[StoreFile](Foreign)(Delta)
    case FullMapName(version) => number(version).fold[StoreFile](Foreign)(FullMap)
    case SharedName() => Shared
    case sidecar if sidecar.endsWith(".crc") =>
      of(sidecar.stripSuffix(".crc")) match {
        case Foreign | Sidecar(_) => Foreign
        case _ => Sidecar(sidecar.stripSuffix(".crc"))
      }
    case _ => Foreign
  }

  /** Returns the version that a file of the RocksDB providers is of: a snapshot, a changelog, or the checksum
    * file of one.
    */
  def version(name: String): Option[Long] = of(name.stripSuffix(".crc")) match {
    case Snapshot(at) => Some(at.version)
    case Changelog(at) => Some(at.version)
    case _ => None
  }

  /** Returns the version of a file whose atomic write has not ended.
    *
    * ''Source:'' Spark 4.2 `CheckpointFileManager.RenameBasedFSDataOutputStream.generateTempPath`
    */
  def unfinishedVersion(name: String): Option[Long] = name match {
    case UnfinishedName(of) => version(of)
    case _ => None
  }

  def snapshotName(at: VersionId): String = s"${stem(at)}.zip"
  def changelogName(at: VersionId): String = s"${stem(at)}.changelog"

  private def stem(at: VersionId): String =
    at.checkpointId.fold(s"${at.version}")(id => s"${at.version}_$id")

  private def versionId(version: String, id: String) =
    VersionId(number(version).getOrElse(Long.MaxValue), Option(id))

  private def number(text: String): Option[Long] = text.toLongOption
}
