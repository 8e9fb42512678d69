package statemark.spark.offline.ownership

import java.io.{FileNotFoundException, IOException}
import java.util.UUID
import org.apache.hadoop.fs.{FileAlreadyExistsException, Path}
import scala.util.control.NonFatal
import statemark.common.{Disk, DiskWrites, InvalidInputException}
import statemark.spark.offline.checkpoint.QueryCheckpoint
import statemark.spark.offline.cli.UserError

/** Which of several commands that change one checkpoint goes on: the last that took it. A command that was
  * killed cannot give it back, so that nobody waits for an owner; whoever has lost it fails at its next step.
  *
  * Each owner has a directory, `_statemark/owner-<token>`, with a file `held` in it. Whatever it changes in the
  * checkpoint is a rename out of that directory (what it writes) or into it (what it deletes), after a look
  * whether `held` still stands. Files that are set aside are renamed from place to place, into or out of a folder that
  * the next owner renames before it reads what is in it. Who takes the checkpoint makes a directory of its own first, then takes away `held` and
  * the directory of every other owner, then reads what there is to do. So a step of an earlier owner's
  *
  *  - was staged after its directory went: the look, which comes after that, finds no `held`;
  *  - was staged before: it went with the directory, and the rename finds nothing;
  *  - was renamed before: the new owner reads it.
  *
  * In short: the rename of its directory is the step at which an owner loses the checkpoint, and no change of
  * its own comes after it. Two that take the checkpoint at once: each makes its directory before it looks for others, so
  * that one of them at least is found; both may be, and then both refuse.
  *
  * A command says that it succeeded only if it took away its own `held`, which one alone can do. So of
  * two commands whose times as owners overlap the one that took the checkpoint first does not.
  *
  * On an object store, where a rename is a copy, one copy that an owner had sent when it lost the checkpoint may
  * still arrive (docs/adr/0006).
  *
  * ''Thread:'' one.
  */
final class Ownership private (checkpoint: QueryCheckpoint, directory: Path) {
  import Ownership._

  private val moves = new Moves(checkpoint.root, checkpoint.hadoopConf)
  private val fs = checkpoint.root.getFileSystem(checkpoint.hadoopConf)
  private var names = 0

  /** There while this owner has the checkpoint: whoever works for it asks for it. */
  val held: Path = heldOf(directory)

  def isHeld: Boolean = fs.exists(held)

  /** @throws statemark.common.InvalidInputException where another command has taken the checkpoint */
  def requireHeld(): Unit = if (!isHeld) throw lost()

  /** A path for what is to be renamed into the checkpoint; nothing is there. */
  def staged(): Path = {
    names += 1
    new Path(directory, s"$names")
  }

  /** Writes a file of the checkpoint, or replaces it.
    * @throws statemark.common.InvalidInputException where another command has taken the checkpoint, as
    *   each method that changes it; nothing was changed then
    */
  def write(path: Path, bytes: Array[Byte]): Unit = {
    val from = staged()
    stage(from, bytes)
    publish(from, path)(moves.replace)
  }

  /** Writes a file that is to be renamed into the checkpoint, as part of a directory.
    * @throws statemark.common.DiskUnwritableException where the checkpoint location takes no more
    */
  def stage(path: Path, bytes: Array[Byte]): Unit =
    DiskWrites.to(Disk.Checkpoint, path.toString) {
      val out = fs.create(path, true)
      try out.write(bytes)
      finally out.close()
    }

  /** Puts a file or a directory that was staged where nothing is.
    * @throws statemark.common.InvalidInputException where something is, too
    */
  def place(from: Path, path: Path): Unit =
    try publish(from, path)(moves.move)
    catch {
      case _: FileAlreadyExistsException =>
        throw UserError(
          s"$path was written by someone else in the meantime",
          "the query runs, or another command does",
          "stop the query, then run the command again"
        )
    }

  /** Puts a file that was staged in the place of another. */
  def replace(from: Path, path: Path): Unit = publish(from, path)(moves.replace)

  /** Takes a file or a directory out of the checkpoint, if it is there. */
  def remove(path: Path): Unit = {
    requireHeld()
    if (fs.exists(path) && !moves.move(path, staged())) requireHeld()
  }

  /** Renames a file within the checkpoint, to where nothing is. An earlier owner may be about to do the same: see
    * [[takeFolder]].
    * @return false where it is not there, or something else is in its new place
    */
  def move(from: Path, to: Path): Boolean = {
    fs.mkdirs(to.getParent)
    requireHeld()
    val isMoved =
      try moves.move(from, to)
      catch { case _: FileAlreadyExistsException => false }
    if (!isMoved) requireHeld()
    isMoved
  }

