package statemark.spark.offline.cli

import java.io.OutputStream
import java.nio.charset.StandardCharsets
import statemark.common.Clock

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

/** Progress as lines, one a second at most.
  *
  * ''Thread:'' one at a time
  */
final class ProgressLines(console: Console, clock: Clock) {
  private var lastMs = Option.empty[Long]

  /** @param always whether the line is shown however short ago the last one was */
  def show(always: Boolean)(line: => String): Unit = {
    val now = clock.epochMs()
    if (always || lastMs.forall(now - _ >= 1000)) {
      lastMs = Some(now)
      console.progress(line)
    }
  }
}
