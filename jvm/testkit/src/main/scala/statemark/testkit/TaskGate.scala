package statemark.testkit

import java.nio.file.{FileAlreadyExistsException, Files, Path, Paths}
import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.locks.LockSupport
import org.apache.spark.{TaskContext, TaskKilledException}
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.functions.udf

/** SQL functions by which a test meets tasks on executors of other processes, through files on a disk that all of
  * them share.
  *
  *   - `attempt()`: number of the attempt that evaluates it, from 0;
  *   - `stage_attempt()`: number of the attempt at its stage, from 0: attempts are counted anew in each;
  *   - `gate_in()`, `gate_out()`: always true. On its first row a task makes the file
  *     `seen/<in or out>-<batch>-<partition>-<attempt>-<pid>`. Where a file `hold/<in or out>-<batch>-<partition>-<attempt>`
  *     lies, it waits until that is gone, or Spark kills it.
  *
  * Below a streaming aggregation, with no shuffle between, a task at the gate has its store checked out and nothing
  * committed; above, its store has committed and the task has not ended. Non-deterministic as [[FailOnce]]'s
  * function, and for the same reason.
  */
object TaskGate {
  private val pollNanos = 5000000L
  private val batchIdProperty = "streaming.sql.batchId"
  private val passed: java.util.Set[String] = ConcurrentHashMap.newKeySet[String]()

  /** Registers them in a session.
    * @param directory with `seen` and `hold` in it
    */
  def register(session: SparkSession, directory: String): Unit = {
    val attempts = Seq[(String, TaskContext => Int)](
      "attempt" -> (_.attemptNumber()),
      "stage_attempt" -> (_.stageAttemptNumber())
    )
    for ((name, of) <- attempts)
      session.udf.register(name, udf(() => of(TaskContext.get())).asNondeterministic())
    for (gate <- Seq("in", "out"))
      session.udf.register(s"gate_$gate", udf(() => pass(directory, gate)).asNondeterministic())
  }

  private[testkit] def pass(directory: String, gate: String): Boolean = {
    for (task <- Option(TaskContext.get()); batch <- Option(task.getLocalProperty(batchIdProperty)))
      if (passed.add(s"$directory $gate ${task.taskAttemptId()}")) {
        val name = s"$gate-$batch-${task.partitionId()}-${task.attemptNumber()}"
        signal(Paths.get(directory, "seen", s"$name-${ProcessHandle.current().pid()}"))
        await(Paths.get(directory, "hold", name), task)
      }
    true
  }

  private def signal(file: Path): Unit =
    try Files.createFile(file): Unit
    catch {
      case _: FileAlreadyExistsException => ()
    } // a stage that is run again counts attempts anew

  private def await(hold: Path, task: TaskContext): Unit =
    while (Files.exists(hold)) {
      if (task.isInterrupted()) throw new TaskKilledException("killed at the gate")
      LockSupport.parkNanos(pollNanos)
    }
}
