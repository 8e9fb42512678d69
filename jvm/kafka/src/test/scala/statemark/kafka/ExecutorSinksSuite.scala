package statemark.kafka

import org.apache.kafka.clients.producer.ProducerRecord
import org.scalatest.funsuite.AnyFunSuite
import statemark.kafka.clients.KafkaFailures
import statemark.kafka.conf.{SinkException, SinkIdentity, SinkObserver, SinkSettings}
import statemark.kafka.executor.{ExecutorSinks, WriterSpec}
import statemark.kafka.sim.{ManualClock, MockClients, NoTimer}

/** The sinks of an executor over several runs, on producers that are mocks. */
class ExecutorSinksSuite extends AnyFunSuite {
  private val identity = SinkIdentity("query", "t")
  private val record = new ProducerRecord("t", 0, "k".getBytes, "v".getBytes)

  private class Fixture {
    private val clients = new MockClients
    val sinks = new ExecutorSinks(_ => clients, new ManualClock, NoTimer, SinkObserver.none)

    def write(run: Long, options: (String, String)*): Unit =
      sinks.writer(spec(run, options: _*), "1", 0, run).write(record)

    def isOpen: Seq[Boolean] = clients.made.map(mock => !mock.closed)
  }

  private def spec(run: Long, options: (String, String)*) = WriterSpec(
    identity,
    SinkSettings.of(Map("kafka.bootstrap.servers" -> "127.0.0.1:1") ++ options),
    run,
    Map.empty,
    batch = 0,
    isLocal = false,
    discards = false,
    partitions = None
  )

  test("a run that has ended leaves nothing, and its tasks cannot write any more") {
    val f = new Fixture
    val task = f.sinks.writer(spec(1), "1", 0, 1)
    task.write(record)
    f.sinks.close(identity, 1)
    assert(f.sinks.lineCount == 0 && f.isOpen == Seq(false))
    intercept[SinkException.IllegalCall](task.write(record))
    f.write(2)
    assert(f.isOpen == Seq(false, true), "the id is the next run's")
  }

  test("errors show a row's key and topic in one line, and not all of it") {
    def shown(key: String, topic: String = "t"): (String, String) = {
      val row = new ProducerRecord(topic, key.getBytes("UTF-8"), Array.emptyByteArray)
      val values = KafkaFailures.valuesOf(row)
      (values("key"), values("topic"))
    }
    assert(shown("order-1, naïve") == ("order-1, naïve", "t"))
    assert(shown("k" * 200) == ("k" * 100 + "…", "t"))
    // Not half of a character.
    assert(shown("k" * 99 + "ï") == ("k" * 99 + "…", "t"))
    assert(shown("k" * 98 + "ï") == ("k" * 98 + "ï", "t"))
    assert(shown("a\nb")._1 == "0x610a62" && shown("\u001b[2J")._1 == "0x1b5b324a")
    assert(shown("a\u202eb")._1 == "0x61e280ae62", "it would turn the rest of the line around")
    assert(shown("k", "no\ntopic")._2 == "0x6e6f0a746f706963")
    val bytes = new ProducerRecord("t", Array.fill[Byte](200)(-1), Array.emptyByteArray)
    assert(KafkaFailures.valuesOf(bytes)("key") == "0x" + "ff" * 100 + "…")
  }

  test("the end of a run that is told late leaves the next one alone") {
    val f = new Fixture
    f.write(1)
    // The next run's task has its writer, and no row yet.
    val next = f.sinks.writer(spec(2), "1", 0, 2)
    f.sinks.close(identity, 1)
    next.write(record)
    f.sinks.close(identity, 1)
    next.write(record)
    assert(next.commit().count == 2)
    f.sinks.close(identity, 2)
    assert(f.sinks.lineCount == 0)
  }

  test("a task of an earlier run, with other options, does not end what a later one has") {
    val f = new Fixture
    f.write(1)
    f.write(2, "kafka.linger.ms" -> "7")
    assert(f.isOpen == Seq(false, true), "options have changed")
    intercept[SinkException.Superseded](f.write(1))
    assert(f.isOpen == Seq(false, true))
  }

  test("numbers of transactions are not given twice, whatever was closed in between") {
    val f = new Fixture
    val numbers = (1L to 3L).map { run =>
      val task = f.sinks.writer(spec(run), "1", 0, run)
      task.write(record)
      val name = task.commit().rows.keys.head
      f.sinks.close(identity, run)
      name.number
    }
    assert(numbers.distinct.size == 3)
  }

  test("all that is open ends with the process") {
    val f = new Fixture
    f.write(1, "producersPerExecutor" -> "2")
    f.write(1, "producersPerExecutor" -> "2")
    f.sinks.closeAll()
    assert(f.isOpen == Seq(false, false))
  }
}
