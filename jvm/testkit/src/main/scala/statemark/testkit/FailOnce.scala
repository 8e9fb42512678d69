package statemark.testkit

import java.io.File
import java.util.{List => JList}
import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.atomic.{AtomicLong, AtomicReference}
import java.util.concurrent.locks.LockSupport

import scala.jdk.CollectionConverters._

import org.apache.hadoop.fs.Path
import org.apache.spark.{TaskContext, TaskKilledException}
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.functions.udf

/** The failure that [[FailOnce]] injects; nothing else throws it. */
class InjectedFailure(message: String) extends RuntimeException(message)

/** What became of an armed fault; a test asks so that it cannot pass without one.
  *
  * @param fired whether the task was failed
  * @param nanos `System.nanoTime` of the failure, comparable with [[FileEvent]]
  * @param seq position in the log of [[FileCounts]] at the failure
  * @param batchId micro-batch of the failed task, -1 before the failure
  * @param partition its partition, -1 before the failure
  * @param attempt its attempt number, from 0
  * @param rows rows that had passed in this attempt, the failing one included
  * @param committedPartition another partition that had committed this batch by then
  * @param problem why an armed fault could not fire; empty when it could
  */
final case class FailReport(
    fired: Boolean = false,
    nanos: Long = 0,
    seq: Long = 0,
    batchId: Long = -1,
    partition: Int = -1,
    attempt: Int = -1,
    rows: Long = 0,
    committedPartition: Int = -1,
    problem: String = ""
)

/** What the retry of a failed task did until its partition committed.
  *
  * @param toCommitMs time from the failure to that commit, in milliseconds; of an operator with several stores to
  *   the last one's
  * @param opened files opened meanwhile below the operator's state directory by anyone, relative to it, in order
  * @param openedElsewhere number of files opened meanwhile in other places that [[CountingFileSystem]] sees
  */
final case class Recovery(toCommitMs: Double, opened: JList[String], openedElsewhere: Int)

/** A SQL function without arguments that is always true, and once fails the task that calls it.
  *
  * Put it in a filter directly above a stateful operator: no shuffle stands between, so each row that it sees was
  * staged by an operator whose transaction is still open. It is registered as non-deterministic, which keeps Spark
  * from pushing it below the operator or evaluating it elsewhere.
  * {{{
  * spark._jvm.statemark.testkit.FailOnce.register(spark._jsparkSession, "fail_once")
  * deduplicated.where("fail_once()")
  * spark._jvm.statemark.testkit.FailOnce.arm(checkpoint + "/state/0", 1000, -1, -1, 60000)
  * }}}
  * The task that is failed is the first one that passes `minRows` rows; it then waits until another partition of the
  * batch has committed, and throws. The cluster needs at least two task slots, or nothing commits meanwhile, and
  * retries (`local[2,4]`), or the query ends.
  *
  * ''Thread:'' any; one plan per process at a time.
  */
object FailOnce {

  private final case class Plan(
      stateDirectory: File,
      minRows: Long,
      batchId: Option[Long],
      partition: Option[Int],
      timeoutMs: Long,
      armedAtMs: Long
  ) {
    val rowsOfAttempt = new ConcurrentHashMap[Long, AtomicLong]()
    val owner = new AtomicReference[java.lang.Long]()

    def wants(batch: Long, task: TaskContext): Boolean =
      batchId.forall(_ == batch) && partition.forall(_ == task.partitionId())
  }

  private val pollNanos = 5000000L
  private val batchIdProperty = "streaming.sql.batchId"

  @volatile private var plan: Option[Plan] = None
  @volatile private var last: FailReport = FailReport()
  @volatile private var stateDirectory: File = _

  /** Registers the function in a session; `name` is how SQL calls it. */
  def register(session: SparkSession, name: String): Unit = {
    val _ = session.udf.register(name, udf(() => passRow()).asNondeterministic())
  }

  /** Arms the fault, in place of one armed before.
    *
    * @param stateDirectory the operator's directory in the checkpoint, `…/state/<operator>`; must be on a local disk
    * @param minRows rows to pass before the failure, > 0
    * @param batchId the micro-batch to fail; -1 for the first one in which a task passes that many
    * @param partition the partition to fail; -1 for whichever comes first
    * @param timeoutMs how long to wait for the other partition, > 0
    */
  def arm(
      stateDirectory: String,
      minRows: Long,
      batchId: Long,
      partition: Int,
      timeoutMs: Long
  ): Unit = {
    require(minRows > 0, s"minRows must be at least 1 but is $minRows")
    require(timeoutMs > 0, s"timeoutMs must be at least 1 but is $timeoutMs")
    last = FailReport()
    this.stateDirectory = new File(new Path(stateDirectory).toUri.getPath)
    plan = Some(
      Plan(
        this.stateDirectory,
        minRows,
        Option(batchId).filter(_ >= 0),
        Option(partition).filter(_ >= 0),
        timeoutMs,
        System.currentTimeMillis()
      )
    )
  }

  /** Takes the fault back; what happened so far stays in [[report]]. */
  def disarm(): Unit = plan = None

  def report(): FailReport = last

