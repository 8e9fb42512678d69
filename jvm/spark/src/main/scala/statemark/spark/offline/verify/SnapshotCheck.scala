package statemark.spark.offline.verify

import java.io.{BufferedInputStream, File, FileInputStream}
import java.nio.file.{Files, StandardCopyOption}
import java.util.zip.{ZipEntry, ZipFile, ZipInputStream}
import org.apache.spark.sql.execution.streaming.state.RocksDBCheckpointMetadata
import org.rocksdb.{Options, RocksDB, RocksDBException, StringAppendOperator}
import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal
import statemark.engine.{LinkedFiles, NativeHandles, RocksEngine}
import statemark.spark.checkpoint.ParallelFetchFileSystem
import statemark.spark.local.LocalDirectory

/** Rows of a snapshot: how many, and a sum over their bytes that does not depend on files. */
final case class RowFacts(keys: Long, internalKeys: Long, digest: Long, badChecksums: Long)

/** Checks the zip of a snapshot, its metadata, and that RocksDB opens it with its SST files. */
object SnapshotCheck {
  private val MetadataName = "metadata"

  /** Unpacks a snapshot into `image`.
    * @return why it is not whole, or its metadata
    */
  def unpacked(zip: File, image: File): Either[String, RocksDBCheckpointMetadata] =
    parts(zip, image).flatMap { case (metadata, unread) => unread.toLeft(metadata) }

  /** Unpacks a snapshot into `image`, as a load does.
    * @return why it is no snapshot, or its metadata and what is wrong with the directory of the zip, which
    *   a load does not read
    */
  def parts(
      zip: File,
      image: File
  ): Either[String, (RocksDBCheckpointMetadata, Option[String])] =
    try {
      Files.createDirectories(image.toPath)
      val streamed = extract(zip, image)
      val unread =
        try directoryProblem(zip, streamed)
        catch { case NonFatal(e) => Some(s"its zip is damaged: ${StoreFiles.reason(e)}") }
      partsProblem(streamed.map(_.getName)).toLeft(())
        .flatMap(_ => metadata(new File(image, MetadataName))).map((_, unread))
        // Where parts are missing, the directory may tell why.
        .left.map(problem => unread.getOrElse(problem))
    } catch { case StoreFiles.OfFile(e) => Left(s"its zip is damaged: ${StoreFiles.reason(e)}") }

  /** Every entry, read to its end: its CRC is checked. */
  private def extract(zip: File, image: File): Vector[ZipEntry] = {
    val in = new ZipInputStream(new BufferedInputStream(new FileInputStream(zip)))
    try
      Iterator.continually(in.getNextEntry).takeWhile(_ != null).map { entry =>
        val name = entry.getName
        if (!ParallelFetchFileSystem.isPlainName(name))
          throw new java.util.zip.ZipException(s"an entry is named $name")
        Files.copy(in, new File(image, name).toPath, StandardCopyOption.REPLACE_EXISTING)
        in.closeEntry()
        entry
      }.toVector
    finally in.close()
  }

  /** A stream is read without the directory at the end of the file, which tells where it is cut. */
  private def directoryProblem(zip: File, streamed: Vector[ZipEntry]): Option[String] = {
    val file = new ZipFile(zip)
    try {
      def facts(entries: Iterable[ZipEntry]) =
        entries.map(e =>
          (e.getName, e.getSize, e.getCompressedSize, e.getCrc, e.getMethod, e.getTime)
        )
          .toSet
      Option.when(facts(file.entries.asScala.toVector) != facts(streamed)) {
        "the directory of its zip does not match the entries"
      }
    } finally file.close()
  }

  private def partsProblem(names: Vector[String]): Option[String] =
    if (names.distinct.size != names.size) Some("its zip names a file twice")
    else if (!names.contains(MetadataName)) Some("it has no metadata")
    else if (!names.contains("CURRENT") || !names.exists(_.startsWith("MANIFEST-")))
      Some("it has no CURRENT or no MANIFEST")
    else None

  private def metadata(file: File): Either[String, RocksDBCheckpointMetadata] =
    try {
      val read = RocksDBCheckpointMetadata.readFromFile(file)
      Files.delete(file.toPath)
      val nameless = read.immutableFiles.exists { f =>
        !ParallelFetchFileSystem.isPlainName(f.localFileName) ||
        !ParallelFetchFileSystem.isPlainName(f.dfsFileName) || f.sizeBytes < 0
      }
      if (nameless) Left("its metadata names a file without a name or size") else Right(read)
    } catch { case NonFatal(e) => Left(s"its metadata is damaged: ${StoreFiles.reason(e)}") }

  /** Opens an unpacked snapshot with its shared files linked in; reads all rows where `rows` says how.
    * @param shared the shared files by their name in the checkpoint
    */
  def opened(
      image: File,
      metadata: RocksDBCheckpointMetadata,
      shared: String => File,
      rows: Option[RowReading]
  ): Either[String, Option[RowFacts]] = {
    metadata.immutableFiles.foreach { f =>
      val target =
        if (f.localFileName.endsWith(".log")) new File(new File(image, "archive"), f.localFileName)
        else new File(image, f.localFileName)
      Files.createDirectories(target.getParentFile.toPath)
      LinkedFiles.link(shared(f.dfsFileName).toPath, target.toPath)
    }
    val handles = new NativeHandles
    try {
      val delimiter = rows.fold(",")(_.mergeDelimiter)
      val options = handles.add(
        new Options().setMergeOperator(handles.add(new StringAppendOperator(delimiter)))
      )
      val db = handles.add(RocksDB.openReadOnly(options, image.getPath))
      Right(rows.map(_.read(db, metadata)))
    } catch { case e: RocksDBException => Left(s"RocksDB cannot open or read it: ${e.getMessage}") }
    finally handles.close()
  }

  def delete(image: File): Unit = LocalDirectory.deleteTree(image)
}

/** How rows are read in the deep check. */
final case class RowReading(mergeDelimiter: String, hasRowChecksums: Boolean) {

  def read(db: RocksDB, metadata: RocksDBCheckpointMetadata): RowFacts = {
    val types = metadata.columnFamilyTypeMap.getOrElse(Map.empty)
    val internal = metadata.columnFamilyMapping.getOrElse(Map.empty).collect {
      case (name, id) if types.getOrElse(name, false) => id
    }.toSet
    val iterator = db.newIterator()
    try {
      iterator.seekToFirst()
      val rows = Iterator.continually(iterator).takeWhile(_.isValid).map { at =>
        val row = (at.key(), at.value())
        at.next()
        row
      }
      val facts = read(rows, internal)
      iterator.status()
      facts
    } finally iterator.close()
  }

  /** @param internal ids of the column families that count as internal */
  def read(rows: Iterator[(Array[Byte], Array[Byte])], internal: Set[Short]): RowFacts = {
    var facts = RowFacts(0, 0, 0, 0)
    rows.foreach { case (key, value) =>
      val isInternal = internal.nonEmpty && key.length > 1 && internal(RocksEngine.familyId(key))
      val isBad = hasRowChecksums &&
        !RowChecksumCheck.areValues(key, value, mergeDelimiter.length)
      val sum = new java.util.zip.CRC32C
      sum.update(key)
      sum.update(value)
      facts = RowFacts(
        facts.keys + (if (isInternal) 0 else 1),
        facts.internalKeys + (if (isInternal) 1 else 0),
        facts.digest * 31 + sum.getValue,
        facts.badChecksums + (if (isBad) 1 else 0)
      )
    }
    facts
  }
}
