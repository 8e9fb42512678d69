package statemark.spark

import java.io.IOException
import java.nio.file.{Files, Path}

/** A small disk of its own in memory, for tests of disks that are full. It needs the right to mount. */
final class Tmpfs(val directory: Path) {
  private def filler = directory.resolve("filler")
  private def files = directory.resolve("files")

  /** Leaves no byte free, or almost none. */
  def fill(leaving: Int = 0): Unit = {
    val out = Files.newOutputStream(filler)
    val block = new Array[Byte](4096)
    try while (true) out.write(block)
    catch { case _: IOException => () } // it is full
    finally out.close()
    if (leaving > 0) {
      val cut = new java.io.RandomAccessFile(filler.toFile, "rw")
      try cut.setLength(cut.length - leaving)
      finally cut.close()
    }
  }

  /** Leaves no file to be made, however many bytes are free. */
  def takeAllFiles(): Unit = {
    Files.createDirectories(files)
    try Iterator.from(0).foreach(i => Files.createFile(files.resolve(i.toString)): Unit)
    catch { case _: IOException => () } // there are no more
  }

  /** Makes room. */
  def empty(): Unit = {
    Files.deleteIfExists(filler)
    if (Files.exists(files)) statemark.spark.local.LocalDirectory.deleteTree(files.toFile)
  }

  /** Takes the disk away at once: Hadoop leaves a file open where closing it meets a full disk. */
  def unmount(): Unit = assert(Tmpfs.ran("umount", "-l", directory.toString))
}

object Tmpfs {

  /** Mounts one on a directory; None where this user may not mount.
    * @param options its size, and how many files it takes
    */
  def mount(directory: Path, options: String): Option[Tmpfs] = {
    Files.createDirectories(directory)
    Option.when(ran("mount", "-t", "tmpfs", "-o", options, "tmpfs", directory.toString))(
      new Tmpfs(directory)
    )
  }

  def ran(command: String*): Boolean =
    try new ProcessBuilder(command: _*).inheritIO().start().waitFor() == 0
    catch { case _: IOException => false }
}
