package statemark.spark.offline

import java.io.FileNotFoundException
import java.nio.charset.StandardCharsets.UTF_8
import java.util.UUID
import org.apache.hadoop.fs.Path

/** Which of several commands that change one checkpoint goes on: the last that took it. A command that was
  * interrupted cannot give it back, so that nobody waits for an owner; whoever has lost it finds that out
  * at its next step and stops.
  *
  * A step asks before and after it: another command may take the checkpoint in between.
  *
  * ''Thread:'' one.
  */
final class Ownership private (checkpoint: QueryCheckpoint, token: String) {
  import Ownership._

  /** Where this command may keep what it is about to publish by a rename. Whoever takes the checkpoint deletes
    * it, so that nothing of an earlier owner's can be published then. It has to be there before the owner
    * asks for the last time whether it is still the one.
    */
  val staging: Path = new Path(directoryOf(checkpoint), s"$StagingPrefix$token")

  def isHeld: Boolean = read(checkpoint).contains(token)

  /** @throws statemark.common.InvalidInputException where another command has taken the checkpoint */
  def requireHeld(): Unit = if (!isHeld) throw lost()

  /** What a command says that has lost the checkpoint. */
  def lost(): Throwable = Failure(
    s"${checkpoint.root} was taken by another command in the meantime",
    "a switch, a repartition or a rollback was started beside this one",
    "wait until the other one has ended, look at what it did, then run the command again"
  )

  private def release(): Unit = {
    checkpoint.files.delete(staging)
    if (isHeld) {
      val path = pathOf(checkpoint)
      checkpoint.files.delete(path)
      checkpoint.files.delete(new Path(path.getParent, s"${path.getName}.crc"))
    }
  }
}

object Ownership {

  /** Does `body` as the owner of a checkpoint, and leaves no trace of that. */
  def during[A](checkpoint: QueryCheckpoint)(body: Ownership => A): A = {
    val owner = take(checkpoint)
    try body(owner)
    finally owner.release()
  }

  private def take(checkpoint: QueryCheckpoint): Ownership = {
    val token = UUID.randomUUID().toString
    val path = pathOf(checkpoint)
    checkpoint.files.mkdirs(path.getParent)
    val out = checkpoint.files.createAtomic(path, overwriteIfPossible = true)
    try {
      out.write(token.getBytes(UTF_8))
      out.close()
    } catch {
      case e: Throwable =>
        out.cancel()
        throw e
    }
    val own = new Ownership(checkpoint, token)
    checkpoint.files.list(path.getParent).map(_.getPath)
      .filter(_.getName.startsWith(StagingPrefix)).foreach(checkpoint.files.delete)
    // Two that take it at once: one of them finds the other's token.
    own.requireHeld()
    own
  }

  private def read(checkpoint: QueryCheckpoint): Option[String] =
    try Some(new String(checkpoint.bytesOf(pathOf(checkpoint)), UTF_8))
    catch { case _: FileNotFoundException => None }

  private val StagingPrefix = "staged-"

  private def directoryOf(checkpoint: QueryCheckpoint): Path =
    new Path(checkpoint.root, "_statemark")

  private def pathOf(checkpoint: QueryCheckpoint): Path =
    new Path(directoryOf(checkpoint), "owner")
}
