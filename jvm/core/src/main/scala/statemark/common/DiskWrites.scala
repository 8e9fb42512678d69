package statemark.common

import java.io.File
import org.rocksdb.{RocksDBException, Status}

/** A disk that a store writes to.
  *
  * @param text the disk as messages name it
  * @param help the part of a remedy that only this disk has
  */
sealed abstract class Disk(val text: String, private[common] val help: String)

object Disk {
  case object Local
      extends Disk(
        "local directory",
        "; `statemark local --prune` deletes stores there that no process uses"
      )
  case object Checkpoint extends Disk("checkpoint location", "")
  case object Temporary
      extends Disk("temporary directory", ", or name another with -Djava.io.tmpdir")
}

/** Disks that take no more: what they say is recognised here and nowhere else. A write that such a disk refuses says
  * nothing about the file: no home is given up for it, and no snapshot passed over.
  *
  * ''Thread:'' any.
  */
object DiskWrites {

  /** Runs `write`.
    *
    * @param disk the disk that `write` writes to; asked for where it takes no more
    * @param path the file or directory that is written; asked for where the disk takes no more
    * @throws DiskUnwritableException where the disk takes no more; any other failure comes as it is
    */
  def to[A](disk: => Disk, path: => String)(write: => A): A =
    try write
    catch { case e: Throwable => throw told(disk, path, e) }

  /** Returns the failure of a write that says which disk takes no more, which file it was, and what to do; `failure`
    * itself where its reason is another one.
    */
  def told(disk: => Disk, path: => String, failure: Throwable): Throwable =
    Causes.of(failure).collectFirst { case e: DiskUnwritableException => e }
      .orElse(troubleOf(failure).map(of(_, disk, path, failure)))
      .getOrElse(failure)

  /** Tells whether a disk that takes no more is among the causes of a failure. */
  def isRefusal(failure: Throwable): Boolean =
    told(Disk.Local, "", failure).isInstanceOf[DiskUnwritableException]

  private def of(trouble: Trouble, disk: Disk, path: String, cause: Throwable) =
    new DiskUnwritableException(
      s"The ${disk.text} ${trouble.state}: $path cannot be written (${said(cause)}${free(path)}).",
      s"${trouble.remedy}${disk.help}. Nothing is lost: what has failed can be run again then.",
      cause
    )

  /** Returns what the disk itself says, which the innermost exception has. */
  private def said(cause: Throwable): String = {
    val innermost = Causes.of(cause).toSeq.last
    Option(innermost.getMessage).getOrElse(innermost.toString).stripSuffix(".")
  }

  /** Returns how much of a disk of this machine is free, as the end of a list. */
  private def free(path: String): String = {
    val file = new File(path.stripPrefix("file:"))
    Option.when(file.isAbsolute)(file).flatMap { f =>
      Iterator.iterate(f)(_.getParentFile).takeWhile(_ != null).find(_.exists)
    }.filter(_.getTotalSpace > 0)
      .fold("")(f => s"; ${f.getUsableSpace} of ${f.getTotalSpace} bytes are free")
  }

  private def troubleOf(failure: Throwable): Option[Trouble] =
    if (Interrupts.isInterrupt(failure)) None
    else Causes.of(failure).flatMap(Trouble.of).nextOption()

  /** A reason for which a disk takes no more.
    *
    * @param state the end of a sentence about the disk
    * @param remedy the beginning of a sentence
    * @param words the words by which an exception, its class included, says so
    */
  private sealed abstract class Trouble(
      val state: String,
      val remedy: String,
      val words: Seq[String]
  )

  private object Trouble {
    private val all = Seq(Full, Quota, ReadOnly)

    def of(failure: Throwable): Option[Trouble] = failure match {
      case e: RocksDBException if hasNoSpace(e) => Some(Full)
      case e =>
        val text = e.toString
        all.find(_.words.exists(text.contains(_)))
    }

    private def hasNoSpace(e: RocksDBException): Boolean =
      Option(e.getStatus).exists(_.getSubCode == Status.SubCode.NoSpace)
  }

  private case object Full
      extends Trouble(
        "is full",
        "Make room there, for bytes and for files (`df` and `df -i` show both)",
        Seq(
          "No space left on device",
          "not enough space on the disk",
          // An object store on disks of its own (HTTP 507).
          "XMinioStorageFull",
          "Status Code: 507"
        )
      )

  private case object Quota
      extends Trouble(
        "has used up its quota",
        "Have the quota raised, or make room under it",
        // Of a local disk, and of HDFS: DSQuotaExceededException, NSQuotaExceededException.
        Seq("Disk quota exceeded", "QuotaExceededException")
      )

  private case object ReadOnly
      extends Trouble(
        "is read-only",
        "Have it mounted for writing, and look at why it is not: a disk with errors is mounted so",
        Seq("Read-only file system")
      )
}
