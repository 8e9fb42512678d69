package statemark.spark.conf

import java.io.File
import org.apache.spark.SparkEnv
import statemark.common.InvalidInputException

/** Where homes that outlive their process lie. */
object LocalRoot {

  /** The root that the settings name; on a local master the user's cache directory, so that a restart on
    * one machine is fast without any setting; None where homes go with the executor.
    *
    * @throws InvalidInputException where Spark encrypts what it writes to local disks: a base store is
    *   not encrypted
    */
  def of(settings: StoreSettings): Option[File] = {
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
      case Some(dir) => Some(new File(dir))
      case None => Option.when(isLocal && !isEncrypted)(userCache)
    }
  }

  private def userCache: File = {
    val cache = sys.env.get("XDG_CACHE_HOME").filter(_.nonEmpty).map(new File(_))
      .getOrElse(new File(System.getProperty("user.home"), ".cache"))
    new File(cache, "statemark")
  }
}
