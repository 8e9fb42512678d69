package statemark.kafka

import java.util.concurrent.{CountDownLatch, TimeUnit}
import org.apache.kafka.clients.producer.{MockProducer, ProducerRecord, RecordMetadata}
import org.apache.kafka.common.TopicPartition
import org.apache.kafka.common.errors._
import org.scalatest.funsuite.AnyFunSuite
import scala.jdk.CollectionConverters._
import statemark.kafka.clients.{KafkaFailures, Timer}
import statemark.kafka.conf.{
  SinkException,
  SinkIdentity,
  SinkObserver,
  SinkPhase,
  SinkSettings,
  SinkTransactionalId
}
import statemark.kafka.executor.{CommitAnswer, Lease, TransactionLine, TransactionWriter}
import statemark.kafka.rows.{AttemptId, AttemptRows, TransactionName}
import statemark.kafka.sim.{ManualClock, MockClients, NoTimer}

/** One line, on producers that are mocks: what an executor does with its transactions, step by step. */
class TransactionLineSuite extends AnyFunSuite {
  private val lease = Lease(1, 0)
  private val answers = (SinkPhase.TokenSent, SinkPhase.TransactionCommitted)
  private val token = Seq(new ProducerRecord("commits", 3, "k".getBytes, "t".getBytes))

  private class Fixture(
      autoComplete: Boolean = true,
      timer: Timer = NoTimer,
      flushing: () => Unit = () => (),
      aborting: () => Unit = () => (),
      patienceMs: Long = 5000
  ) {
    val clock = new ManualClock
    private val clients = new MockClients(autoComplete, flushing, aborting)
    def made: Seq[MockProducer[Array[Byte], Array[Byte]]] = clients.made
    val settings: SinkSettings = SinkSettings.of(Map("kafka.bootstrap.servers" -> "127.0.0.1:1"))
    val line = new TransactionLine(
      SinkTransactionalId.executor("p", SinkIdentity("q", "s"), "1"),
      settings,
      clients,
      TransactionLine.Limits(1000, 5000, patienceMs),
      TransactionLine.Seams(clock, timer, SinkObserver.none)
    )
    def mock: MockProducer[Array[Byte], Array[Byte]] = made.last
    def send(rows: AttemptRows, at: Lease = lease): Unit =
      line.send(rows, at, opens = true, new ProducerRecord("t", 0, "k".getBytes, "v".getBytes))
    def commit(number: Long, attempts: AttemptRows*): CommitAnswer =
      line.commit(number, attempts.map(_.attempt).toSet, token, answers)
    def names(rows: AttemptRows): Set[Long] = rows.message("e").rows.keySet.map(_.number)
  }

  private def rows(attempt: Long) = new AttemptRows(AttemptId(0, attempt.toInt, attempt))

  test("attempts share a transaction, and a token goes with it") {
    val f = new Fixture
    val (a, b) = (rows(1), rows(2))
    Seq(a, b, a).foreach(f.send(_))
    assert(f.names(a) == Set(1) && f.names(b) == Set(1))
    assert(f.commit(1, a, b) == CommitAnswer.Committed)
    assert(f.mock.history.asScala.map(_.topic) == Seq("t", "t", "t", "commits"))
    assert(f.commit(1, a, b) == CommitAnswer.Committed, "an order that comes twice")
    assert(f.mock.commitCount == 1)
  }

  test("a transaction with rows of an attempt that is not on the list is aborted") {
    val f = new Fixture
    val (a, surplus) = (rows(1), rows(2))
    Seq(a, surplus).foreach(f.send(_))
    assert(f.commit(1, a) == CommitAnswer.Aborted)
    assert(f.mock.history.isEmpty && f.mock.transactionAborted)
  }

  test("a transaction that lacks an attempt of the list is aborted") {
    val f = new Fixture
    val (a, elsewhere) = (rows(1), rows(2))
    f.send(a)
    assert(f.commit(1, a, elsewhere) == CommitAnswer.Aborted)
  }

  test("an order for a transaction that nobody knows changes nothing") {
    val f = new Fixture
    val a = rows(1)
    f.send(a)
    assert(f.commit(2, a) == CommitAnswer.Unknown)
    assert(f.commit(1, a) == CommitAnswer.Committed)
  }

  test("an attempt that is aborted ends its transaction; others go on in the next") {
    val f = new Fixture
    val (failed, other) = (rows(1), rows(2))
    f.send(failed)
    f.send(other)
    f.line.abort(failed.attempt)
    f.send(other)
    assert(f.names(other) == Set(1, 2))
    assert(f.commit(1, other) == CommitAnswer.Aborted)
    assert(f.commit(2, other) == CommitAnswer.Committed)
    assert(f.made.size == 1)
  }

  test("an attempt without rows in the open transaction ends nothing") {
    val f = new Fixture
    val a = rows(1)
    f.send(a)
    f.line.abort(rows(2).attempt)
    assert(f.commit(1, a) == CommitAnswer.Committed)
  }

