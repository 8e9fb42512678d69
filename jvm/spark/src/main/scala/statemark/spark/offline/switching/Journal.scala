package statemark.spark.offline.switching

import java.nio.charset.StandardCharsets.UTF_8
import java.util.Arrays
import org.apache.hadoop.fs.Path
import org.apache.spark.sql.internal.SQLConf
import org.json4s.jackson.JsonMethods.{compact, parse, render}
import org.json4s.{JArray, JInt, JObject, JString, JValue}
import scala.util.Try
import statemark.spark.offline.checkpoint.{OffsetEntry, ProviderClass, QueryCheckpoint}
import statemark.spark.offline.cli.UserError
import statemark.spark.offline.ownership.Ownership

/** One change of pinned providers: what it means to do, and the entries as they were, in a directory of
  * the checkpoint that Spark does not look at (FORMAT.md). It is written before anything is changed, so
  * that a change that was interrupted is finished or undone by the next one.
  *
  * @param directory `_statemark/switch-<n>`
  * @param batches entries of the offset log to change
  */
final class Journal private (
    checkpoint: QueryCheckpoint,
    val directory: Path,
    val to: ProviderClass,
    val batches: Seq[Long]
) {
  import Journal._

  /** Pins the new provider in every entry, the newest last: it decides what a restart uses, so that its
    * rename is the step at which the switch happens.
    *
    * @throws statemark.common.InvalidInputException where another command has taken the checkpoint: it undoes
    *   or finishes this change
    */
  def carryOut(owner: Ownership): Unit = {
    batches.sorted.foreach(batch => replace(owner, batch, changed(batch)))
    mark(owner, Finished): Unit
  }

  /** Finishes what an interruption left: `Finished` where every entry was changed already, else `Undone`,
    * with the entries as they were. Entries that the query has deleted since stay deleted.
    */
  def settle(owner: Ownership): Mark = {
    val there = batches.filter(b => checkpoint.files.exists(entryPath(checkpoint, b)))
    val now = there.map(b => b -> checkpoint.bytesOf(entryPath(checkpoint, b)))
    now.filterNot { case (b, bytes) =>
      Arrays.equals(bytes, changed(b)) || Arrays.equals(bytes, original(b))
    }.headOption.foreach { case (b, _) =>
      throw UserError(
        s"the offset entry ${entryPath(checkpoint, b)} is neither what it was nor what it should become",
        s"somebody else changed it after an interrupted switch; the original is in $directory/offsets",
        s"compare the two, keep one, then delete $directory"
      )
    }
    val pending = now.filterNot { case (b, bytes) => Arrays.equals(bytes, changed(b)) }
    if (pending.isEmpty) mark(owner, Finished)
    else {
      there.sorted.foreach(b => replace(owner, b, original(b)))
      mark(owner, Undone)
    }
  }

  private def original(batch: Long): Array[Byte] =
    checkpoint.bytesOf(new Path(new Path(directory, "offsets"), batch.toString))

  private def changed(batch: Long): Array[Byte] = {
    val text = new String(original(batch), UTF_8)
    OffsetEntry.parsed(
      batch,
      text,
      s"$directory/offsets/$batch"
    ).pinning(ProviderKey -> to.className)
      .text.getBytes(UTF_8)
  }

  private def mark(owner: Ownership, what: Mark): Mark = {
    owner.write(new Path(directory, what.name), Array.emptyByteArray)
    what
  }

  private def replace(owner: Ownership, batch: Long, bytes: Array[Byte]): Unit = {
    val path = entryPath(checkpoint, batch)
    owner.write(path, bytes)
    // Some file systems keep the old file and say nothing.
    if (!Arrays.equals(checkpoint.bytesOf(path), bytes)) {
      owner.requireHeld()
      throw UserError(
        s"$path could not be replaced",
        s"the file system of ${checkpoint.root} does not replace files in a rename",
        "copy the checkpoint to one that does, and run the command there"
      )
    }
  }
}

object Journal {
  private val ProviderKey = SQLConf.STATE_STORE_PROVIDER_CLASS.key
  private val Name = """switch-(\d+)""".r
  private val Format = 1

  /** How a change ended: the name of an empty file in its directory. */
  sealed abstract class Mark(val name: String)
  case object Finished extends Mark("finished")
  case object Undone extends Mark("undone")

  /** Writes down a change that is about to begin. */
  def begin(
      checkpoint: QueryCheckpoint,
      from: Seq[ProviderClass],
      to: ProviderClass,
      entries: Seq[OffsetEntry],
      importVersion: Option[Long],
      epochMs: Long,
      owner: Ownership
  ): Journal = {
    val manifest = JObject(List[(String, JValue)](
      "format" -> JInt(Format),
      "queryId" -> JString(checkpoint.queryId),
      "from" -> JArray(from.map(p => JString(p.className)).toList),
      "to" -> JString(to.className),
      "batches" -> JArray(entries.map(e => JInt(e.batch)).toList),
      "startedAtMs" -> JInt(epochMs)
    ) ++ importVersion.map(v => "importVersion" -> (JInt(v): JValue)))
    val made = owner.staged()
    val originals = new Path(made, "offsets")
    entries.foreach(e => owner.stage(new Path(originals, e.batch.toString), e.text.getBytes(UTF_8)))
    // The rename takes the number: a directory never replaces another.
    val number = directories(checkpoint).map(_._1).maxOption.getOrElse(0) + 1
    val directory = new Path(checkpoint.ownDirectory, s"switch-$number")
    owner.place(made, directory)
    owner.write(manifestPath(directory), compact(render(manifest)).getBytes(UTF_8))
    new Journal(checkpoint, directory, to, entries.map(_.batch))
  }

  /** Changes that were begun and neither finished nor undone, oldest first. One without a manifest has
    * changed nothing.
    */
  def unfinished(checkpoint: QueryCheckpoint): Seq[Journal] = {
    import checkpoint.files.exists
    directories(checkpoint).sortBy(_._1).map(_._2).filter { d =>
      exists(manifestPath(d)) && !Seq(Finished, Undone).exists(m => exists(new Path(d, m.name)))
    }.map(read(checkpoint, _))
  }

  private def read(checkpoint: QueryCheckpoint, directory: Path): Journal = {
    val path = manifestPath(directory)
    val json = Try(parse(new String(checkpoint.bytesOf(path), UTF_8))).toOption
    val journal =
      json.collect { case o: JObject if o \ "format" == JInt(Format) => o }.flatMap { o =>
        (o \ "to", o \ "batches") match {
          case (JString(to), JArray(batches)) =>
            val ids = batches.collect { case JInt(b) => b.toLong }
            Some(new Journal(checkpoint, directory, ProviderClass.of(to), ids))
          case _ => None
        }
      }
    journal.getOrElse(throw UserError(
      s"$path cannot be read",
      s"it is no manifest of format $Format",
      "use the Statemark that wrote it; the offset entries as they were lie beside it"
    ))
  }

  private def manifestPath(directory: Path): Path = new Path(directory, "manifest.json")

  private def entryPath(checkpoint: QueryCheckpoint, batch: Long): Path =
    new Path(checkpoint.offsetLog, batch.toString)

  private def directories(checkpoint: QueryCheckpoint): Seq[(Int, Path)] =
    checkpoint.ownDirectories.collect { case path @ PathName(Name(n)) => n.toInt -> path }

  private object PathName {
    def unapply(path: Path): Option[String] = Some(path.getName)
  }
}
