package statemark.engine

import java.io.{EOFException, File, FileOutputStream}
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{FileSystemException, Files, Path}
import org.rocksdb.RocksDB
import scala.annotation.tailrec
import scala.jdk.CollectionConverters._
import scala.util.Using

/** Copies of a database that consist of hard links.
  *
  * RocksDB's own `Checkpoint` is not used: it asks for write-ahead logs, of which there are none, and of RocksDB 9.8.4 may
  * wait for ever there while other threads close iterators (facebook/rocksdb#14069; docs/adr/0022).
  */
private[statemark] object LinkedFiles {

  /** Makes hard links of the files that a database has now; what is in memory only is not there. All files are durable; RocksDB
    * makes the folder so when it opens it.
    * @param directory of the database, which has no write-ahead log
    * @param target does not exist; where this fails, what is in it is the caller's to delete
    */
  def make(db: RocksDB, directory: File, target: File): Unit = {
    val (source, copies) = (directory.toPath, Files.createDirectory(target.toPath))
    db.disableFileDeletions()
    try {
      val live = db.getLiveFiles(false)
      val names = live.files.asScala.map(_.stripPrefix("/")).filterNot(isMadeAnew)
      val (manifests, tables) = names.partition(_.startsWith(Manifest))
      tables.foreach(name => link(source.resolve(name), copies.resolve(name)))
      manifests.foreach { name =>
        copy(source.resolve(name), copies.resolve(name), live.manifestFileSize)
        // Last: without it a copy that was cut short is no database.
        write(copies.resolve(Current), s"$name\n")
      }
    } finally db.enableFileDeletions()
  }

  /** Tells whether a file is not taken: the name of the manifest may change, and options are not needed. */
  private def isMadeAnew(name: String): Boolean = name == Current || name.startsWith("OPTIONS-")

  /** Makes a hard link of a file, or a copy where the file system has no links. */
  def link(from: Path, to: Path): Unit =
    try Files.createLink(to, from): Unit
    // A file system without links says so in its own words; one that is full says it once more.
    catch {
      case _: UnsupportedOperationException | _: FileSystemException => Files.copy(from, to): Unit
    }

  /** Copies the beginning of a file that grows. */
  private def copy(from: Path, to: Path, bytes: Long): Unit =
    Using.resource(Files.newInputStream(from)) { in =>
      writing(to) { out =>
        val buffer = new Array[Byte](BufferBytes)
        @tailrec def rest(left: Long): Unit = if (left > 0) {
          val read = in.read(buffer, 0, math.min(left, BufferBytes.toLong).toInt)
          if (read < 0) throw new EOFException(s"$from ends $left bytes too early")
          out.write(buffer, 0, read)
          rest(left - read)
        }
        rest(bytes)
      }
    }

  private def write(to: Path, text: String): Unit = writing(to)(_.write(text.getBytes(UTF_8)))

  private def writing(to: Path)(body: FileOutputStream => Unit): Unit =
    Using.resource(new FileOutputStream(to.toFile)) { out =>
      body(out)
      out.getFD.sync()
    }

  private val Current = "CURRENT"
  private val Manifest = "MANIFEST-"
  private val BufferBytes = 1 << 16
}
