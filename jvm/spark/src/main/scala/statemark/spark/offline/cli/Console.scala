package statemark.spark.offline.cli

import java.io.{IOException, OutputStream}
import java.nio.charset.StandardCharsets
import statemark.common.Clock

/** Where a command writes. */
trait Console {

  /** A line of the result: standard output.
    * @throws NobodyReads where who has read it is gone
    */
  def result(line: String): Unit

  /** A line of progress or of an error: standard error. */
  def progress(line: String): Unit
}

/** Tells that the reader of the results has gone, as `head` does: there is nobody left to tell anything. */
final class NobodyReads(cause: IOException) extends RuntimeException(cause)

/** Lines as UTF-8, each flushed. Work goes on where nobody reads its progress any more.
  *
  * ''Thread:'' any.
  */
final class StreamConsole(out: OutputStream, err: OutputStream) extends Console {
  @volatile private var isHeard = true

  override def result(line: String): Unit =
    try write(out, line)
    catch { case e: IOException => throw new NobodyReads(e) }

  override def progress(line: String): Unit = if (isHeard)
    try write(err, line)
    catch { case _: IOException => isHeard = false }

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
