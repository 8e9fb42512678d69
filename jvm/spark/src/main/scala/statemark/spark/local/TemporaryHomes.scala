package statemark.spark.local

import java.io.{File, IOException}
import java.util.concurrent.ConcurrentHashMap
import org.apache.hadoop.fs.FileSystem
import org.apache.hadoop.util.ShutdownHookManager
import org.slf4j.LoggerFactory

/** The homes of queries with a temporary checkpoint that this process has made. They end with it: at an orderly end all
  * that are left are deleted, as Spark does with the checkpoint. After a kill the next process that collects the
  * directory deletes them.
  *
  * ''Thread:'' any.
  */
private[spark] object TemporaryHomes {
  private val log = LoggerFactory.getLogger(getClass)
  private val made = ConcurrentHashMap.newKeySet[File]()

  // After the hook by which Spark ends the application, and with it the tasks.
  ShutdownHookManager.get().addShutdownHook(
    () => deleteAll(),
    FileSystem.SHUTDOWN_HOOK_PRIORITY + 10
  )

  /** Notes a home that is about to be made in `path`. */
  def add(path: File): Unit = made.add(path): Unit

  /** Deletes the home in `path`, and the folders of its store and its query where they are empty.
    * @throws IOException where a file cannot be deleted
    */
  def delete(path: File): Unit = {
    LocalDirectory.deleteTree(path)
    made.remove(path): Unit
    val store = path.getParentFile
    if (store.delete()) store.getParentFile.delete(): Unit
  }

  /** Deletes all that are left. */
  def deleteAll(): Unit = made.forEach { home =>
    try delete(home)
    catch {
      case e: IOException => log.info(s"$home is left; it is deleted when it is collected.", e)
    }
  }
}
