package statemark.spark.offline.checkpoint

import org.apache.hadoop.fs.Path
import statemark.spark.offline.cli.CommandContext

/** Whether a query runs, as far as its checkpoint tells. */
sealed trait Activity {

  /** What was seen, as the end of a sentence. */
  def seen: String
}

object Activity {

  /** Files changed while they were watched. */
  final case class Running(changed: Seq[String]) extends Activity {
    override def seen: String = {
      val more = if (changed.length > 3) s" and ${changed.length - 3} more" else ""
      s"files changed while they were watched: ${changed.take(3).mkString(", ")}$more"
    }
  }

  /** Nothing changed, but the last batch began and is not committed: it may run for long, or have been
    * killed.
    */
  final case class OpenBatch(batch: Long) extends Activity {
    override def seen: String =
      s"batch $batch is in the offset log and not in the commit log: it runs, or was interrupted"
  }

  final case class Stopped(batch: Long, ms: Long) extends Activity {
    override def seen: String =
      s"the last batch ($batch) is committed, and no file changed while the checkpoint was watched " +
        s"for ${ms / 1000.0} s"
  }

  /** Watches offset log, commit log and the directories of the stores: names, lengths, modification
    * times.
    */
  def observe(checkpoint: QueryCheckpoint, ms: Long, context: CommandContext): Activity = {
    val before = signature(checkpoint)
    if (ms > 0) {
      context.console.progress(
        s"watching ${checkpoint.root} for ${ms / 1000.0} s: does the query run?"
      )
      context.waiter.pause(ms)
    }
    val after = signature(checkpoint)
    val changed = (before.diff(after) ++ after.diff(before)).map(_._1).toSeq.distinct.sorted
    // Read now: a batch may have ended while we watched.
    val last = checkpoint.batches(checkpoint.offsetLog).last
    if (changed.nonEmpty) Running(changed)
    else if (!checkpoint.batches(checkpoint.commitLog).lastOption.contains(last)) OpenBatch(last)
    else Stopped(last, ms)
  }

  private def signature(checkpoint: QueryCheckpoint): Set[(String, Long, Long)] = {
    def of(directory: Path): Seq[(String, Long, Long)] =
      if (!checkpoint.files.exists(directory)) Nil
      else {
        checkpoint.files.list(directory).toSeq.filter(_.isFile)
          .map(s => (s.getPath.toString, s.getLen, s.getModificationTime))
      }
    val stores = checkpoint.stores().flatMap(s =>
      s.files.map(f => (s"${s.directory}/${f.name}", f.bytes, f.modified))
    )
    (of(checkpoint.offsetLog) ++ of(checkpoint.commitLog) ++ stores).toSet
  }
}
