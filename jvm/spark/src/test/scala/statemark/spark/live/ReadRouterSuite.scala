package statemark.spark.live

import java.io.IOException
import java.nio.channels.ClosedByInterruptException
import java.util.concurrent.TimeoutException
import java.util.UUID
import org.apache.spark.SparkException
import org.scalatest.funsuite.AnyFunSuite
import statemark.spark.checkpoint.StoreAddress
import statemark.spark.errors.StoreUnreachableException
import statemark.spark.reads.ReadReply

/** What becomes of a read whose executor does not answer. */
class ReadRouterSuite extends AnyFunSuite {
  private val address = StoreAddress(UUID.randomUUID(), 0, 3, "default")

  private def answerTo(failure: Throwable): ReadReply =
    ReadRouter.answerOf("7", address)(throw new SparkException("awaitResult", failure))

  test("of an executor that is gone the store is nowhere") {
    assert(answerTo(new IOException("Connection from /10.0.0.7 closed")) == ReadReply.NotHere)
  }

  test("a reader that is interrupted says nothing about the executor") {
    for (stop <- Seq(new InterruptedException, new ClosedByInterruptException))
      intercept[InterruptedException](answerTo(stop))
  }

  test("an executor that is slow, or fails, still has the store: the read fails by name") {
    val failures =
      Seq(new TimeoutException("no reply in 120 seconds"), new IllegalStateException("broken"))
    for (failure <- failures) answerTo(failure) match {
      case ReadReply.Failed(e: StoreUnreachableException) =>
        assert(e.getMessage.contains("Executor 7") && e.getMessage.contains(address.toString))
        assert(e.getCause.getCause eq failure)
      case other => fail(s"$other")
    }
  }
}
