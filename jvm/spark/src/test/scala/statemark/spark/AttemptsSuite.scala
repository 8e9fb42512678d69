package statemark.spark

import org.scalatest.BeforeAndAfterEach
import org.scalatest.funsuite.AnyFunSuite
import statemark.spark.cluster.{AttemptBegun, AttemptRegistry, WriterOf}
import statemark.spark.process.JvmState

/** The driver's count of attempts at a version. */
class AttemptsSuite extends AnyFunSuite with BeforeAndAfterEach {
  override protected def beforeEach(): Unit = JvmState.clear()

  private def begin(
      base: Long,
      executor: String,
      run: String = "run",
      store: String = "0-0-default"
  ) =
    AttemptRegistry.begun(AttemptBegun(run, store, base, executor)).map(_._1)

  private def writerOf(version: Long) =
    AttemptRegistry.writer(WriterOf("run", "0-0-default", version))

  test("the writer of a version is who began on the one before, as often as it began") {
    assert(begin(0, "a") == Right(None))
    assert(begin(0, "a") == Right(None))
    assert(begin(1, "a") == Right(Some("a")))
    assert(begin(1, "b") == Right(Some("a")))
    assert(writerOf(1) == Some("a") && writerOf(2) == None)
    assert(begin(2, "b") == Right(None))
  }

  test("an attempt is told of one that another executor has begun before") {
    def isShared(base: Long, executor: String): Boolean =
      AttemptRegistry.begun(AttemptBegun("run", "0-0-default", base, executor)).exists(_._2)
    assert(!isShared(0, "a") && !isShared(0, "a") && isShared(0, "b") && isShared(0, "a"))
    assert(!isShared(1, "b"))
  }

  test("who comes after the query went on is refused; runs and stores stand alone") {
    begin(4, "a"): Unit
    begin(5, "a"): Unit
    assert(begin(4, "b") == Left(5))
    assert(begin(5, "b") == Right(Some("a")))
    assert(begin(4, "b", run = "another") == Right(None))
    assert(begin(4, "b", store = "0-1-default") == Right(None))
  }

  test("only the last versions and runs are remembered") {
    for (version <- 0 to 10) begin(version, "a"): Unit
    assert(writerOf(10) == Some("a") && writerOf(9) == None)
    for (i <- 0 to 300) begin(0, "a", run = s"run-$i"): Unit
    assert(writerOf(10) == None)
  }
}
