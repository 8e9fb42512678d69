package statemark.spark.changelog

import java.io.IOException
import java.util.UUID
import org.apache.hadoop.fs.Path
import org.apache.spark.io.LZ4CompressionCodec
import org.apache.spark.sql.execution.streaming.state._
import scala.util.Try
import scala.util.control.NonFatal
import statemark.changelog.ChangelogWriter
import statemark.common.{Clock, Disk, DiskWrites, Fingerprint}
import statemark.engine.{StoreState, VersionId}
import statemark.spark.checkpoint.{
  Before,
  ByteCount,
  ChangelogSignature,
  CountedFiles,
  FileDamage,
  FileProofs,
  NamedChangelog,
  StoreFile
}
import statemark.spark.errors.StoreFailures
import statemark.spark.process.Relocated.CheckpointFileManager
import statemark.spark.rows.RowChecksums

/** The changelogs of one store in the checkpoint location, through Spark's writers and readers. In checkpoint format v1
  * their bytes are counted below the compression of Spark's, and they end with a signature; Spark's manager of these files
  * has no place for that, so that what it does with them is done here.
  *
  * ''Thread:'' any; one of them writes.
  * ''Source:'' Spark 4.2 `RocksDBFileManager.getChangeLogWriter` and `getChangelogReader`.
  *
  * @param run the run of the query
  * @param manager opens them, with a checksum beside each where that is wanted
  * @param counted is below `manager`
  * @param proofs take fingerprints of all files that are written; None where they are not needed
  * @param proofsOfLast take those of the files that loads end with; None where they are not needed
  * @param proofsOn a base take that of the next version, which may need one all the same
  */