  test("K9: at half of its timeout a transaction is ended, and its rows keep their offsets") {
    var due = Option.empty[() => Unit]
    val timer = new Timer {
      override def after(ms: Long)(body: => Unit): Timer.Cancel = {
        if (ms == 1000) due = Some(() => body)
        () => ()
      }
    }
    val f = new Fixture(timer = timer)
    val a = rows(1)
    f.send(a)
    due.get.apply()
    assert(f.mock.transactionAborted)
    f.send(a)
    f.clock.advanceMs(1001)
    f.send(a)
    assert(f.names(a) == Set(1, 2, 3))
    assert(f.commit(2, a) == CommitAnswer.Aborted)
    assert(f.commit(3, a) == CommitAnswer.Committed)
  }

  test("K5: where the commit does not answer, neither does the line") {
    val f = new Fixture
    val a = rows(1)
    f.send(a)
    f.mock.commitTransactionException = new TimeoutException("no answer")
    assert(f.commit(1, a) == CommitAnswer.Unknown)
    assert(f.mock.closed)
    assert(f.commit(1, a) == CommitAnswer.Unknown)
  }

  test("K5: a commit that failed is aborted only where the abort returns") {
    val f = new Fixture
    val a = rows(1)
    f.send(a)
    f.mock.commitTransactionException = new org.apache.kafka.common.KafkaException("a row failed")
    assert(f.commit(1, a) == CommitAnswer.Aborted)
    f.mock.commitTransactionException = new org.apache.kafka.common.KafkaException("again")
    f.mock.abortTransactionException = new TimeoutException("no answer")
    f.send(a)
    assert(f.commit(2, a) == CommitAnswer.Unknown)
  }

  test("a producer that was fenced is opened again: no later run is known") {
    val f = new Fixture
    val a = rows(1)
    f.send(a)
    f.mock.fenceProducer()
    assert(f.commit(1, a) == CommitAnswer.Unknown)
    val b = rows(2)
    f.send(b)
    assert(f.made.size == 2 && f.names(b) == Set(2), "numbers do not begin again")
  }

  test("a producer that failed otherwise is opened again") {
    val f = new Fixture
    val a = rows(1)
    f.send(a)
    f.mock.commitTransactionException = new TimeoutException("no answer")
    assert(f.commit(1, a) == CommitAnswer.Unknown)
    val b = rows(2)
    f.send(b)
    assert(f.made.size == 2 && f.commit(2, b) == CommitAnswer.Committed)
  }

  test("a line that is closed takes no rows, of whatever lease") {
    val f = new Fixture
    f.send(rows(1))
    f.line.close()
    assert(f.mock.transactionAborted && f.mock.closed)
    val e = intercept[SinkException.IllegalCall](f.send(rows(2), Lease(7, 0)))
    assert(e.getMessage.contains("its run has ended"))
    intercept[SinkException.IllegalCall](f.line.open())
    assert(f.made.size == 1)
  }

  test("a later run ends what an earlier one left, which then is refused") {
    val f = new Fixture
    val old = rows(1)
    f.send(old)
    val young = rows(2)
    f.send(young, Lease(2, 0))
    assert(f.names(young) == Set(2))
    intercept[SinkException.Superseded](f.send(old))
    assert(f.commit(2, young) == CommitAnswer.Committed)
  }

  test("a row that fails is the cause that all attempts of the transaction report") {
    val f = new Fixture(autoComplete = false)
    val (a, b) = (rows(1), rows(2))
    f.send(a)
    f.send(b)
    f.mock.errorNext(new RecordTooLargeException("the row"))
    f.mock.errorNext(new org.apache.kafka.common.KafkaException("the producer has failed"))
    for (of <- Seq(a, b))
      assert(of.failure.map(_.getCause).exists(_.isInstanceOf[RecordTooLargeException]))
    intercept[IllegalStateException] {
      val c = rows(3)
      f.send(c)
      c.message("e")
    }
  }

  test("a row without an offset fails its attempt") {
    val a = rows(1)
    a.sending()
    val nowhere = new RecordMetadata(new TopicPartition("t", 0), -1, 0, -1, 1, 1)
    a.acknowledged(TransactionName("id", 1), nowhere, None, 0)
    assert(a.failure.isDefined)
  }

  private def writerOf(
      f: Fixture,
      explain: (Throwable, Map[String, String]) => SinkException
  ) = new TransactionWriter(
    AttemptId(0, 0, 1),
    "e",
    f.line,
    lease,
    opens = true,
    SinkObserver.none,
    explain,
    refusedRows = None
  )

