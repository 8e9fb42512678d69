package statemark.kafka.compaction

import java.nio.file.Path

/** What is to be compacted, and how.
  * @param latenessMs by how much timestamps are older, at most, than the time at which producers write them; None where
  *   nobody knows
  * @param holdsCleaner whether `min.compaction.lag.ms` is raised for the time of the repair
  * @param scratch takes the table of keys; None for the machine's temporary directory
  * @param missing what becomes of records without the rule's header
  * @param changesRule whether the topic may have been repaired by another rule until now
  * @param by the user, as the commit topic names who has set a rule
  */
final case class CompactionSettings(
    topic: String,
    rule: VersionRule,
    latenessMs: Option[Long] = None,
    holdsCleaner: Boolean = false,
    scratch: Option[Path] = None,
    missing: MissingVersion = MissingVersion.Oldest,
    changesRule: Boolean = false,
    by: String = ""
)

/** What a repair did.
  * @param found when it began to write
  * @param appended records that it wrote
  * @param left keys that are wrong at its end: producers have put them wrong since, or it was told to stop
  * @param gone winners that the cleaner took before they could be copied; of these keys the best that was left is right
  * @param ends by partition, up to where the topic was put right: the winner of all records before lies behind each that
  *   loses against it, but for records that came later; None where it was told to stop before
  * @param putBackMs what `min.compaction.lag.ms` is set to again; None where it was not touched,
  *   or stays raised
  */
final case class RepairReport(
    found: TopicReport,
    appended: Long,
    left: Long,
    gone: Long,
    ends: Option[Map[Int, Long]],
    putBackMs: Option[Long]
)

/** Hears of a repair, or a dry run, that is under way. */
trait CompactionProgress {

  /** @param ahead records up to the end of the log, or less: of some only the offsets are left */
  def scanned(records: Long, ahead: Long): Unit

  /** @param left keys that are wrong still */
  def repaired(appended: Long, left: Long): Unit

  def said(line: String): Unit

  /** Whether to stop at the next place at which nothing is lost by it. */
  def isStopped: Boolean
}

object CompactionProgress {

  /** Nobody listens. */
  val none: CompactionProgress = new CompactionProgress {
    override def scanned(records: Long, ahead: Long): Unit = ()
    override def repaired(appended: Long, left: Long): Unit = ()
    override def said(line: String): Unit = ()
    override def isStopped: Boolean = false
  }
}
