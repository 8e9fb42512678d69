package statemark.spark

import java.io.FileNotFoundException
import org.apache.hadoop.fs.{FSDataInputStream, Path}
import statemark.testkit.CountingFileSystem

/** Files that are there and may not be read, as a local file system says it. */
class DeniedFileSystem extends CountingFileSystem {
  override def open(path: Path, bufferSize: Int): FSDataInputStream =
    if (DeniedFileSystem.isDenied(path.toString))
      throw new FileNotFoundException(s"$path (Permission denied)")
    else super.open(path, bufferSize)
}

object DeniedFileSystem {

  /** Which paths may not be read. */
  @volatile var isDenied: String => Boolean = _ => false

  /** Settings of a session for paths of the scheme `counting`. */
  val settings: Map[String, String] = Map(
    "fs.counting.impl" -> classOf[DeniedFileSystem].getName,
    "fs.counting.impl.disable.cache" -> "true"
  )
}