final class ChangelogFiles(
    files: RocksDBFileManager,
    directory: Path,
    run: UUID,
    manager: => CheckpointFileManager,
    counted: => CountedFiles,
    proofs: Option[FileProofs],
    proofsOfLast: Option[FileProofs],
    proofsOn: StoreState => Option[FileProofs],
    codecName: String,
    usesFamilies: Boolean,
    clock: Clock
) {

  /** The newest versions that this store has written, or was brought to. */
  @volatile private var known = Map.empty[Long, Known]

  /** Returns a changelog for version `base + 1`.
    * @param id the checkpoint id of the new version, in format v2
    */
  def create(
      base: StoreState,
      id: Option[String],
      checksums: RowChecksums
  ): ChangelogWriter = {
    val version = base.version + 1
    val path = new Path(directory, StoreFile.changelogName(VersionId(version, id)))
    val (writer, fingerprint) =
      try
        id match {
          case Some(_) =>
            val lineage = Some(LineageItems.toItems(base.lineage))
            (files.getChangeLogWriter(version, usesFamilies, id, lineage), () => None)
          case None =>
            val signature = ChangelogSignature.next(run, before(base.version))
            val (writer, count) = openWriter(version, signature, path)
            (
              writer,
              () => {
                note(version, Some(NamedChangelog.Signed(signature.id)))
                for {
                  proofs <- proofs.orElse(proofsOn(base))
                  bytes <- count.whole
                  seen <- proofs.written(version, bytes, base.fingerprint)
                } yield seen
              }
            )
        }
      catch {
        case NonFatal(e) =>
          val told = DiskWrites.told(Disk.Checkpoint, path.toString, e)
          throw StoreFailures.writingChangelog(directory.toString, version, told)
      }
    new FileChangelog(path.toString, writer, checksums, clock, fingerprint)
  }

  /** Opens a changelog for reading.
    * @param isLast whether the changelog brings the wanted version, whose fingerprint the store needs
    */
  def open(at: VersionId, isLast: Boolean): OpenChangelog =
    if (!isLast || at.checkpointId.isDefined)
      new OpenChangelog(files.getChangelogReader(at.version, at.checkpointId), None)
    else {
      // Before its bytes: if another takes its place meanwhile, this says so.
      val status = proofsOfLast.flatMap(_.statusOf(at.version))
      val path = new Path(directory, StoreFile.changelogName(at))
      val (reader, count) = counted.follow(path)(readerOf(path))
      def ended() = {
        val signature = count.signature
        count.whole.foreach { bytes =>
          note(at.version, Some(NamedChangelog(signature, bytes)))
        }
        for (proofs <- proofsOfLast; bytes <- count.whole; seen <- proofs.found(status, bytes))
          yield seen
      }
      new OpenChangelog(reader, Some(new ReadToEnd(count, () => ended())))
    }

  /** Records the changelog that brought a version to the store, in checkpoint format v1, None for a snapshot alone: the
    * changelog of the version after it, and a snapshot of it, say so.
    */
  def note(version: Long, changelog: Option[NamedChangelog]): Unit =
    note(version, Known(changelog.exists(_.isSigned), changelog))

  /** Records that a version was loaded from its snapshot.
    * @param isOwn whether that has a signature
    */
  def noteSnapshot(version: Long, isOwn: Boolean): Unit = note(version, Known(isOwn, None))

  private def note(version: Long, file: Known): Unit =
    known = known.filter(_._1 >= version - 1) + (version -> file)

  /** Returns the changelog of a version, as the store has written or read it; None where it does not know it, or the
    * version has none.
    */
  def named(version: Long): Option[NamedChangelog] = known.get(version).flatMap(_.changelog)

  /** Tells whether a changelog of checkpoint format v1 can be read to its end and fits its checksum; false where it is gone,
    * or may not be read.
    * @throws IOException where its bytes cannot be had now, which says nothing about them
    */
  def isWhole(version: Long): Boolean = {
    val path = new Path(directory, StoreFile.changelogName(VersionId(version, None)))
    // Readers report damage by exceptions that a network has as well: what the location itself throws is told apart.
    val ((read, ofSidecar), ofFile) =
      counted.follow(path)(counted.follow(path.suffix(".crc"))(Try(readAll(path))))
    for (failure <- ofFile.failure.orElse(ofSidecar.failure); if !FileDamage.saysNotWhole(failure))
      throw new IOException(s"$path cannot be read: $failure", failure)
    read.isSuccess
  }

  private def readAll(path: Path): Unit = {
    val reader = readerOf(path)
    try reader.foreach(_ => ())
    finally reader.closeIfNeeded()
  }

  private def readerOf(path: Path): StateStoreChangelogReader =
    new StateStoreChangelogReaderFactory(manager, path, codec).constructChangelogReader()

  private def before(base: Long): Before =
    if (base == 0) Before.Empty
    else if (known.get(base).exists(_.isOwn)) Before.Own
    else Before.Foreign

  private def openWriter(
      version: Long,
      signature: ChangelogSignature,
      path: Path
  ): (StateStoreChangelogWriter, ByteCount) = {
    // A later version has one before it, whose files lie there.
    if (version == 1 && !manager.exists(directory)) manager.mkdirs(directory)
    val signed = new SignedFiles(manager, signature)
    /* Spark's readers look for the name of a version first, and read a changelog of version 1 that has no record to its end
     * for that, where a signature is. LZ4 takes so few bytes for the end, other codecs for damage. */
    val hasName = usesFamilies || !codec.isInstanceOf[LZ4CompressionCodec]
    counted.follow(path) {
      if (hasName) new StateStoreChangelogWriterV2(signed, path, codec)
      else new StateStoreChangelogWriterV1(signed, path, codec)
    }
  }

  private def codec = StatemarkBridge.codec(codecName)
}

/** @param isOwn whether the file of a version has a signature */
private final case class Known(isOwn: Boolean, changelog: Option[NamedChangelog])

/** A changelog that is open for reading. */
final class OpenChangelog(val reader: StateStoreChangelogReader, toEnd: Option[ReadToEnd]) {

  /** Reads the changelog to its end. Returns its fingerprint with the result, where that is wanted. */
  def readAll[A](body: StateStoreChangelogReader => A): (A, Option[Fingerprint]) = {
    toEnd.foreach(_.count.isWanted = true)
    val result =
      try body(reader)
      finally reader.closeIfNeeded()
    (result, toEnd.flatMap(_.fingerprint()))
  }

  def close(): Unit = reader.closeIfNeeded()
}

/** @param fingerprint is asked for once the whole file has passed */
private[spark] final class ReadToEnd(
    val count: ByteCount,
    val fingerprint: () => Option[Fingerprint]
)