  /** Renames a folder into or out of which an earlier owner may be about to [[move]] a file: that finds nothing at the
    * old name. The earlier owner makes the folder before it looks for its `held`, and so does not make it again.
    * @return its new name, beside the old one
    */
  def takeFolder(folder: Path): Path = {
    requireHeld()
    val base = folder.getName.takeWhile(_ != '-')
    val taken = new Path(folder.getParent, s"$base-${UUID.randomUUID()}")
    if (!moves.move(folder, taken)) throw lost()
    taken
  }

  /** Deletes a file whose name is given once, such as an SST file, which may be large where a rename is a copy:
    * it does no harm if that happens late.
    */
  def delete(path: Path): Unit = {
    requireHeld()
    fs.delete(path, false): Unit
  }

  /** Deletes a directory, if there is nothing in it. */
  def deleteEmpty(path: Path): Unit = {
    requireHeld()
    deleteIfEmpty(path)
  }

  // Another command may have deleted it, or write there now.
  private def deleteIfEmpty(path: Path): Unit =
    try if (fs.listStatus(path).isEmpty) fs.delete(path, false): Unit
    catch { case _: IOException => () }

  private def publish(from: Path, to: Path)(move: (Path, Path) => Boolean): Unit = {
    DiskWrites.to(Disk.Checkpoint, to.getParent.toString)(fs.mkdirs(to.getParent)): Unit
    // After it was staged: see above.
    requireHeld()
    if (!move(from, to)) throw lost()
  }

  private def lost() = Ownership.lost(checkpoint.root)

  /** Takes the checkpoint from every other owner. */
  private def take(): Unit = {
    try stage(held, Array.emptyByteArray)
    catch {
      // A command that ends deletes the directory of all, if it is empty.
      case _: FileNotFoundException => stage(held, Array.emptyByteArray)
    }
    for (other <- owners(checkpoint) if other != directory) {
      fs.delete(heldOf(other), false): Unit
      // In one step, as a directory in it may be about to be published. It is gone already, or this one is.
      if (!moves.move(other, staged())) requireHeld()
      // What is left where a rename is no single step, and what was staged since.
      fs.delete(other, true): Unit
    }
    requireHeld()
  }

  /** Gives the checkpoint back; false where another command has taken it. */
  private def release(): Boolean = {
    val wasHeld = fs.delete(held, false)
    fs.delete(directory, true): Unit
    // What a refusal leaves is what was there.
    deleteIfEmpty(directory.getParent)
    wasHeld
  }
}

object Ownership {
  private val Prefix = "owner-"

  /** Does `body` as the owner of a checkpoint, and leaves no trace of that. By whatever `body` fails once
    * another command has taken the checkpoint, such as a file of a task that is gone: that it was taken is
    * what is said, with the failure as its cause.
    *
    * @throws statemark.common.InvalidInputException where another command has taken the checkpoint before
    *   it was given back; `body` has then done all, a part, or nothing, and the other command has seen what
    */
  def during[A](checkpoint: QueryCheckpoint)(body: Ownership => A): A = {
    val directory =
      new Path(checkpoint.ownDirectory, s"$Prefix${UUID.randomUUID()}")
    val owner = new Ownership(checkpoint, directory)
    var hasBegun = false
    val done =
      try {
        owner.take()
        hasBegun = true
        body(owner)
      } catch {
        case e: Throwable =>
          val wasHeld =
            try owner.release()
            catch {
              case NonFatal(after) =>
                e.addSuppressed(after)
                true
            }
          throw if (hasBegun && !wasHeld && NonFatal(e)) lost(checkpoint.root, Some(e)) else e
      }
    if (!owner.release()) throw owner.lost()
    done
  }

  /** What a command says that has lost the checkpoint.
    * @param failure by which it noticed
    */
  def lost(root: Path, failure: Option[Throwable] = None): InvalidInputException = UserError(
    s"$root was taken by another command in the meantime",
    "a switch, a repartition or a rollback was started beside this one",
    "wait until the other one has ended, look at what it did, then run the command again",
    failure
  )

  /** The checkpoint that has a file `held`. */
  def rootOf(held: Path): Path = held.getParent.getParent.getParent

  /** Whether a command is at work, or was killed. Asked after it was read that nothing is to be done: if
    * not, this is so until another command begins.
    */
  def isTaken(checkpoint: QueryCheckpoint): Boolean = owners(checkpoint).nonEmpty

  private def owners(checkpoint: QueryCheckpoint): Seq[Path] =
    checkpoint.ownDirectories.filter(_.getName.startsWith(Prefix))

  private def heldOf(directory: Path) = new Path(directory, "held")
}
