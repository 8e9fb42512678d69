package statemark.spark.conf

import java.util.Locale
import java.util.concurrent.TimeUnit
import org.apache.spark.network.util.JavaUtils
import scala.util.Try
import statemark.{IsolationLevel, ReadRetention}
import statemark.common.InvalidInputException

/** Statemark's own settings of one store.
  *
  * @param isolationLevel what a live query sees unless it says otherwise
  * @param maxUncommittedBytes None for no limit
  * @param localDir root of homes that outlive the process; None where nobody named one
  * @param localDirMaxBytes how much the homes that nobody uses may take, None for no limit
  * @param localDirMaxAgeMs how long such a home stays
  * @param readRetentionVersions how many versions that a store has left live reads may still see
  * @param readRetentionMs and how long, from when they were planned, reads see the version that they are pinned to
  */
final case class StoreSettings(
    isolationLevel: IsolationLevel,
    maxUncommittedBytes: Option[Long],
    localDir: Option[String],
    localDirMaxBytes: Option[Long],
    localDirMaxAgeMs: Long,
    readRetentionVersions: Int,
    readRetentionMs: Long
)

object StoreSettings {

  /** Only keys with this prefix reach a state store provider. */
  val Prefix: String = "spark.sql.streaming.stateStore.statemark."

  private val DefaultMaxAgeMs = 7L * 24 * 3600 * 1000
  private val MinAutoBytes = 64L * 1024 * 1024
  private val DefaultReadRetentionVersions = 3
  private val DefaultReadRetentionMs = 30L * 1000
  private val Keys = Seq(
    "isolationLevel",
    "maxUncommittedBytes",
    "localDir",
    "localDirMaxBytes",
    "localDirMaxAge",
    "readRetentionVersions",
    "readRetentionTime"
  )

  /** @param confs settings of the session; others than Statemark's are passed over
    * @param heapBytes the most heap that the JVM takes
    * @throws InvalidInputException for an unknown key under the prefix or a bad value
    */
  def from(confs: Map[String, String], heapBytes: Long): StoreSettings = {
    val (known, unknown) = confs.filter(c => isOwn(c._1)).partition {
      // Spark hands settings to a store by the prefix as it is written here, in this case alone.
      case (key, _) =>
        key.startsWith(Prefix) && Keys.exists(_.equalsIgnoreCase(key.drop(Prefix.length)))
    }
    unknown.toSeq.sorted.headOption.foreach { case (key, value) =>
      throw new InvalidInputException(
        s"Unknown setting $key (its value is '$value'); " +
          s"Statemark knows ${Keys.map(Prefix + _).mkString(", ")}."
      )
    }
    val own = known.map { case (key, value) => (key.drop(Prefix.length), value) }
    def value(key: String): Option[String] =
      own.collectFirst { case (k, v) if k.equalsIgnoreCase(key) => v.trim }
    StoreSettings(
      value("isolationLevel").fold[IsolationLevel](IsolationLevel.ReadCommitted)(v =>
        checked("isolationLevel", v, "READ_COMMITTED or READ_UNCOMMITTED")(IsolationLevel.of(v))
      ),
      bytes(value("maxUncommittedBytes").getOrElse("auto"), heapBytes),
      value("localDir").map(v => checked("localDir", v, "an absolute path")(directory(v))),
      value("localDirMaxBytes").map(v =>
        checked("localDirMaxBytes", v, "a size above 0 such as 50g")(size(v))
      ),
      value("localDirMaxAge").fold(DefaultMaxAgeMs)(v =>
        checked("localDirMaxAge", v, "a time above 0 such as 7d or 12h")(duration(v))
      ),
      value("readRetentionVersions").fold(DefaultReadRetentionVersions)(v =>
        checked(
          "readRetentionVersions",
          v,
          s"a number from 0 to ${ReadRetention.MaxVersions}"
        )(versions(v))
      ),
      value("readRetentionTime").fold(DefaultReadRetentionMs)(v =>
        checked("readRetentionTime", v, "a time above 0 such as 30s")(duration(v))
      )
    )
  }

  private def isOwn(key: String): Boolean =
    key.regionMatches( /* ignoreCase = */ true, 0, Prefix, 0, Prefix.length)

  private def bytes(value: String, heapBytes: Long): Option[Long] = lower(value) match {
    case "auto" => Some(math.max(heapBytes / 10, MinAutoBytes))
    case "-1" => None
    case _ =>
      val allowed = "a size above 0 such as 64m or 268435456, -1 for no limit, or auto"
      Some(checked("maxUncommittedBytes", value, allowed) {
        size(value)
      })
  }

  private def size(value: String): Long = positive(value, JavaUtils.byteStringAsBytes(value))

  private def versions(value: String): Int = value.toInt match {
    case n if n >= 0 && n <= ReadRetention.MaxVersions => n
    case _ => throw new NumberFormatException(value)
  }

  private def duration(value: String): Long =
    positive(value, JavaUtils.timeStringAs(value, TimeUnit.MILLISECONDS))

  private def positive(value: String, n: Long): Long =
    if (n > 0) n else throw new NumberFormatException(value)

  private def directory(value: String): String = {
    val path = if (value.startsWith("file:")) new java.net.URI(value).getPath else value
    if (new java.io.File(path).isAbsolute) path else throw new IllegalArgumentException(value)
  }

  private def checked[A](key: String, value: String, allowed: String)(parse: => A): A =
    Try(parse).getOrElse {
      throw new InvalidInputException(s"$Prefix$key is '$value', but it must be $allowed.")
    }

  private def lower(s: String): String = s.toLowerCase(Locale.ROOT)
}
