package statemark.engine

import java.io.{BufferedInputStream, File, FileInputStream, IOException, UncheckedIOException}
import java.nio.{ByteBuffer, ByteOrder}
import java.nio.charset.StandardCharsets.ISO_8859_1
import java.nio.file.{Files, LinkOption, NoSuchFileException, Path}
import java.util.zip.CRC32C
import scala.annotation.tailrec
import scala.jdk.CollectionConverters._
import scala.util.Using
import statemark.common.StoreUnusableException

/** The file that tells RocksDB which files make up a store, in its log format: blocks of 32 KiB, in them
  * records of checksum, length, type and payload. It is checked before RocksDB reads it: the reader of 9.8.4
  * never ends where a flipped bit makes the type of a record that of a recycled log.
  *
  * ''Source:'' RocksDB 9.8 `db/log_format.h`.
  */
private[engine] object RocksManifest {
  private val BlockBytes = 32 * 1024
  private val HeaderBytes = 7
  // The folder for what RocksDB archives, and the one for staged writes, which RocksDB leaves alone.
  private val Folders = Set("archive", "staged")
  // Full, first, middle, last.
  private val Types = 1 to 4

  /** Does nothing where there is none: RocksDB makes one, or refuses.
    * @throws StoreUnusableException where a record is not what was written
    */
  def check(directory: File): Unit = current(directory).foreach { manifest =>
    Using.resource(new BufferedInputStream(new FileInputStream(manifest), BlockBytes)) { in =>
      Iterator.continually(in.readNBytes(BlockBytes)).takeWhile(_.nonEmpty).zipWithIndex.foreach {
        case (block, i) =>
          damageIn(block).foreach { at =>
            throw new StoreUnusableException(
              s"$manifest is damaged: the record at byte ${i.toLong * BlockBytes + at} is not what was written. " +
                "The local copy is given up; it is loaded again from the checkpoint."
            )
          }
      }
    }
  }

  /** Checks that a directory holds regular files of one user and nothing else that could be opened: a pipe lets its
    * reader wait for ever, a link leads elsewhere, and RocksDB does not stand what another user forges. Does nothing
    * where there is no directory.
    * @throws StoreUnusableException where it holds anything else
    */
  def checkKinds(directory: File): Unit =
    try {
      val isThere = Files.exists(directory.toPath, LinkOption.NOFOLLOW_LINKS)
      if (isThere) Using.resource(Files.walk(directory.toPath)) { walk =>
        val owner = factsOf(directory.toPath)("uid")
        walk.iterator.asScala.foreach { path =>
          problemOf(path, directory.toPath, owner).foreach { problem =>
            throw new StoreUnusableException(
              s"$path $problem. No file of $directory is opened; the store is loaded again from the checkpoint."
            )
          }
        }
      }
    } catch {
      case e @ (_: IOException | _: UncheckedIOException) =>
        throw new StoreUnusableException(
          s"The files of $directory cannot be listed: $e. The store is loaded again from the checkpoint.",
          Some(e)
        )
    }

  private def problemOf(path: Path, directory: Path, owner: Any): Option[String] =
    try {
      val found = factsOf(path)
      val isFolder = found("isDirectory") == true &&
        (path == directory || path.getParent != directory || Folders(path.getFileName.toString))
      if (found("uid") != owner) Some("belongs to another user than its directory")
      else Option.when(found("isRegularFile") != true && !isFolder)("is no regular file")
    } catch { case _: NoSuchFileException => None } // its owner has deleted it meanwhile

  private def factsOf(path: Path): collection.Map[String, Any] =
    Files.readAttributes(path, "unix:isRegularFile,isDirectory,uid", LinkOption.NOFOLLOW_LINKS)
      .asScala

  private def current(directory: File): Option[File] =
    Some(new File(directory, "CURRENT")).filter(_.isFile).map { file =>
      new File(directory, new String(Files.readAllBytes(file.toPath), ISO_8859_1).trim)
    }.filter(_.isFile)

  /** Returns where the first wrong record begins. A record without its end was being written, and a range of zeros
    * was set aside: RocksDB stops there, too.
    */
  private def damageIn(block: Array[Byte]): Option[Int] = {
    val bytes = ByteBuffer.wrap(block).order(ByteOrder.LITTLE_ENDIAN)
    @tailrec def from(at: Int): Option[Int] =
      if (at + HeaderBytes > block.length) None
      else {
        val length = bytes.getShort(at + 4) & 0xffff
        val kind = block(at + 6) & 0xff
        val sum = bytes.getInt(at)
        val end = at + HeaderBytes + length
        val isCut = end > block.length && block.length < BlockBytes
        if (isCut || (sum == 0 && length == 0 && kind == 0)) None
        else if (!Types.contains(kind) || end > block.length || sum != crc(block, at, end)) Some(at)
        else from(end)
      }
    from(0)
  }

  /** Returns the checksum of type and payload, masked as RocksDB stores it. */
  private def crc(block: Array[Byte], at: Int, end: Int): Int = {
    val sum = new CRC32C
    sum.update(block, at + 6, end - at - 6)
    Integer.rotateRight(sum.getValue.toInt, 15) + 0xa282ead8
  }
}
