package statemark.kafka.sink.commands

import java.util.concurrent.{CountDownLatch, TimeUnit}
import org.apache.hadoop.fs.FileSystem
import org.apache.hadoop.util.ShutdownHookManager
import statemark.kafka.compaction.CompactionProgress
import statemark.spark.offline.cli.{CommandContext, ProgressLines}

/** Lines of `topic compact` while it works, and whether somebody has asked it to end.
  *
  * ''Thread:'' the command's, but for [[stop]]
  */
private[commands] final class CompactionConsole private (context: CommandContext)
    extends CompactionProgress {
  private val lines = new ProgressLines(context.console, context.clock)
  private val done = new CountDownLatch(1)
  @volatile private var isAsked = false

  override def scanned(records: Long, ahead: Long): Unit =
    if (ahead > 0) lines.show(always = false)(s"read $records records, $ahead offsets ahead")

  override def repaired(appended: Long, left: Long): Unit =
    lines.show(always = left == 0)(s"wrote $appended winners again, $left keys are wrong still")

  override def said(line: String): Unit = context.console.progress(line)

  override def isStopped: Boolean = isAsked

  /** Asks the command to end, and waits for it: what it has written may lie on better records until it has looked. */
  private def stop(): Unit = {
    isAsked = true
    said("stops once nothing is lost by it")
    done.await(CompactionConsole.PatienceMs, TimeUnit.MILLISECONDS): Unit
  }
}

private[commands] object CompactionConsole {
  private val PatienceMs = 10L * 60 * 1000
  private val HookPriority = FileSystem.SHUTDOWN_HOOK_PRIORITY + 50

  /** Runs `body`, which hears of it when the process is told to end (SIGTERM, SIGINT). */
  def listening[A](context: CommandContext)(body: CompactionConsole => A): A = {
    val console = new CompactionConsole(context)
    // Before Spark's own hook, which would stop the session under a query.
    val hook: Runnable = () => console.stop()
    ShutdownHookManager.get.addShutdownHook(hook, HookPriority, PatienceMs, TimeUnit.MILLISECONDS)
    try body(console)
    finally {
      console.done.countDown()
      try ShutdownHookManager.get.removeShutdownHook(hook): Unit
      catch { case _: IllegalStateException => () } // the process ends just now
    }
  }
}