  test("a writer that has ended throws, and its abort may come twice") {
    val f = new Fixture
    val writer = writerOf(f, KafkaFailures.ofAttempt(_, "A write", _))
    val record = new ProducerRecord("t", 0, "k".getBytes, "v".getBytes)
    writer.write(record)
    assert(writer.commit().count == 1)
    intercept[SinkException.IllegalCall](writer.write(record))
    writer.abort()
    writer.abort()
    intercept[SinkException.IllegalCall](writer.commit())
    assert(f.mock.transactionAborted)
  }

  test("a row that the client does not take as one before it was refused names the one before") {
    lazy val f: Fixture = new Fixture(
      autoComplete = false,
      flushing = () => f.mock.errorNext(new RecordTooLargeException("the row")): Unit
    )
    val writer = writerOf(f, f.line.explained)
    writer.write(new ProducerRecord("t", 0, "first".getBytes, "v".getBytes))
    // The client is in this state before it tells of the row.
    f.mock.sendException = new org.apache.kafka.common.KafkaException(
      "Cannot execute transactional method because we are in an error state",
      new RecordTooLargeException("the row")
    )
    val next = new ProducerRecord("u", 0, "next".getBytes, "value".getBytes)
    for (_ <- 1 to 2) {
      val e = intercept[SinkException.UnsendableRow](writer.write(next))
      val row = Map("topic" -> "t", "key" -> "first", "bytes" -> "6", "partition" -> "0")
      assert(e.values == row + ("task" -> "0"))
    }
  }

  test("a killed task's thread is interrupted, and its transaction is ended all the same") {
    val f = new Fixture
    val a = rows(1)
    f.send(a)
    Thread.currentThread.interrupt()
    f.line.abort(a.attempt)
    assert(Thread.interrupted())
    assert(f.mock.transactionAborted)
  }

  test("a driver's transaction that fails leaves no producer behind") {
    val f = new Fixture
    f.line.open()
    f.mock.commitTransactionException = new TimeoutException("no answer")
    intercept[TimeoutException](f.line.transaction(_.send(token.head)))
    val e = intercept[SinkException](f.line.transaction(_.send(token.head)))
    assert(e.getCause.isInstanceOf[TimeoutException])
    f.line.open()
    f.line.transaction(_.send(token.head))
    assert(f.mock.commitCount == 1)
  }

  test("a driver that is interrupted in its transaction ends it all the same") {
    val f = new Fixture
    f.line.open()
    // Kafka's exception interrupts the thread again.
    intercept[InterruptException](f.line.transaction { _ =>
      throw new InterruptException(new InterruptedException)
    })
    assert(Thread.interrupted())
    assert(f.mock.transactionAborted)
  }

  test("an interrupt that comes during a call which must end is not lost") {
    var tries = 0
    val result = KafkaFailures.uninterrupted {
      tries += 1
      if (tries == 1) throw new InterruptException(new InterruptedException)
      tries
    }
    assert(result == 2 && Thread.interrupted())
  }

  test("tasks do not open the driver's producer") {
    val f = new Fixture
    val record = new ProducerRecord("t", 0, "k".getBytes, "v".getBytes)
    intercept[SinkException.IllegalCall](f.line.send(rows(1), lease, opens = false, record))
    assert(f.made.isEmpty)
  }

  test("a producer that nobody uses is closed, and opened when it is needed") {
    var due = Option.empty[() => Unit]
    val timer = new Timer {
      override def after(ms: Long)(body: => Unit): Timer.Cancel = {
        if (ms == 5000) due = Some(() => body)
        () => ()
      }
    }
    val f = new Fixture(timer = timer)
    val a = rows(1)
    f.send(a)
    assert(f.commit(1, a) == CommitAnswer.Committed)
    val first = due.get
    f.send(rows(2))
    first()
    assert(!f.mock.closed, "it was used since")
    f.line.abort(Long.MaxValue)
    due.get.apply()
    assert(f.mock.closed)
    f.send(rows(3))
    assert(f.made.size == 2)
  }

  test("rows of a batch that is given up are not waited for, and those of others are") {
    var steps = Vector.empty[String]
    val f = new Fixture(flushing = () => steps :+= "rows", aborting = () => steps :+= "abort")
    val a = rows(1)
    f.send(a)
    f.line.abort(Long.MaxValue)
    assert(f.mock.transactionAborted && steps.head == "abort")
    steps = Vector.empty
    f.send(a)
    f.line.abort(a.attempt)
    assert(steps.head == "rows", "another attempt of the transaction may go on")
  }

  test("a batch is given up without a word of the brokers, and the abort goes on") {
    val answer = new CountDownLatch(1)
    @volatile var isAnswered = false
    val f = new Fixture(
      aborting = () => isAnswered = answer.await(60, TimeUnit.SECONDS),
      patienceMs = 1
    )
    f.send(rows(1))
    Thread.currentThread.interrupt()
    f.line.abort(Long.MaxValue)
    assert(Thread.interrupted(), "the query is being stopped")
    assert(!f.mock.transactionAborted)
    answer.countDown()
    f.line.close()
    assert(isAnswered && f.mock.transactionAborted)
  }
}
