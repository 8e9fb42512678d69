package statemark.engine

import java.io.File
import java.nio.file.{Files, Path}
import org.rocksdb.RocksDB
import scala.jdk.CollectionConverters._
import scala.util.Using

/** Copies of a database that consist of hard links.
  *
  * RocksDB's own `Checkpoint` is not used: it asks for write-ahead logs, of which there are none, and of RocksDB 9.8.4 may
  * wait for ever there while other threads close iterators (facebook/rocksdb#14069; docs/adr/0022).
  */
private[engine] object LinkedFiles {

  /** Makes hard links of the files that a database has now; what is in memory only is not there.
    * @param directory of the database, which has no write-ahead log
    * @param target does not exist; where this fails, what is in it is the caller's to delete
    */
  def make(db: RocksDB, directory: File, target: File): Unit = {
    Files.createDirectory(target.toPath)
    db.disableFileDeletions()
    try {
      val live = db.getLiveFiles(false)
      live.files.asScala.map(_.stripPrefix("/")).foreach { name =>
        val (from, to) = (directory.toPath.resolve(name), target.toPath.resolve(name))
        // Others are the options, which are not needed, and CURRENT, which may change.
        if (name.endsWith(".sst")) link(from, to)
        else if (name.startsWith("MANIFEST-")) {
          copy(from, to, live.manifestFileSize)
          Files.writeString(target.toPath.resolve("CURRENT"), s"$name\n"): Unit
        }
      }
    } finally db.enableFileDeletions()
  }

  private def link(from: Path, to: Path): Unit =
    try Files.createLink(to, from): Unit
    catch { case _: UnsupportedOperationException => Files.copy(from, to): Unit }

  /** Copies the beginning of a file that grows. */
  private def copy(from: Path, to: Path, bytes: Long): Unit =
    Using.resources(Files.newInputStream(from), Files.newOutputStream(to)) { (in, out) =>
      out.write(in.readNBytes(Math.toIntExact(bytes)))
    }
}
