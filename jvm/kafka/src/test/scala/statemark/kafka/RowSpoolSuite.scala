package statemark.kafka

import java.io.FileOutputStream
import org.apache.kafka.clients.consumer.ConsumerRecord
import org.apache.kafka.common.TopicPartition
import org.apache.kafka.common.header.internals.RecordHeaders
import org.apache.kafka.common.record.TimestampType
import org.scalatest.funsuite.AnyFunSuite
import scala.jdk.CollectionConverters._
import scala.util.Using
import statemark.common.DiskUnwritableException
import statemark.kafka.rows.{RowSpool, TransactionName}

class RowSpoolSuite extends AnyFunSuite {

  test("a temporary directory that is full is named, and what to do") {
    val full = new java.io.File("/dev/full")
    assume(full.exists)
    def failure(memoryBytes: Int, rows: Int) = intercept[DiskUnwritableException] {
      Using.resource(new RowSpool(memoryBytes, opening = _ => new FileOutputStream(full))) {
        spool =>
          for (at <- 0 until rows) spool.add(group(e1, 0), record(0, at.toLong, new Array(1000)))
          spool.records(Seq(group(e1, 0))).foreach(_ => ())
      }
    }
    // As it goes over, as it grows, and as what is left is written.
    for ((memoryBytes, rows) <- Seq((100000, 200), (0, 200), (0, 2))) {
      val e = failure(memoryBytes, rows)
      assert(e.getMessage.contains("temporary directory is full"), e)
      assert(e.getMessage.contains("-Djava.io.tmpdir") && !e.isRetryable, e)
    }
  }

  private val none: Array[Byte] = Option.empty[Array[Byte]].orNull
  private val e1 = TransactionName("e1", 1)
  private val e2 = TransactionName("e2", 1)

  private def record(
      partition: Int,
      offset: Long,
      value: Array[Byte],
      headers: (String, Array[Byte])*
  ) = {
    val all = new RecordHeaders
    headers.foreach { case (name, bytes) => all.add(name, bytes) }
    new ConsumerRecord(
      "orders",
      partition,
      offset,
      1234L,
      TimestampType.CREATE_TIME,
      0,
      0,
      s"key-$offset".getBytes,
      value,
      all,
      java.util.Optional.empty[Integer]
    )
  }

  private def group(name: TransactionName, partition: Int) =
    RowSpool.Group(name, new TopicPartition("orders", partition))

  for (memoryBytes <- Seq(0, 100, 1 << 20))
    test(
      s"groups that come side by side read back each in its order, with $memoryBytes bytes of memory"
    ) {
      Using.resource(new RowSpool(memoryBytes)) { spool =>
        for (at <- 0 until 50; (name, partition) <- Seq((e1, 0), (e2, 0), (e1, 1)))
          spool.add(group(name, partition), record(partition, at.toLong, s"$name $at".getBytes))
        def read(groups: RowSpool.Group*) =
          spool.records(groups).map(r => (r.partition.toInt, new String(r.value))).toVector
        val first = (0 until 50).map(at => (1, s"$e1 $at"))
        val second = (0 until 50).map(at => (0, s"$e2 $at"))
        assert(read(group(e1, 1), group(e2, 0)) == first ++ second)
        assert(read(group(e2, 0), group(e1, 1)) == second ++ first, "another time")
        assert(read(group(e2, 7)).isEmpty)
      }
    }

  test("a spool that went to its file keeps no memory") {
    Using.resource(new RowSpool(1 << 20)) { spool =>
      val value = new Array[Byte](100000)
      (0 until 10).foreach(at => spool.add(group(e1, 0), record(0, at.toLong, value)))
      assert(spool.heldBytes >= 1000000)
      (10 until 30).foreach(at => spool.add(group(e1, 0), record(0, at.toLong, value)))
      assert(spool.heldBytes == 0)
      assert(spool.records(Seq(group(e1, 0))).map(_.value.length).sum == 30 * 100000)
    }
  }

  test("a spool's file has no name, so that it ends with the process") {
    val directory = java.nio.file.Files.createTempDirectory("spool")
    Using.resource(new RowSpool(0, directory)) { spool =>
      spool.add(group(e1, 0), record(0, 0, "v".getBytes))
      assert(directory.toFile.list.isEmpty)
      assert(spool.records(Seq(group(e1, 0))).size == 1)
    }
    java.nio.file.Files.delete(directory)
  }

  test("a row keeps all that it has, of any length") {
    val long = "ü" * 100000
    val rows = Seq(
      record(3, 0, none),
      record(3, 1, Array.empty, "a" -> none, "a" -> Array[Byte](1), long -> Array.fill(100000)(7))
    )
    Using.resource(new RowSpool(1 << 20)) { spool =>
      rows.foreach(spool.add(group(e1, 3), _))
      val read = spool.records(Seq(group(e1, 3))).toVector
      assert(read.map(_.topic).distinct == Seq("orders"))
      rows.zip(read).foreach { case (in, out) =>
        assert(out.partition == 3 && out.timestamp == 1234L)
        assert(out.key.sameElements(in.key))
        assert(Option(out.value).map(_.toSeq) == Option(in.value).map(_.toSeq))
        def headers(of: org.apache.kafka.common.header.Headers) =
          of.asScala.map(h => (h.key, Option(h.value).map(_.toSeq))).toSeq
        assert(headers(out.headers) == headers(in.headers))
      }
    }
  }
}
