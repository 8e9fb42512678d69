package statemark.kafka.sim

import java.nio.charset.StandardCharsets.UTF_8
import java.util.Random
import org.apache.kafka.clients.consumer.ConsumerRecord
import org.apache.kafka.clients.producer.ProducerRecord

/** What a batch computes: another thing each time that it runs. Each row says of which try it is, and how many rows each
  * partition of that try has.
  * @param isTransfer whether rows come in pairs, the sides of a transfer, which lie in one partition of the topic that no
  *   other task writes to
  */
final case class Try(
    batch: Long,
    nonce: Long,
    counts: Vector[Int],
    isTransfer: Boolean = false
) {

  def row(topic: String, partition: Int, attempt: Long, at: Int) = {
    val text = s"$batch|$nonce|${counts.mkString(",")}|$partition|$attempt|$at"
    val record = new ProducerRecord[Array[Byte], Array[Byte]](
      topic,
      if (isTransfer) Int.box(partition) else Option.empty[Integer].orNull,
      s"$partition-$at".getBytes(UTF_8),
      text.getBytes(UTF_8)
    )
    record.headers.add("try", nonce.toString.getBytes(UTF_8))
    record
  }
}

object Try {
  def of(batch: Long, nonce: Long, partitions: Int): Try = {
    val random = new Random(batch * 31 + nonce * 17)
    Try(batch, nonce, Vector.fill(partitions)(1 + random.nextInt(8)))
  }

  /** Up to eight transfers a partition. */
  def ofTransfers(batch: Long, nonce: Long, partitions: Int): Try = {
    val some = of(batch, nonce, partitions)
    some.copy(counts = some.counts.map(_ * 2), isTransfer = true)
  }

  /** What a row of a transfer adds to the account: the sides of one cancel each other out. */
  def amount(value: Array[Byte]): Long = {
    val part = new String(value, UTF_8).split('|')
    val (nonce, at) = (part(1).toLong, part(5).toLong)
    val amount = nonce * 1000 + at / 2 + 1
    if (at % 2 == 0) amount else -amount
  }
}

/** What readers of a topic saw, compared with what they should. */
final case class Judgement(
    rows: Int,
    duplicated: Int,
    lost: Int,
    mixed: Int,
    disordered: Int,
    unexpected: Set[Long]
) {
  def isRight: Boolean =
    duplicated == 0 && lost == 0 && mixed == 0 && disordered == 0 && unexpected.isEmpty
}

object Judgement {
  private final case class Row(
      batch: Long,
      nonce: Long,
      counts: Vector[Int],
      partition: Int,
      attempt: Long,
      at: Int
  )

  /** @param batches those that the query has committed */
  def of(
      records: Seq[ConsumerRecord[Array[Byte], Array[Byte]]],
      batches: Set[Long]
  ): Judgement = {
    val rows = records.map { record =>
      val part = new String(record.value, UTF_8).split('|')
      val numbers = part(2).split(',').toVector.map(_.toInt)
      Row(part(0).toLong, part(1).toLong, numbers, part(3).toInt, part(4).toLong, part(5).toInt)
    }
    val ofBatch = rows.groupBy(_.batch)
    // A row is what it is in its batch and partition, whichever attempt wrote it.
    val duplicated = ofBatch.valuesIterator.map { of =>
      of.size - of.map(r => (r.nonce, r.partition, r.at)).distinct.size
    }.sum
    val mixed = ofBatch.valuesIterator.count { of =>
      of.map(_.nonce).distinct.size > 1 || of.groupBy(_.partition).values
        .exists(_.map(_.attempt).distinct.size > 1)
    }
    val lost = batches.toSeq.map { batch =>
      ofBatch.get(batch) match {
        case None => 1
        case Some(of) =>
          val there = of.map(r => (r.partition, r.at)).toSet
          of.head.counts.zipWithIndex.map { case (count, partition) =>
            (0 until count).count(at => !there((partition, at)))
          }.sum
      }
    }.sum
    // Records of a partition come in the order of their offsets.
    val disordered = records.zip(rows).groupBy { case (record, row) =>
      (record.partition, row.batch, row.partition, row.attempt)
    }.valuesIterator.count(_.map(_._2.at).sliding(2).exists(two => two.head > two.last))
    Judgement(rows.size, duplicated, lost, mixed, disordered, ofBatch.keySet -- batches)
  }
}
