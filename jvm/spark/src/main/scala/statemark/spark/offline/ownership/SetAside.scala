package statemark.spark.offline.ownership

import org.apache.hadoop.fs.Path
import org.apache.spark.sql.execution.streaming.state.StateStoreId
import statemark.spark.checkpoint.StoreFile
import statemark.spark.offline.checkpoint.{QueryCheckpoint, StoreListing}

/** Changelogs and snapshots that a command takes out of a checkpoint, into one folder, each below the path that it had
  * (FORMAT.md). They are of versions after the last committed batch: the next run writes these versions anew, and a
  * provider that writes other kinds of files leaves what it finds beside its own, where it would be taken for a part of
  * the new history.
  *
  * ''Thread:'' one.
  *
  * @param journal the directory in which the command keeps what it changes
  * @param version the version after the last committed batch
  * @param files relative to the checkpoint, as the journal has them
  */
final class SetAside(
    checkpoint: QueryCheckpoint,
    journal: Path,
    val version: Long,
    val files: Seq[String]
) {
  import SetAside._

  val folder: Path = new Path(journal, Name)

  /** Takes the files out. One that is not there any more is passed over.
    * @param moved is told how many are done
    */
  def carryOut(owner: Ownership)(moved: Int => Unit): Unit =
    // A checksum first: beside a file of another history it would say that the file is damaged.
    files.sortBy(!isChecksum(_)).zipWithIndex.foreach { case (file, done) =>
      owner.move(new Path(checkpoint.root, file), new Path(folder, file)): Unit
      moved(done + 1)
    }

  /** Puts the files back that an interrupted command had taken out, where nothing of their versions was written since.
    * The others stay in the folder, under the name that it has by then.
    */
  def undo(owner: Ownership): Unit = if (files.nonEmpty) {
    val folders = foldersNow.map(owner.takeFolder)
    // Otherwise the query has gone on without them.
    if (checkpoint.committedVersion == version)
      for {
        (stem, of) <- files.groupBy(stemOf) if !isWrittenAnew(stem, of.toSet, folders)
        file <- of.filterNot(isChecksum)
        folder <- folders if owner.move(new Path(folder, file), placeOf(file))
        checksum <- of.filter(_ == s"$file$Checksum")
      } owner.move(new Path(folder, checksum), placeOf(checksum)): Unit
  }

  private def placeOf(file: String): Path = new Path(checkpoint.root, file)

  /** Tells whether a file of a version was written since: one that this had not found, or in the place of one that is
    * out. One that is in its place, and not out, was not taken yet.
    */
  private def isWrittenAnew(stem: String, found: Set[String], folders: Seq[Path]): Boolean = {
    def isThere(path: Path) = checkpoint.files.exists(path)
    Kinds.map(stem + _).exists { file =>
      isThere(placeOf(file)) &&
      (!found(file) || folders.exists(folder => isThere(new Path(folder, file))))
    }
  }

  private def foldersNow: Seq[Path] =
    StoreListing.entries(checkpoint.files, journal).filter(_.isDirectory).map(_.getPath)
      .filter(path => path.getName == Name || path.getName.startsWith(s"$Name-"))
}

object SetAside {
  private val Name = "aside"
  private val Checksum = ".crc"
  private val Kinds = Seq(".changelog", ".zip")

  /** Returns the files above a version, relative to the checkpoint, as its stores were listed. */
  def above(checkpoint: QueryCheckpoint, version: Long): Seq[String] = for {
    store <- checkpoint.listedStores
    file <- store.files if StoreFile.version(file.name).exists(_ > version)
  } yield s"${directoryOf(store)}/${file.name}"

  private def directoryOf(store: StoreListing): String = {
    val partition = s"state/${store.operator}/${store.partition}"
    if (store.name == StateStoreId.DEFAULT_STORE_NAME) partition else s"$partition/${store.name}"
  }

  private def isChecksum(file: String): Boolean = file.endsWith(Checksum)

  /** The path of a file without what tells changelog, snapshot and checksum apart. */
  private def stemOf(file: String): String = {
    val (directory, name) = file.splitAt(file.lastIndexOf('/') + 1)
    directory + name.takeWhile(_ != '.')
  }
}
