package statemark.spark.conf

import java.util.Locale
import java.util.concurrent.TimeUnit
import org.apache.spark.network.util.JavaUtils
import statemark.{IsolationLevel, ReadRetention}
import statemark.common.{InvalidInputException, NearNames}

/** Statemark's own settings of one store.
  *
  * @param isolationLevel what a live query sees unless it says otherwise
  * @param maxUncommittedBytes None for no limit
  * @param localDir root of homes that outlive the process; None where nobody named one
  * @param localDirMaxBytes how much the homes that nobody uses may take, None for no limit
  * @param localDirMaxAgeMs how long such a home stays
  * @param readRetentionVersions how many versions that a store has left live reads may still see
  * @param checksOffsets whether a task is refused where its store holds other source offsets than its batch begins at
  * @param readRetentionMs and how long, from when they were planned, reads see the version that they are pinned to
  */
final case class StoreSettings(
    isolationLevel: IsolationLevel,
    maxUncommittedBytes: Option[Long],
    localDir: Option[String],
    localDirMaxBytes: Option[Long],
    localDirMaxAgeMs: Long,
    readRetentionVersions: Int,
    readRetentionMs: Long,
    checksOffsets: Boolean
)

object StoreSettings {

  /** Only keys with this prefix reach a state store provider. */
  val Prefix: String = "spark.sql.streaming.stateStore.statemark."

  private val MinAutoBytes = 64L * 1024 * 1024

  private val Level = Setting(
    "isolationLevel",
    SettingUnit.Level,
    Some("READ_COMMITTED"),
    "READ_COMMITTED or READ_UNCOMMITTED, in either case",
    "what a live read sees that does not say otherwise"
  )(IsolationLevel.of)

  /** Its value depends on the heap, which the parser's result is asked with. */
  private val UncommittedBytes = Setting[Long => Option[Long]](
    "maxUncommittedBytes",
    SettingUnit.Bytes,
    Some("auto"),
    "a size above 0 such as 64m or 268435456, -1 for no limit, or auto",
    "heap that staged writes and prepared versions of all stores of an executor may take together"
  ) { value =>
    value.toLowerCase(Locale.ROOT) match {
      case "auto" => heapBytes => Some(math.max(heapBytes / 10, MinAutoBytes))
      case "-1" => _ => None
      case _ =>
        val bytes = size(value)
        _ => Some(bytes)
    }
  }

  val LocalDir: Setting[String] = Setting(
    "localDir",
    SettingUnit.Path,
    None,
    "an absolute path, or file: and an absolute path",
    "where stores live on each executor, also across restarts"
  )(directory)

  val LocalDirMaxBytes: Setting[Long] = Setting(
    "localDirMaxBytes",
    SettingUnit.Bytes,
    None,
    "a size above 0 such as 50g or 53687091200",
    "how much the stores in localDir that no process uses may take"
  )(size)

  val LocalDirMaxAge: Setting[Long] = Setting(
    "localDirMaxAge",
    SettingUnit.Time,
    Some("7d"),
    "a time above 0 such as 7d or 12h",
    "how long a store in localDir stays that no process uses"
  )(duration)

  private val ReadRetentionVersions = Setting(
    "readRetentionVersions",
    SettingUnit.Count,
    Some("3"),
    s"a number from 0 to ${ReadRetention.MaxVersions}",
    "how many versions that a store has left live reads may still see"
  )(versions)

  private val ReadRetentionTime = Setting(
    "readRetentionTime",
    SettingUnit.Time,
    Some("30s"),
    "a time above 0 such as 30s or 5m",
    "how long a live read may see the version that it was planned for"
  )(duration)

  private val CheckOffsets = Setting(
    "checkOffsets",
    SettingUnit.Word,
    Some("refuse"),
    "refuse or warn",
    "what a task does whose store holds other source offsets than its batch begins at"
  )(value =>
    value.toLowerCase(Locale.ROOT) match {
      case "refuse" => true
      case "warn" => false
      case _ => throw new IllegalArgumentException(value)
    }
  )

  /** It concerns no store: the sink to Kafka reads it, in whatever session. */
  val KafkaWarnings: Setting[Boolean] = Setting(
    "kafka.warnings",
    SettingUnit.Truth,
    Some("true"),
    "true or false",
    "whether a query is warned that Spark's own Kafka sink, or a read without read_committed, may give rows twice"
  )(_.toLowerCase(Locale.ROOT).toBoolean)

  /** It concerns no store: it decides on which provider a query of the session begins. */
  val AllowRealTime: Setting[Boolean] = Setting(
    "allowRealTime",
    SettingUnit.Truth,
    Some("false"),
    "true or false",
    "whether providerClass is set for each micro-batch query as it starts, so that real-time queries start, too"
  )(_.toLowerCase(Locale.ROOT).toBoolean)

  /** It concerns no store: the plugin compares it with the version of the driver's jar as the application starts. */
  val PackageVersion: Setting[String] = Setting(
    "packageVersion",
    SettingUnit.Version,
    None,
    "a version such as 0.1.0",
    "version of the jar that the driver must have: that of the Python package that set the session up"
  )(version)

  /** The table of all settings. */
  val all: Seq[Setting[_]] = Seq(
    Level,
    UncommittedBytes,
    LocalDir,
    LocalDirMaxBytes,
    LocalDirMaxAge,
    ReadRetentionVersions,
    ReadRetentionTime,
    CheckOffsets,
    KafkaWarnings,
    AllowRealTime,
    PackageVersion
  )

