package statemark.spark.conf

import java.io.{File, IOException}
import java.nio.file.Files
import java.nio.file.attribute.PosixFilePermissions
import org.apache.spark.SparkEnv
import org.slf4j.LoggerFactory
import statemark.common.InvalidInputException
import statemark.spark.process.JvmState

/** The directory in which homes lie that outlive their process.
  *
  * @param isNamed whether a setting names it; else it is the user's cache directory
  */
final case class LocalRoot(directory: File, isNamed: Boolean) {

  /** Returns the beginning of a sentence that says which directory it is, and why. */
  def text: String =
    if (isNamed) s"${StoreSettings.LocalDir.key} is '$directory'"
    else
      s"Stores lie in '$directory', the user's cache directory, as ${StoreSettings.LocalDir.key} is not set"
}

object LocalRoot {
  private val log = LoggerFactory.getLogger(getClass)
  private val Private =
    PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx------"))

  /** The caches that were found to be of no use: the log has a line for each. */
  private val passedOver = JvmState.ofApplication(Set.empty[String])

  /** Returns the root that the settings name; on a local master the user's cache directory, so that a restart on
    * one machine is fast without any setting; None where homes go with the executor, in Spark's local directories. That is
    * so too where the user has no cache directory: nobody has named it, so that its lack must not end a query.
    *
    * @throws InvalidInputException where Spark encrypts what it writes to local disks: a base store is
    *   not encrypted
    */
  def of(settings: StoreSettings): Option[LocalRoot] =
    place(settings).filter(root => root.isNamed || isWritable(root.directory))

  /** Returns the root like [[of]], whether it can be written or not; changes nothing on disk.
    *
    * @throws InvalidInputException where Spark encrypts what it writes to local disks
    */
  def place(settings: StoreSettings): Option[LocalRoot] = {
    val conf = Option(SparkEnv.get).map(_.conf)
    val isEncrypted = conf.exists(_.getBoolean("spark.io.encryption.enabled", defaultValue = false))
    val master = conf.flatMap(_.getOption("spark.master"))
    val isLocal = master.exists(m => m == "local" || m.startsWith("local["))
    settings.localDir match {
      case Some(dir) if isEncrypted =>
        throw new InvalidInputException(
          s"${StoreSettings.Prefix}localDir is '$dir' and spark.io.encryption.enabled is true, but what " +
            "stays in that directory would not be encrypted. Leave one of the two settings away, or name " +
            "a directory on an encrypted volume and switch Spark's encryption off."
        )
      case Some(dir) => Some(LocalRoot(new File(dir), isNamed = true))
      case None =>
        Option.when(isLocal && !isEncrypted)(
          LocalRoot(cache(sys.env.get("XDG_CACHE_HOME"), userHome), isNamed = false)
        )
    }
  }

  // Java says "?" of a user that the machine does not know.
  private def userHome: String =
    Option(System.getProperty("user.home")).filter(_.nonEmpty).getOrElse("?")

  /** Returns the user's cache directory for Statemark.
    * @param xdg the value of `XDG_CACHE_HOME`, which counts where it is an absolute path
    * @param home the user's home directory; no absolute path where the machine does not know the user
    */
  private[spark] def cache(xdg: Option[String], home: String): File = {
    val own = xdg.map(new File(_)).filter(_.isAbsolute)
    new File(own.getOrElse(new File(home, ".cache")), "statemark")
  }

  /** Tells whether a cache can be written, which is made where it is not there. Nothing else tells: a directory may have
    * the rights, and its disk be read-only or full.
    */
  private[spark] def isWritable(cache: File): Boolean = {
    val problem =
      if (!cache.isAbsolute) Some("this user has no home directory")
      else
        try {
          Files.createDirectories(cache.toPath, Private): Unit
          Option.when(!Files.isWritable(cache.toPath))("this user may not write to it")
        } catch { case e: IOException => Some(e.toString) }
    problem.foreach(passOver(cache, _))
    problem.isEmpty
  }

  private def passOver(cache: File, problem: String): Unit = passedOver.synchronized {
    if (!passedOver()(cache.getPath)) {
      passedOver.set(passedOver() + cache.getPath)
      log.warn(
        s"$cache cannot hold stores: $problem. They lie in Spark's local directories and end with this process, so " +
          "that a restart loads them from the checkpoint. To keep them, name a directory in " +
          s"${StoreSettings.LocalDir.key}."
      )
    }
  }
}
