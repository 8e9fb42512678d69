package statemark.spark.offline

import java.io.OutputStream
import java.nio.charset.StandardCharsets

/** Where a command writes. */
trait Console {

  /** A line of the result: standard output. */
  def result(line: String): Unit

  /** A line of progress or of an error: standard error. */
  def progress(line: String): Unit
}

/** Lines as UTF-8, each flushed.
  *
  * ''Thread:'' any.
  */
final class StreamConsole(out: OutputStream, err: OutputStream) extends Console {
  override def result(line: String): Unit = write(out, line)
  override def progress(line: String): Unit = write(err, line)

  private def write(stream: OutputStream, line: String): Unit = synchronized {
    stream.write(s"$line\n".getBytes(StandardCharsets.UTF_8))
    stream.flush()
  }
}
