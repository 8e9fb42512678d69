package statemark.spark.offline.switching

import java.nio.charset.StandardCharsets.UTF_8
import java.util.Arrays
import java.util.UUID
import org.apache.hadoop.fs.Path
import org.apache.spark.sql.internal.SQLConf
import org.json4s.jackson.JsonMethods.{compact, parse, render}
import org.json4s.{JArray, JInt, JObject, JString, JValue}
import scala.util.Try
import statemark.spark.load.CheckpointMark
import statemark.spark.conf.ProviderClass
import statemark.spark.offline.checkpoint.{OffsetEntry, QueryCheckpoint}
import statemark.spark.offline.cli.UserError
import statemark.spark.offline.ownership.{Ownership, SetAside}

/** One change of pinned providers: what it means to do, and the entries as they were, in a directory of
  * the checkpoint that Spark does not look at (FORMAT.md). It is written before anything is changed, so
  * that a change that was interrupted is finished or undone by the next one.
  *
  * @param directory `_statemark/switch-<n>`
  * @param batches entries of the offset log to change
  * @param aside files that are taken out of the checkpoint before
  * @param mark the checkpoint's mark from this change on; None in a journal of format 1, which set none
  */
final class Journal private (
    checkpoint: QueryCheckpoint,
    val directory: Path,
    val to: ProviderClass,
    val batches: Seq[Long],
    val aside: SetAside,
    mark: Option[UUID]
) {
  import Journal._

  /** Sets the checkpoint's mark, from which homes that are older are refused, then takes files out of the checkpoint.
    * Either is of no harm where nothing else is done.
    * @param moved is told how many files are out
    */
  def prepare(owner: Ownership)(moved: Int => Unit): Unit = {
    val path = CheckpointMark.pathIn(checkpoint.root)
    mark.foreach(id => replace(owner, path, CheckpointMark.encode(id)))
    aside.carryOut(owner)(moved)
  }

  /** Pins the new provider in every entry, the newest last: it decides what a restart uses, so that its
    * rename is the step at which the switch happens.
    *
    * @throws statemark.common.InvalidInputException where another command has taken the checkpoint: it undoes
    *   or finishes this change
    */
  def carryOut(owner: Ownership): Unit = {
    batches.sorted.foreach(b => replace(owner, entryPath(checkpoint, b), changed(b)))
    end(owner, Finished): Unit
  }

  /** Finishes what an interruption left: `Finished` where every entry was changed already, else `Undone`,
    * with entries and files as they were. Entries that the query has deleted since stay deleted. The mark stays: stores
    * that were made since have it.
    */
  def settle(owner: Ownership): End = {
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
    if (pending.isEmpty) end(owner, Finished)
    else {
      there.sorted.foreach(b => replace(owner, entryPath(checkpoint, b), original(b)))
      aside.undo(owner)
      end(owner, Undone)
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

  private def end(owner: Ownership, what: End): End = {
    owner.write(new Path(directory, what.name), Array.emptyByteArray)
    what
  }

  private def replace(owner: Ownership, path: Path, bytes: Array[Byte]): Unit = {
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
  private val Format = 2

  /** Of 0.1.0: without files set aside, and without a mark. */
  private val FormatBefore = 1

  /** How a change ended: the name of an empty file in its directory. */
  sealed abstract class End(val name: String)
  case object Finished extends End("finished")
  case object Undone extends End("undone")

  /** The folder of files that the next change would take out of the checkpoint. */
  def nextAside(checkpoint: QueryCheckpoint): Path =
    new SetAside(checkpoint, next(checkpoint), 0, Nil).folder

  /** Writes down a change that is about to begin.
    * @param aside the files to take out of the checkpoint: those above its committed version
    */
  def begin(
      checkpoint: QueryCheckpoint,
      from: Seq[ProviderClass],
      to: ProviderClass,
      entries: Seq[OffsetEntry],
      aside: Seq[String],
      importVersion: Option[Long],
      epochMs: Long,
      owner: Ownership
  ): Journal = {
    val mark = UUID.randomUUID()
    val version = checkpoint.committedVersion
    val manifest = JObject(List[(String, JValue)](
      "format" -> JInt(Format),
      "queryId" -> JString(checkpoint.queryId),
      "from" -> JArray(from.map(p => JString(p.className)).toList),
      "to" -> JString(to.className),
      "batches" -> JArray(entries.map(e => JInt(e.batch)).toList),
      "startedAtMs" -> JInt(epochMs),
      "committedVersion" -> JInt(version),
      "aside" -> JArray(aside.map(JString(_)).toList),
      "mark" -> JString(mark.toString)
    ) ++ importVersion.map(v => "importVersion" -> (JInt(v): JValue)))
    val made = owner.staged()
    val originals = new Path(made, "offsets")
    entries.foreach(e => owner.stage(new Path(originals, e.batch.toString), e.text.getBytes(UTF_8)))
    // The rename takes the number: a directory never replaces another.
    val directory = next(checkpoint)
    owner.place(made, directory)
    owner.write(manifestPath(directory), compact(render(manifest)).getBytes(UTF_8))
    val files = new SetAside(checkpoint, directory, version, aside)
    new Journal(checkpoint, directory, to, entries.map(_.batch), files, Some(mark))
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
    def journal(to: String, batches: List[JValue], files: SetAside, mark: Option[UUID]) = {
      val ids = batches.collect { case JInt(b) => b.toLong }
      new Journal(checkpoint, directory, ProviderClass.of(to), ids, files, mark)
    }
    val found = json.flatMap { o =>
      (o \ "format", o \ "to", o \ "batches") match {
        case (JInt(format), JString(to), JArray(batches)) if format == FormatBefore =>
          Some(journal(to, batches, new SetAside(checkpoint, directory, 0, Nil), None))
        case (JInt(format), JString(to), JArray(batches)) if format == Format =>
          (o \ "committedVersion", o \ "aside", o \ "mark") match {
            case (JInt(version), JArray(aside), JString(mark)) =>
              val names = aside.collect { case JString(file) => file }
              val files = new SetAside(checkpoint, directory, version.toLong, names)
              Try(UUID.fromString(mark)).toOption.map(id => journal(to, batches, files, Some(id)))
            case _ => None
          }
        case _ => None
      }
    }
    found.getOrElse(throw UserError(
      s"$path cannot be read",
      s"it is no manifest of format $FormatBefore or $Format",
      "use the Statemark that wrote it; the offset entries as they were lie beside it"
    ))
  }

  private def manifestPath(directory: Path): Path = new Path(directory, "manifest.json")

  private def entryPath(checkpoint: QueryCheckpoint, batch: Long): Path =
    new Path(checkpoint.offsetLog, batch.toString)

  private def next(checkpoint: QueryCheckpoint): Path = {
    val number = directories(checkpoint).map(_._1).maxOption.getOrElse(0) + 1
    new Path(checkpoint.ownDirectory, s"switch-$number")
  }

  private def directories(checkpoint: QueryCheckpoint): Seq[(Int, Path)] =
    checkpoint.ownDirectories.collect { case path @ PathName(Name(n)) => n.toInt -> path }

  private object PathName {
    def unapply(path: Path): Option[String] = Some(path.getName)
  }
}
