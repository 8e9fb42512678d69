package statemark.spark

import java.io.IOException
import java.util.concurrent.{FutureTask, TimeUnit}
import org.apache.spark.{SparkException, SparkThrowable}
import org.scalatest.funsuite.AnyFunSuite
import statemark.common._
import statemark.spark.cluster.JarOnExecutors
import statemark.spark.errors._

/** What Spark's scheduler shows of a task's failure, which is the message of its outermost exception: store, reason and
  * remedy. Which failure of a query says what is tested in Python (tests/e2e/test_reasons.py).
  */
class StoreFailuresSuite extends AnyFunSuite with LocalStores {
  private val store = "operator 0, partition 1, store default in file:/c/state/0/1"
  private val cause = new IOException("the disk is gone")

  private def lines(failure: Throwable): Seq[String] =
    failure.getMessage.linesIterator.toSeq.map(_.trim)

  /** The condition, the store, the reason and the remedy. */
  private def told(failure: Throwable): (String, String, String, String) = {
    val all = lines(failure)
    assert(all.length == 4)
    (all.head, all(1), all(2), all(3))
  }

  private def conditionOf(failure: Throwable): String = failure match {
    case e: SparkThrowable => e.getCondition
    case e => fail(e)
  }

  test("every kind says reason and remedy, and keeps its kind") {
    val exceptions = Seq[StatemarkException](
      new InvalidInputException("p."),
      new InvalidInputException("p.", None, Some("Correct it.")),
      new StoreUnusableException("p."),
      new LocalRejectedException(RejectReason.Damaged, "p."),
      new ScratchFullException("p.", None),
      new DiskUnwritableException("p.", "r.", cause),
      new ViewClosedException("p."),
      new IllegalCallException("p."),
      new StoreMovedException("p"),
      new StoreUnreachableException("p", "Executor 7", cause),
      new LookupTimeoutException(2, 1000),
      new VersionGoneException("p", 1, 2),
      new PositionBoundException("Query q", None, None, 0),
      new OffsetsDifferException("store", 1, Nil, OffsetsDifferException.OfTask),
      new StaleTaskException("p", 1, 2),
      new CheckpointDamagedException("p.", "r.", Some(cause))
    )
    for (e <- exceptions) {
      val (reason, remedy) = e match {
        case e: StoreException => (e.problem, e.remedy)
        case e: CoreException => (e.problem, e.remedy)
        case e => fail(e)
      }
      for (
        (failure, condition) <- Seq(
          StoreFailures.loading(store, 3, e) -> "CANNOT_LOAD_STATE_STORE",
          StoreFailures.committing("handle", store, 3, e) -> "CANNOT_WRITE_STATE_STORE"
        )
      ) {
        assert(conditionOf(failure).startsWith(condition))
        val (first, ofStore, why, what) = told(failure)
        assert(first.startsWith(s"[$condition"))
        assert(ofStore.startsWith(s"store: $store") && ofStore.contains("version 3"))
        assert(why == s"reason: $reason" && what == s"remedy: $remedy")
        assert(FailureKinds.find(failure).contains(e.kind))
      }
    }
  }

  test("a failure that is not Statemark's says its causes") {
    val failure = StoreFailures.loading(store, 3, new IllegalStateException("no way", cause))
    val (_, _, why, what) = told(failure)
    assert(why.contains("no way") && why.endsWith(s"caused by $cause"))
    assert(what.contains("can be reached"))
    val memory = lines(StoreFailures.loading(store, 3, new OutOfMemoryError("heap")))
    assert(memory.exists(l => l.startsWith("reason: ") && l.contains("OutOfMemoryError: heap")))
    assert(memory.exists(_.startsWith("remedy: give the executor more memory")))
    val stopped = lines(StoreFailures.loading(store, 3, new InterruptedException))
    assert(stopped.contains("reason: the task was interrupted"))
  }

  test("snapshots that were passed over are named beside the file that was missing then") {
    val missing = new SparkException(
      "CANNOT_LOAD_STATE_STORE.CANNOT_READ_STREAMING_STATE_FILE",
      Map("fileToRead" -> "/c/1.changelog"),
      cause
    )
    missing.addSuppressed(new CheckpointDamagedException(
      "3.zip is bad.",
      "Bring 3.zip back.",
      None
    ))
    val failure = StoreFailures.loading(store, 4, missing)
    assert(conditionOf(failure) == missing.getCondition)
    assert((failure.getCause eq cause) && failure.getSuppressed.length == 1)
    assert(failure.getStackTrace.toSeq == missing.getStackTrace.toSeq)
    val (first, _, why, what) = told(failure)
    assert(first.contains("/c/1.changelog"))
    assert(why.contains("3.zip is bad.") && what.contains("Bring 3.zip back."))
    assert(what.contains("do not clear the checkpoint"))
    assert(FailureKinds.find(failure).contains(StoreKind.CheckpointDamaged))
  }

  test("a reason is told once") {
    val begun = StoreFailures.writingChangelog(store, 3, cause)
    assert(lines(begun).count(_.startsWith("reason: ")) == 1)
    assert(lines(begun).exists(l => l.startsWith("reason: ") && l.contains("the disk is gone")))
    val outer = StoreFailures.loading(store, 2, begun)
    assert(lines(outer).count(_.startsWith("reason: ")) == 1)
  }

  test("a store that its task does not give back") {
    val timeout = "spark.sql.streaming.stateStore.rocksdb.lockAcquireTimeoutMs" -> "10"
    val provider = open(Map(timeout))
    val held = provider.getStore(0)
    // Another thread asks: until 4.0 a task that writes opens the store that it reads once more.
    val asked = new FutureTask(() => intercept[SparkException](provider.getStore(0)))
    new Thread(asked).start()
    val refused = asked.get(1, TimeUnit.MINUTES)
    assert(refused.getCondition == "CANNOT_LOAD_STATE_STORE.UNRELEASED_THREAD_ERROR")
    assert(refused.getMessage.contains("remedy: look for a task that hangs"))
    assert(refused.getMessage.contains("lockAcquireTimeoutMs"))
    held.abort()
  }

  test("executors without the jar are known by what their tasks fail with") {
    def failed(said: String, inner: Throwable) = new SparkException(said, inner)
    val assigned = "cannot assign instance of java.lang.invoke.SerializedLambda to field f"
    Seq(
      failed(s"Job aborted due to stage failure: ClassCastException: $assigned", cause),
      failed("Job aborted", new ClassCastException(assigned)),
      failed("Job aborted", new ClassNotFoundException("statemark.spark.cluster.JarOnExecutors$"))
    ).foreach(e => assert(JarOnExecutors.lacksClass(e)))
    Seq(
      failed("Job 3 cancelled", cause),
      failed("Job aborted: java.lang.ClassNotFoundException: org.acme.Sink", cause)
    ).foreach(e => assert(!JarOnExecutors.lacksClass(e)))
    val reason = "Unable to create executor due to statemark.spark.StatemarkPlugin"
    assert(JarOnExecutors.lacksPlugin(reason))
    assert(!JarOnExecutors.lacksPlugin("Unable to create executor due to org.acme.Plugin"))
    assert(!JarOnExecutors.lacksPlugin("Command exited with code 1"))
  }
}
