package statemark.spark

import java.io.{ByteArrayInputStream, ByteArrayOutputStream, ObjectInputStream, ObjectOutputStream}
import java.nio.channels.ClosedByInterruptException
import org.apache.spark.SparkException
import org.apache.spark.sql.execution.streaming.state.StatemarkBridge
import org.scalatest.funsuite.AnyFunSuite
import statemark.common._
import statemark.spark.errors._

/** Failures by kind: each class has one, each kind is listed, and wrappers do not hide it. */
class FailureKindsSuite extends AnyFunSuite {
  private val cause = new IllegalStateException("broken")

  private val exceptions: Seq[StatemarkException] = Seq(
    new InvalidInputException("p"),
    new StoreUnusableException("p"),
    new LocalRejectedException(RejectReason.Damaged, "p"),
    new ScratchFullException("p", Some(cause)),
    new DiskUnwritableException("p.", "r.", cause),
    new ViewClosedException("p"),
    new IllegalCallException("p"),
    new StoreMovedException("store"),
    new StoreUnreachableException("store", "Executor 7", cause),
    new LookupTimeoutException(2, 1000),
    new VersionGoneException("store", 1, 2),
    new PositionBoundException("Query q", None, None, 0),
    new OffsetsDifferException("store", 1, Nil, OffsetsDifferException.OfTask),
    new StaleTaskException("store", 1, 2),
    new CheckpointDamagedException("p.", "r.", Some(cause))
  )

  test("every kind is listed once, and has one class of exceptions by its name") {
    def declared(kinds: Class[_]) =
      kinds.getDeclaredClasses.map(_.getSimpleName.stripSuffix("$")).toSet
    val all = (CoreKind.all ++ StoreKind.all).map(_.name)
    assert(all.distinct == all)
    assert(all.toSet == declared(classOf[CoreKind]) ++ declared(classOf[StoreKind]))
    assert(exceptions.map(_.getClass.getSimpleName) == exceptions.map(e =>
      s"${e.kind.name}Exception"
    ))
    val ofJavasOwn = Set[FailureKind](CoreKind.CallInterrupted, StoreKind.LiveRead).map(_.name)
    assert(all.toSet == exceptions.map(_.kind.name).toSet ++ ofJavasOwn)
    assert(FailureKinds.all.size == all.size)
  }

  test(
    "the end of an application is told from other failures of a call, by Spark's own exception"
  ) {
    val ofSpark = Class.forName("org.apache.spark.rpc.RpcEnvStoppedException")
      .getDeclaredConstructor().newInstance().asInstanceOf[Throwable]
    assert(StatemarkBridge.isEnding(new SparkException("Exception thrown in awaitResult", ofSpark)))
    assert(!StatemarkBridge.isEnding(new SparkException("Exception thrown in awaitResult", cause)))
  }

  test("a kind is found behind a lookup, an exception of Spark's, and a copy from another JVM") {
    exceptions.foreach { e =>
      val wrapped = new LookupException(new SparkException("a task failed", copied(e)))
      assert(FailureKinds.find(wrapped).contains(e.kind))
      assert(FailureKinds.nameOf(copied(wrapped)) == e.kind.name)
    }
    val closed = new ClosedByInterruptException
    val ends =
      Seq(
        new InterruptedException,
        closed,
        new CheckpointDamagedException("p.", "r.", Some(closed))
      )
    ends.foreach { end =>
      assert(FailureKinds.nameOf(new SparkException("a task failed", end)) == "CallInterrupted")
    }
    assert(FailureKinds.nameOf(new LookupException(cause)) == "LiveRead")
    assert(FailureKinds.nameOf(cause) == "")
  }

  test(
    "a retry helps where the store has changed its place or its version, and not where input is wrong"
  ) {
    val retryable = exceptions.filter(_.isRetryable).map(_.kind.name).toSet
    assert(retryable == Set(
      "StoreUnusable",
      "LocalRejected",
      "ViewClosed",
      "StoreMoved",
      "StoreUnreachable",
      "LookupTimeout",
      "VersionGone",
      "PositionBound"
    ))
  }

  private def copied[A <: Throwable](failure: A): A = {
    val bytes = new ByteArrayOutputStream
    val out = new ObjectOutputStream(bytes)
    out.writeObject(failure)
    out.close()
    // What reads a failure of an executor's has the plugin on its class path.
    val in = new ObjectInputStream(new ByteArrayInputStream(bytes.toByteArray)) {
      override def resolveClass(description: java.io.ObjectStreamClass): Class[_] =
        Class.forName(description.getName, false, getClass.getClassLoader)
    }
    in.readObject().asInstanceOf[A]
  }
}