  /** Reads from the log of [[FileCounts]] what followed the failure; the checkpoint must be on the counting scheme.
    *
    * ''Throws:'' IllegalStateException when the fault did not fire or the partition has not committed since.
    */
  def recovery(): Recovery = {
    check(
      last.fired,
      s"the fault did not fire: ${if (last.problem.isEmpty) "never reached" else last.problem}"
    )
    val later = FileCounts.eventsSince("/", last.seq).asScala.toSeq
    val root = stateDirectory.getPath + "/"
    val commit = commitOf(later, s"$root${last.partition}/")
    val opens = later.filter(e => e.kind == FileEvent.Open.name && e.seq < commit.seq).map(_.path)
    val (inState, elsewhere) = opens.partition(_.startsWith(root))
    Recovery(
      (commit.nanos - last.nanos) / 1e6,
      inState.map(_.stripPrefix(root)).asJava,
      elsewhere.size
    )
  }

  /** The commit of the slowest store: a version becomes visible by renaming its file into place. */
  private def commitOf(events: Seq[FileEvent], partition: String): FileEvent = {
    val firsts = events
      .filter(e => e.kind == FileEvent.Rename.name && e.path.startsWith(partition))
      .filter(e => versionOf(new File(e.path)).contains(last.batchId + 1))
      .groupBy(e => new File(e.path).getParent)
      .values
      .map(_.head)
    check(
      firsts.nonEmpty,
      s"no commit of version ${last.batchId + 1} in $partition after the failure"
    )
    firsts.maxBy(_.seq)
  }

  private def check(fact: Boolean, problem: => String): Unit =
    if (!fact) throw new IllegalStateException(problem)

  private[testkit] def passRow(): Boolean = {
    for (p <- plan; task <- Option(TaskContext.get()); batch <- batchOf(task))
      if (p.wants(batch, task)) pass(p, batch, task)
    true
  }

  private def batchOf(task: TaskContext): Option[Long] =
    Option(task.getLocalProperty(batchIdProperty)).map(_.toLong)

  private def pass(p: Plan, batch: Long, task: TaskContext): Unit = {
    val rows = p.rowsOfAttempt
      .computeIfAbsent(task.taskAttemptId(), _ => new AtomicLong)
      .incrementAndGet()
    val mine = java.lang.Long.valueOf(task.taskAttemptId())
    if (rows >= p.minRows && p.owner.compareAndSet(null, mine)) {
      awaitOtherPartition(p, batch, task) match {
        case Some(other) => fail(p, batch, task, rows, other)
        case None => giveUp(p, batch, task)
      }
    }
  }

  private def fail(p: Plan, batch: Long, task: TaskContext, rows: Long, other: Int): Unit = {
    disarm()
    // First, as it waits for the commit that was seen to be in the log.
    val seq = FileCounts.mark()
    last = FailReport(
      fired = true,
      nanos = System.nanoTime(),
      seq = seq,
      batchId = batch,
      partition = task.partitionId(),
      attempt = task.attemptNumber(),
      rows = rows,
      committedPartition = other
    )
    throw new InjectedFailure(
      s"injected: batch $batch, partition ${task.partitionId()}, after $rows rows (at least ${p.minRows}), " +
        s"while partition $other has committed"
    )
  }

  private def giveUp(p: Plan, batch: Long, task: TaskContext): Unit = {
    disarm()
    val problem =
      s"the fault did not fire: partition ${task.partitionId()} of batch $batch waited ${p.timeoutMs} ms " +
        s"and no other partition committed version ${batch + 1} under ${p.stateDirectory}; " +
        "use at least two task slots and two shuffle partitions, and check the directory"
    last = FailReport(problem = problem)
    throw new IllegalStateException(problem)
  }

  private def awaitOtherPartition(p: Plan, batch: Long, task: TaskContext): Option[Int] = {
    val start = System.nanoTime()
    def inTime = System.nanoTime() - start < p.timeoutMs * 1000000L
    var other = committedPartition(p, batch + 1, task.partitionId())
    while (other.isEmpty && inTime) {
      if (task.isInterrupted()) {
        p.owner.set(null) // another attempt may still meet the plan
        throw new TaskKilledException("killed while it waited to fail")
      }
      LockSupport.parkNanos(pollNanos)
      other = committedPartition(p, batch + 1, task.partitionId())
    }
    other
  }

  private def committedPartition(p: Plan, version: Long, except: Int): Option[Int] =
    children(p.stateDirectory)
      .flatMap(d => d.getName.toIntOption.filter(_ != except).map(_ -> d))
      .collectFirst { case (id, d) if hasCommitted(d, version, p.armedAtMs) => id }

  /** Whether every store of a partition (a join has four) holds a file of this version written since the arming. */
  private def hasCommitted(partition: File, version: Long, sinceMs: Long): Boolean = {
    val named = children(partition).filter(d => d.isDirectory && isStore(d.getName))
    val stores = if (named.isEmpty) Seq(partition) else named
    stores.forall { store =>
      children(store).exists(f => versionOf(f).contains(version) && f.lastModified() >= sinceMs)
    }
  }

  // A store without a name has its files in the partition's directory, beside those of its snapshots and schema.
  private def isStore(directory: String): Boolean =
    !Set("SSTs", "logs")(directory) && !directory.startsWith("_") && !directory.startsWith(".")

  // Format v1 names a version 5.changelog, format v2 5_<id>.changelog.
  private val versionFile = """(\d+)(?:_[^.]+)?\.(?:changelog|zip|delta|snapshot)""".r

  private def versionOf(file: File): Option[Long] = file.getName match {
    case versionFile(version) => Some(version.toLong)
    case _ => None
  }

  private def children(directory: File): Seq[File] =
    Option(directory.listFiles()).fold(Seq.empty[File])(_.toSeq)
}
