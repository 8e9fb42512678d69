package statemark.spark.live

import java.io.IOException
import java.nio.channels.ClosedByInterruptException
import java.util.concurrent.TimeoutException
import java.util.UUID
import org.apache.spark.SparkException
import org.scalatest.funsuite.AnyFunSuite
import statemark.engine.VersionId
import statemark.spark.checkpoint.StoreAddress
import statemark.spark.errors.{StoreMovedException, StoreUnreachableException}
import statemark.spark.reads.{ReadReply, ReadRequest, ReadService, StoreRequest}

/** What becomes of a read whose executor does not answer. */
class ReadRouterSuite extends AnyFunSuite {
  private val address = StoreAddress(UUID.randomUUID(), 0, 3, "default")
  private val described = ReadRequest.Describe(address, VersionId(1, None), "READ_COMMITTED")

  private def answerTo(failure: Throwable): ReadReply =
    ReadRouter.answerOf("7", address)(throw new SparkException("awaitResult", failure))

  test("of an executor that is gone the store is nowhere") {
    assert(answerTo(new IOException("Connection from /10.0.0.7 closed")) == ReadReply.NotHere)
  }

  test("an executor's own failure is an answer, and is no sign that it is gone") {
    def answerOf(answer: => Array[Byte]) = ReadRouter.answerOf("7", address)(answer) match {
      case ReadReply.Failed(e: StoreUnreachableException) => e.getMessage
      case other => fail(s"$other")
    }
    // Both are failures of a stream, as is that of a lost connection.
    val garbled = Array.fill[Byte](10)(1)
    assert(answerOf(garbled).contains("invalid stream header"))
    assert(answerOf(ReadService.answer(garbled)).contains("invalid stream header"))
    val unsendable = new IllegalStateException("cannot be sent") { val thread = new Thread }
    val sent = ReadService.served[StoreRequest](ReadService.encode(described)) { _ =>
      ReadReply.Failed(unsendable)
    }
    assert(answerOf(sent).contains("NotSerializableException"))
    val moved = new StoreMovedException(address.toString)
    val named = ReadRouter.answerOf("7", address)(ReadService.encode(ReadReply.Failed(moved)))
    named match {
      case ReadReply.Failed(e: StoreMovedException) => assert(e.getMessage == moved.getMessage)
      case other => fail(s"$other")
    }
  }

  test("a driver that does not answer an executor, or fails, is told by name") {
    for (failure <- Seq(new TimeoutException("no reply"), new IOException("Connection closed")))
      ReadService.named(address, "The driver")(throw failure) match {
        case ReadReply.Failed(e: StoreUnreachableException) =>
          assert(e.getMessage.startsWith("The driver did not answer") && (e.getCause eq failure))
        case other => fail(s"$other")
      }
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
