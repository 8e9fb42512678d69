package statemark.kafka

import org.scalatest.funsuite.AnyFunSuite
import statemark.kafka.conf.{SinkIdentity, SinkTransactionalId}
import statemark.kafka.log.CommitTopic

class SinkIdentitySuite extends AnyFunSuite {
  private val identity = SinkIdentity("4f0c-1", "orders")

  test("ids are read back in their parts, whatever these hold") {
    val names = Seq("orders", "orders.dlq", "or/ders", "%41", "größe", "a b", "driver", "e1")
    for (app <- names; sink <- names; prefix <- Seq("statemark", "team.a", "x.driver")) {
      val both = Seq(
        SinkTransactionalId.driver(prefix, SinkIdentity(app, sink)),
        SinkTransactionalId.executor(prefix, SinkIdentity(app, sink), "12"),
        SinkTransactionalId.executor(prefix, SinkIdentity(app, sink), "a.b"),
        SinkTransactionalId.executor(prefix, SinkIdentity(app, sink), "a:2", number = 3)
      )
      both.foreach(id => assert(SinkTransactionalId.parse(id.text).contains(id), id.text))
    }
  }

  test("K12: the ids of one sink are not those of another whose name begins with its own") {
    val other = SinkTransactionalId.executor("statemark", SinkIdentity("4f0c-1", "orders.dlq"), "1")
    assert(other.text == "statemark.4f0c-1.orders%2Edlq.e1")
    assert(SinkTransactionalId.parse(other.text).exists(_.identity != identity))
    val longer = SinkTransactionalId.executor("statemark.4f0c-1", SinkIdentity("orders", "x"), "1")
    assert(SinkTransactionalId.parse(longer.text).contains(longer))
  }

  test("what the sink did not name is nobody's") {
    val foreign = Seq(
      "",
      "orders",
      "a.b.c",
      "statemark.q.s.",
      "statemark.q.s.x1",
      "statemark.q.s.e",
      "statemark.q.s.e1:",
      "statemark.q.s.e1:0",
      "statemark.q.s.e1:02",
      "statemark.q.s.e1:1:1",
      "statemark..s.driver",
      "statemark.q.a%2.driver",
      "statemark.q.a%2e.driver",
      "statemark.q.größe.driver"
    )
    foreign.foreach(id => assert(SinkTransactionalId.parse(id).isEmpty, id))
  }

  test("K6: the partition of an identity is among the first sixteen, and does not change") {
    assert(identity.commitPartition == SinkIdentity("4f0c-1", "orders").commitPartition)
    val found = (0 until 1000).map(n => SinkIdentity(s"q$n", "out").commitPartition)
    assert(found.toSet == (0 until CommitTopic.Partitions).toSet)
    // Part of the format: a commit topic that exists is read by it.
    assert(SinkIdentity("q", "out").commitPartition == 0)
    assert(SinkIdentity("q1", "orders").commitPartition == 5)
  }
}
