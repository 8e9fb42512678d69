package statemark.spark.stress

import scala.util.Random

/** What happens in one step of a history.
  *
  * @param weight how often it comes, beside the others
  */
private[stress] sealed abstract class Action(val name: String, val weight: Int)

private[stress] object Action {
  case object Batch extends Action("a batch", 30)
  case object AbortedBatch extends Action("a batch that is aborted", 6)
  case object RepeatedBatch extends Action("a batch that is committed, and run again", 8)
  case object LeftIterators extends Action("iterators that are left open", 8)
  case object LargeIterators extends Action("iterators that are left open, and a full heap", 1)
  case object InterruptedTask extends Action("a task that is interrupted", 12)
  case object AbortBesideIterator extends Action("an abort beside an iterator", 5)
  case object Maintenance extends Action("maintenance", 12)
  case object Restart extends Action("a restart, the run before unloaded", 5)
  case object RestartBeside extends Action("a restart beside the run before", 7)
  case object OtherDisk extends Action("a restart with another local directory", 6)
  case object OtherName extends Action("a restart with another name of the directory", 5)
  case object KilledProcess extends Action("a restart on what a killed process left", 5)
  case object HeldHome extends Action("a restart beside a process that has a home", 4)
  case object RollBack extends Action("a rollback by hand", 8)
  case object Unload extends Action("an earlier run is unloaded", 8)
  case object ReadCommitted extends Action("a reader of a committed version", 8)
  case object ReadOpen extends Action("a reader of an open transaction", 6)
  case object ReadDropped extends Action("a reader of a version that is dropped", 6)
  case object EndReader extends Action("a reader that reads on later", 12)
  case object OtherFormat extends Action("a reader with the other format", 4)
  case object FreshReader extends Action("a reader without local state", 6)
  case object LookUp extends Action("lookups of sessions, beside a batch", 1)
  case object ChangedFormat extends Action("a query that starts with another format", 1)
  case object SparksVersions extends Action("versions of Spark's provider", 8)
  case object SparksDamage extends Action("versions of Spark's provider, a snapshot cut", 4)
  case object ShortJobs extends Action("jobs that end at once", 2)
  case object LongRows extends Action("appends to lists that are larger than the heap", 1)

  val all: Seq[Action] = Seq(
    Batch,
    AbortedBatch,
    RepeatedBatch,
    LeftIterators,
    LargeIterators,
    InterruptedTask,
    AbortBesideIterator,
    Maintenance,
    Restart,
    RestartBeside,
    OtherDisk,
    OtherName,
    KilledProcess,
    HeldHome,
    RollBack,
    Unload,
    ReadCommitted,
    ReadOpen,
    ReadDropped,
    EndReader,
    OtherFormat,
    FreshReader,
    LookUp,
    ChangedFormat,
    SparksVersions,
    SparksDamage,
    ShortJobs,
    LongRows
  )

  /** Actions by the names of their objects, separated by blanks or commas; all of them for no name. */
  def named(names: String): Seq[Action] = {
    val wanted = names.split("[ ,]+").filter(_.nonEmpty).toSet
    val unknown = wanted.diff(all.map(_.toString).toSet)
    if (unknown.nonEmpty)
      throw new IllegalArgumentException(
        s"no action is called ${unknown.mkString(", ")}; there are ${all.mkString(", ")}"
      )
    if (wanted.isEmpty) all else all.filter(action => wanted(action.toString))
  }

  def draw(random: Random, among: Seq[Action]): Action = {
    val ends = among.scanLeft(0)(_ + _.weight).tail
    val at = random.nextInt(ends.last)
    among(ends.indexWhere(at < _))
  }
}
