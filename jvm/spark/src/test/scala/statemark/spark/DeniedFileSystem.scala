package statemark.spark

import java.io.FileNotFoundException
import java.util.concurrent.CompletableFuture
import org.apache.hadoop.fs.{FSDataInputStream, Path}
import org.apache.hadoop.fs.impl.OpenFileParameters
import statemark.testkit.CountingFileSystem

/** Files that are there and may not be read, as a local file system says it. */
class DeniedFileSystem extends CountingFileSystem {
  override def open(path: Path, bufferSize: Int): FSDataInputStream = {
    check(path)
    super.open(path, bufferSize)
  }

  // Copies to the local disk open files so.
  override protected def openFileWithOptions(
      path: Path,
      parameters: OpenFileParameters
  ): CompletableFuture[FSDataInputStream] = {
    check(path)
    super.openFileWithOptions(path, parameters)
  }

  private def check(path: Path): Unit =
    if (DeniedFileSystem.isDenied(path.toString))
      throw new FileNotFoundException(s"$path (Permission denied)")
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
