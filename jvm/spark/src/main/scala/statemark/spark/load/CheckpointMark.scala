package statemark.spark.load

import java.io.IOException
import java.nio.charset.StandardCharsets.UTF_8
import java.util.UUID
import java.util.concurrent.ConcurrentHashMap
import org.apache.hadoop.fs.Path
import org.slf4j.LoggerFactory
import scala.util.control.NonFatal
import statemark.common.Interrupts
import statemark.spark.checkpoint.StoreLocation
import statemark.spark.process.JvmState
import statemark.spark.process.Relocated.CheckpointFileManager

/** The mark of a checkpoint: the id of its newest switch of providers, in a file beside the state (FORMAT.md). A home
  * remembers the mark under which it was made, and is refused under another one: what it was proven by may have been
  * replaced since by a provider that leaves no proof. A number would not do: copies of a checkpoint are one query with
  * one local root, and each may be switched.
  *
  * ''Thread:'' any.
  */
object CheckpointMark {
  private lazy val log = LoggerFactory.getLogger(getClass)

  /** The marks that this process has read, by run: no checkpoint is switched while its query runs. */
  private val known = JvmState.value(new ConcurrentHashMap[(UUID, Path), Option[String]]())
  private val MaxKnown = 64
  private val Header = "v1"

  /** Returns the place of the mark in the checkpoint of a query. */
  def pathIn(root: Path): Path = new Path(root, "_statemark/mark")

  /** Returns the file of a mark. */
  def encode(id: UUID): Array[Byte] = s"$Header\n$id\n".getBytes(UTF_8)

  /** Returns the mark that the checkpoint of a store's query has; None where it has none, or where the store has no
    * query. Where it cannot be read, the answer is a mark that no home was made under and none will be found under:
    * stores are loaded from the checkpoint.
    * @throws InterruptedException where it was interrupted, which says nothing about the mark
    */
  def of(location: StoreLocation): Option[String] = {
    val state = new Path(location.storeId.checkpointRootLocation)
    Option(state.getParent).filter(_ => state.getName == "state").flatMap { root =>
      val known = this.known()
      if (known.size >= MaxKnown) known.clear()
      known.computeIfAbsent((location.runId, root), _ => read(pathIn(root), location))
    }
  }

  private def read(path: Path, location: StoreLocation): Option[String] =
    try
      Interrupts.apart {
        val files = CheckpointFileManager.create(path.getParent, location.hadoopConf)
        Option.when(files.exists(path)) {
          val in = files.open(path)
          try decode(new String(in.readAllBytes(), UTF_8))
          finally in.close()
        }
      }
    catch {
      case NonFatal(e) =>
        log.warn(
          s"The mark $path, by which local stores from before a switch of providers are told, cannot be read. No local " +
            "store is used in this run: all are loaded from the checkpoint.",
          e
        )
        Some(s"unreadable-${UUID.randomUUID()}")
    }

  private def decode(text: String): String = text.linesIterator.toList match {
    case List(Header, id) if id.nonEmpty => id
    case _ => throw new IOException(s"It is no mark of format $Header: '${text.take(80)}'.")
  }
}