  /** @param confs settings of the session; others than Statemark's are passed over
    * @param heapBytes the most heap that the JVM takes
    * @throws InvalidInputException for an unknown key under the prefix, a setting that is there twice, or a bad
    *   value
    */
  def from(confs: Map[String, String], heapBytes: Long): StoreSettings = {
    val values = own(confs)
    def required[A](setting: Setting[A]): A = setting.in(values).getOrElse(
      throw new IllegalStateException(s"${setting.key} has no default")
    )
    // No store reads these, and a bad value is found before the first batch all the same.
    required(KafkaWarnings): Unit
    required(AllowRealTime): Unit
    PackageVersion.in(values): Unit
    StoreSettings(
      isolationLevel = required(Level),
      maxUncommittedBytes = required(UncommittedBytes)(heapBytes),
      localDir = LocalDir.in(values),
      localDirMaxBytes = LocalDirMaxBytes.in(values),
      localDirMaxAgeMs = required(LocalDirMaxAge),
      readRetentionVersions = required(ReadRetentionVersions),
      readRetentionMs = required(ReadRetentionTime),
      checksOffsets = required(CheckOffsets)
    )
  }

  /** Whether queries are warned of output to Kafka, and input from it, that is not exactly-once. Other settings do not
    * count: the session may have another provider.
    *
    * @throws InvalidInputException where the value is bad
    */
  def warnsOfKafka(confs: Map[String, String]): Boolean = isTrue(KafkaWarnings, confs)

  /** Tells whether Statemark sets `providerClass` for each micro-batch query of a session as the query starts. Other
    * settings do not count: the session may have another provider.
    *
    * @param confs the settings of the session
    * @throws InvalidInputException where the value is bad
    */
  def allowsRealTime(confs: Map[String, String]): Boolean = isTrue(AllowRealTime, confs)

  /** Returns the keys by which a session has a setting: its name counts in either case.
    *
    * @param confs the settings of the session
    */
  def keysOf(setting: Setting[_], confs: Map[String, String]): Iterable[String] =
    confs.keys.filter(key => isOwn(key) && setting.isNamed(key.drop(Prefix.length)))

  /** Returns the version of the Python package that set the application up; None where none did. Other settings do not
    * count: the session may have another provider.
    *
    * @param confs the settings of the application
    * @throws InvalidInputException where the value is bad
    */
  def packageVersion(confs: Map[String, String]): Option[String] = alone(PackageVersion, confs)

  private def isTrue(setting: Setting[Boolean], confs: Map[String, String]): Boolean =
    alone(setting, confs).contains(true)

  private def alone[A](setting: Setting[A], confs: Map[String, String]): Option[A] =
    setting.in(confs.collect {
      case (key, value) if isOwn(key) => key.drop(Prefix.length) -> value
    })

  /** Settings of Statemark by their names, all of which are known. */
  private def own(confs: Map[String, String]): Map[String, String] = {
    val (known, unknown) = confs.filter(c => isOwn(c._1)).partition {
      // Spark hands settings to a store by the prefix as it is written here, in this case alone.
      case (key, _) => key.startsWith(Prefix) && all.exists(_.isNamed(key.drop(Prefix.length)))
    }
    unknown.toSeq.sorted.headOption.foreach { case (key, value) =>
      val remedy = NearNames.of(key.drop(Prefix.length), all.map(_.name)) match {
        case Some(meant) => s"Did you mean $Prefix$meant?"
        case None =>
          s"Remove it, or use ${all.map(_.name).mkString(" or ")}, each after $Prefix"
      }
      throw new InvalidInputException(
        s"Unknown setting $key (its value is '$value').",
        remedy = Some(remedy)
      )
    }
    all.foreach { setting =>
      val keys = known.keys.filter(key => setting.isNamed(key.drop(Prefix.length))).toSeq.sorted
      if (keys.length > 1) throw new InvalidInputException(
        s"${setting.key} is set ${keys.length} times, as ${keys.mkString(" and as ")}; leave one of them."
      )
    }
    known.map { case (key, value) => key.drop(Prefix.length) -> value }
  }

  private def isOwn(key: String): Boolean =
    key.regionMatches( /* ignoreCase = */ true, 0, Prefix, 0, Prefix.length)

  private val BinaryUnit = "(?<=[0-9])([kmgtp])ib$".r

  // ---- parsers: what they throw, the setting makes its own error of

  /** Parses a size; `kib` and the like are units from Spark 4.2 on, and mean here on each line what they mean there. */
  private def size(value: String): Long = {
    val text = value.trim.toLowerCase(Locale.ROOT)
    positive(value, JavaUtils.byteStringAsBytes(BinaryUnit.replaceFirstIn(text, "$1b")))
  }

  private def duration(value: String): Long =
    positive(value, JavaUtils.timeStringAs(value, TimeUnit.MILLISECONDS))

  private def positive(value: String, n: Long): Long =
    if (n > 0) n else throw new NumberFormatException(value)

  private def versions(value: String): Int = {
    val isNumber = value.nonEmpty && value.forall(c => c >= '0' && c <= '9')
    if (!isNumber || value.toInt > ReadRetention.MaxVersions) throw new NumberFormatException(value)
    value.toInt
  }

  private val VersionText = "[0-9]+\\.[0-9]+\\.[0-9]+[0-9A-Za-z.+-]*".r

  private def version(value: String): String = value match {
    case VersionText() => value
    case _ => throw new IllegalArgumentException(value)
  }

  private def directory(value: String): String = {
    val path = if (value.startsWith("file:")) pathOf(new java.net.URI(value)) else value
    if (new java.io.File(path).isAbsolute) path else throw new IllegalArgumentException(value)
  }

  /** The path of a URI; one that names another host is of no disk here. */
  private def pathOf(uri: java.net.URI): String =
    if (Option(uri.getAuthority).forall(_ == "localhost")) uri.getPath
    else throw new IllegalArgumentException(uri.toString)
}
