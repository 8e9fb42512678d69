package statemark.spark

import java.io.{File, RandomAccessFile}
import java.nio.channels.{FileLock, OverlappingFileLockException}
import java.nio.file.{Files, Path}
import java.nio.file.attribute.PosixFilePermissions
import java.util.Comparator
import org.apache.spark.sql.execution.streaming.state.{StateStoreId, StatemarkBridge}
import statemark.common.InvalidInputException

/** The working directory of one provider object: what it creates lies below, and goes with it.
  *
  * Without `localDir` it is one of the executor's own. With it, it is
  * `<localDir>/<query>/<operator>-<partition>-<store>/<unique>`, held by a file lock: a directory
  * beside it that nobody holds was left by a process that died, and is deleted.
  *
  * ''Thread:'' `fresh` from any, the rest from one.
  */
final class LocalDirectory private (val root: File, lock: Option[FileLock]) extends AutoCloseable {
  private var created = 0

  /** A path below that is not there yet. */
  def fresh(prefix: String): File = synchronized {
    created += 1
    new File(root, s"$prefix-$created")
  }

  override def close(): Unit = {
    LocalDirectory.deleteTree(root)
    lock.foreach(_.channel.close())
  }
}

object LocalDirectory {
  private val LockName = "owner.lock"

  /** @param queryId persistent id of the query, empty where there is none
    * @throws InvalidInputException where `localDir` cannot be written
    */
  def open(localDir: Option[String], queryId: String, storeId: StateStoreId): LocalDirectory =
    localDir match {
      case None =>
        val name = s"statemark-${storeId.operatorId}-${storeId.partitionId}-${storeId.storeName}-"
        new LocalDirectory(StatemarkBridge.newLocalDirectory(name), None)
      case Some(root) =>
        val query = if (queryId.isEmpty) "no-query" else queryId
        val store = s"${storeId.operatorId}-${storeId.partitionId}-${storeId.storeName}"
        val parent = new File(new File(root, query), store)
        try {
          createPrivate(parent.toPath)
          parent.listFiles.foreach(deleteIfAbandoned)
          val own = new File(parent, java.util.UUID.randomUUID().toString)
          createPrivate(own.toPath)
          new LocalDirectory(own, tryLock(own))
        } catch {
          case e: java.io.IOException =>
            throw new InvalidInputException(
              s"${StoreSettings.Prefix}localDir is '$root', but $parent cannot be written: $e. " +
                "Name a directory that this executor's user may write to.",
              Some(e)
            )
        }
    }

  /** Deletes `root` and all below; what is gone already is fine. */
  def deleteTree(root: File): Unit = if (root.exists) {
    val walk = Files.walk(root.toPath)
    try walk.sorted(Comparator.reverseOrder[Path]()).forEach(p => Files.deleteIfExists(p): Unit)
    finally walk.close()
  }

  private def createPrivate(path: Path): Unit =
    Files.createDirectories(
      path,
      PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx------"))
    ): Unit

  private def deleteIfAbandoned(directory: File): Unit =
    tryLock(directory).foreach { lock =>
      deleteTree(directory)
      lock.channel.close()
    }

  /** The lock of `directory`; None where somebody holds it, in this process or another. */
  private def tryLock(directory: File): Option[FileLock] = {
    val channel = new RandomAccessFile(new File(directory, LockName), "rw").getChannel
    val lock =
      try Option(channel.tryLock())
      catch { case _: OverlappingFileLockException => None }
    if (lock.isEmpty) channel.close()
    lock
  }
}
