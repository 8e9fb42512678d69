package statemark.spark.offline.verify

import com.fasterxml.jackson.databind.ObjectMapper
import java.io.{File, FileNotFoundException, IOException}
import java.nio.file.{Files, StandardCopyOption}
import java.util.zip.{CRC32C, CheckedInputStream}
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import scala.collection.mutable
import scala.util.control.NonFatal
import statemark.common.DiskWrites
import statemark.spark.checkpoint.{FileDamage, StoreFile}
import statemark.spark.local.LocalDirectory
import statemark.spark.offline.checkpoint.StoreListing
import statemark.spark.process.Relocated.CheckpointFileManager
import statemark.spark.snapshot.SnapshotSearch

/** Reads the files of one directory of a checkpoint into a scratch directory, each as a whole and once,
  * with its checksum file where it has one.
  *
  * ''Thread:'' one.
  *
  * @param readsChecksumFiles whether a load fails on a file that is not what its checksum file says
  * @param unread is told of such a file where none does; it is used then
  */
final class StoreFiles(
    val directory: Path,
    hadoopConf: Configuration,
    scratch: File,
    readsChecksumFiles: Boolean,
    unread: Problem => Unit
) {
  val manager: CheckpointFileManager = CheckpointFileManager.create(directory, hadoopConf)
  private val away = mutable.Set.empty[String]
  private var copies = 0
  private var bytesRead_ = 0L

  /** Tells whether the bytes of a file could not be had, which says nothing about them. */
  def isAway(name: String): Boolean = away(name)

  def bytesRead: Long = bytesRead_

  /** A path in the scratch directory that is not there yet. */
  def fresh(): File = {
    copies += 1
    new File(scratch, s"file-$copies")
  }

  /** Hands a copy of a file to `use` and deletes it. */
  def withCopy[A](name: String)(use: File => Either[Problem, A]): Either[Problem, A] =
    copied(name).flatMap { copy =>
      try use(copy)
      finally LocalDirectory.deleteTree(copy)
    }

  /** A copy of a file, the caller's to delete; a problem where it cannot be read or is not what its
    * checksum file says.
    */
  def copied(name: String): Either[Problem, File] = {
    val target = fresh()
    try {
      val crc = new CRC32C
      val source = manager.open(new Path(directory, name))
      try {
        val checked = new CheckedInputStream(source, crc)
        bytesRead_ += Files.copy(checked, target.toPath, StandardCopyOption.REPLACE_EXISTING)
      } finally source.close()
      sidecarProblem(name, target.length, crc.getValue.toInt) match {
        case None => Right(target)
        case Some(problem) if isFatal(name) =>
          LocalDirectory.deleteTree(target)
          Left(problem)
        case Some(problem) =>
          unread(problem.copy(effect = Effect.None))
          Right(target)
      }
    } catch {
      case e: FileNotFoundException
          if StoreListing.isGone(manager, new Path(directory, name), e) =>
        Left(Problem(name, FindingKind.Missing, "it is not there"))
      case StoreFiles.OfFile(e) =>
        LocalDirectory.deleteTree(target)
        if (!FileDamage.saysNotWhole(e)) away += name
        Left(StoreFiles.unreadable(name, e))
    }
  }

  private def isFatal(name: String): Boolean =
    readsChecksumFiles && (StoreFile.of(name) match {
      case _: StoreFile.Snapshot => SnapshotSearch.readsChecksumFile
      case _ => true
    })

  private def sidecarProblem(name: String, size: Long, crc: Int): Option[Problem] = {
    val sidecar = s"$name.crc"
    val path = new Path(directory, sidecar)
    val detail =
      try {
        val in = manager.open(path)
        try StoreFiles.mismatch(in.readAllBytes(), size, crc)
        finally in.close()
      } catch {
        case e: FileNotFoundException if StoreListing.isGone(manager, path, e) => None
        case e: IOException => Some(s"it cannot be read: ${StoreFiles.reason(e)}")
      }
    detail.map(Problem(sidecar, FindingKind.WrongChecksum, _))
  }
}

object StoreFiles {

  /** Failures that say something about a file of the checkpoint: not those of a local disk that takes no copy of it. */
  object OfFile {
    def unapply(failure: Throwable): Option[Throwable] =
      NonFatal.unapply(failure).filterNot(DiskWrites.isRefusal)
  }

  private val mapper = new ObjectMapper

  /** What a checksum file says against a file of `size` bytes with this CRC32C.
    *
    * ''Source:'' Spark 4.2 `ChecksumCheckpointFileManager`, `Checksum`
    */
  def mismatch(sidecar: Array[Byte], size: Long, crc: Int): Option[String] =
    try {
      val said = mapper.readTree(sidecar)
      val algorithm = said.path("algorithm").asText()
      if (algorithm != "CRC32C") Some(s"it is of the algorithm '$algorithm', and CRC32C is known")
      else if (!said.path("value").isInt || !said.path("mainFileSize").canConvertToLong)
        Some("it names no checksum and size")
      else if (said.path("mainFileSize").asLong != size)
        Some(s"it says ${said.path("mainFileSize").asLong} bytes, and the file has $size")
      else if (said.path("value").asInt != crc)
        Some(s"it says checksum ${said.path("value").asInt}, and the file has $crc")
      else None
    } catch {
      case e: com.fasterxml.jackson.core.JacksonException =>
        Some(s"it is no JSON: ${e.getOriginalMessage}")
    }

  def unreadable(name: String, cause: Throwable): Problem =
    Problem(name, FindingKind.Damaged, s"it cannot be read: ${reason(cause)}")

  /** The first line of an error's message. */
  def reason(cause: Throwable): String =
    Option(cause.getMessage).flatMap(_.linesIterator.nextOption()).getOrElse(cause.getClass.getName)
}
