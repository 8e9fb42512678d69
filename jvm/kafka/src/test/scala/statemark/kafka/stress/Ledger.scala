package statemark.kafka.stress

import java.nio.charset.StandardCharsets.UTF_8
import java.util.Random
import org.apache.kafka.clients.admin.RecordsToDelete
import org.apache.kafka.common.TopicPartition
import scala.collection.concurrent.TrieMap
import scala.collection.mutable
import scala.jdk.CollectionConverters._
import statemark.kafka.TestBrokers
import statemark.kafka.conf.SinkIdentity
import statemark.kafka.decision.Decision
import statemark.kafka.sim.{SimCheckpoint, Try}

/** A try of a batch, as it was sent: of which history its batch is, and how its rows lie in its partitions. */
private[stress] final case class Sent(
    identity: SinkIdentity,
    batch: Long,
    history: Int,
    counts: Vector[Int]
)

/** A row as a reader has it. */
private[stress] final case class Seen(nonce: Long, partition: Int, at: Int)

/** What was sent, and what readers of the topic have seen of it so far, although the log may not have it any more.
  * ''Thread:'' any for [[sent]]; one for the rest.
  */
private[stress] final class Ledger(brokers: TestBrokers, topic: String) {
  private val tries = new TrieMap[Long, Sent]
  private type Place = (TopicPartition, Long)
  private var logged = Map.empty[Place, String]
  private var visible = Map.empty[Place, String]
  private var deleted = Set.empty[Place]

  def sent(nonce: Long, of: Sent): Unit = tries(nonce) = of

  /** Reads the topic at both levels of isolation. Committed rows behind an open transaction do not show. */
  def read(): Unit = {
    def rows(committed: Boolean) = brokers.read(topic, committed).map { r =>
      (new TopicPartition(r.topic, r.partition), r.offset) -> new String(r.value, UTF_8)
    }
    logged ++= rows(committed = false)
    visible ++= rows(committed = true)
  }

  /** Deletes the beginning of some partitions. Rows that readers could see they have seen.
    * @return what was deleted, for people
    */
  def delete(random: Random): String = {
    read()
    val lastTry = logged.values.map(nonceOf).maxOption.getOrElse(0L)
    val live = (logged.keySet -- deleted).groupBy(_._1).toVector.sortBy(_._1.partition)
    val places =
      if (random.nextInt(3) == 0) live else live.filter(_ => random.nextInt(live.size) == 0)
    val seen = visible.values.toSet
    val ends = places.map { case (place, rows) =>
      val offsets = rows.map(_._2).toVector.sorted
      // Of the last tries, those that only the sink can bring to the readers, or has brought in a copy.
      val hidden = offsets.filterNot(offset => visible.contains((place, offset)))
        .filter(offset => nonceOf(logged((place, offset))) > lastTry - 3)
      val copied = hidden.takeWhile(offset => seen(logged((place, offset))))
      val end = random.nextInt(3) match {
        case 0 => offsets.last
        case _ if copied.nonEmpty => copied(random.nextInt(copied.size))
        case _ if hidden.nonEmpty => hidden(math.min(random.nextInt(6), hidden.size - 1))
        case _ => offsets(random.nextInt(offsets.size))
      }
      place -> (end + 1)
    }
    if (ends.nonEmpty) brokers.admin.deleteRecords(ends.map { case (place, end) =>
      place -> RecordsToDelete.beforeOffset(end)
    }.toMap.asJava).all().get(): Unit
    val gone = ends.flatMap { case (place, end) =>
      logged.keys.filter { case (of, offset) =>
        of == place && offset < end && !deleted((of, offset))
      }
    }
    deleted ++= gone
    val hidden = gone.filterNot(visible.contains).map(logged).sorted
    s"deleted up to ${ends.mkString(", ")}: ${gone.size} rows, of which no reader had ${hidden.size}: " +
      hidden.mkString(" ")
  }

  /** Rows of a decision that are neither in the log nor with the readers. */
  def missing(decision: Decision): Vector[String] = {
    val seen = visible.values.toSet
    for {
      transaction <- decision.transactions
      rows <- transaction.rows
      offset <- (rows.runs.first to rows.runs.last).toVector
      place = (rows.topicPartition, offset)
      if rows.runs.contains(offset) && (deleted(place) || !logged.contains(place))
      if !logged.get(place).exists(seen)
    } yield logged.getOrElse(place, s"an unknown row at $place")
  }

  /** The histories whose batches were sent for the identity. */
  def histories(identity: SinkIdentity): Set[Int] =
    tries.valuesIterator.filter(_.identity == identity).map(_.history).toSet

  /** Whether rows of the identity were deleted before readers had them. */
  def hasGone(identity: SinkIdentity): Boolean = deleted.exists { place =>
    !visible.contains(place) && tries.get(nonceOf(logged(place))).exists(_.identity == identity)
  }

  /** What is wrong with what readers saw of an identity.
    * @param checkpoints all that its applications ran on
    * @param isWhole whether also batches have to be whole that no checkpoint knows to be committed
    * @param mayMix whether partitions of a batch may come from several tries (`onLostRows=rerun`)
    */
  def faults(
      identity: SinkIdentity,
      checkpoints: Seq[SimCheckpoint],
      isWhole: Boolean,
      mayMix: Boolean
  ): Seq[String] = {
    val found = mutable.ArrayBuffer.empty[String]
    val rows = visible.values.toSeq.map(seen).filter(r => tries(r.nonce).identity == identity)
    val ofBatch = rows.groupBy(r => tries(r.nonce).batch)
    val committed = checkpoints.flatMap(c => c.committed.toSeq.map(b => (b, c.plan(b)))).toSet
    ofBatch.toSeq.sortBy(_._1).foreach { case (batch, of) =>
      val histories = of.map(r => tries(r.nonce).history).distinct
      if (histories.size > 1) found += s"MIXED: batch $batch has rows of histories $histories"
      val nonces = of.map(_.nonce).distinct
      if (nonces.size > 1 && !mayMix) found += s"MIXED: batch $batch has rows of tries $nonces"
      val ids = of.groupBy(idOf)
      ids.filter(_._2.size > 1).toSeq.sortBy(_._1).foreach { case (id, twice) =>
        found += s"DOUBLED: row $id of batch $batch: $twice"
      }
      val all = tries(nonces.head).counts.sum
      val absent = (0 until all).filterNot(ids.contains)
      if (absent.nonEmpty && (isWhole || committed.exists(_._1 == batch)))
        found += s"LOST: batch $batch has no rows $absent of $all; it has ${of.sortBy(idOf)}"
    }
    for ((batch, history) <- committed.toSeq.sorted) {
      val total =
        tries.values.find(s => s.identity == identity && s.batch == batch && s.history == history)
          .map(_.counts.sum)
      val has = ofBatch.getOrElse(batch, Nil)
      if (total.exists(_ > 0) && has.forall(r => tries(r.nonce).history != history))
        found += s"LOST: batch $batch of history $history is committed; readers have ${has.size} rows, all of others"
    }
    found.toSeq
  }

  private def nonceOf(text: String): Long = text.split('|')(1).toLong

  private def seen(text: String): Seen = {
    val part = text.split('|')
    Seen(part(1).toLong, part(3).toInt, part(5).toInt)
  }

  /** Which row of its batch it is, in whatever partition a try has it. */
  private def idOf(row: Seen): Int = tries(row.nonce).counts.take(row.partition).sum + row.at
}

/** Where a try has the rows of its batch: their number is the batch's. */
private[stress] object Placement {

  /** Tries of a batch have their rows in the same partitions, as without adaptive plans. */
  def fixed(batch: Long, history: Int, nonce: Long, partitions: Int): Try =
    placed(batch, history, nonce, partitions, new Random(batch * 31 + history * 7))

  /** The number of partitions stays, and their bounds move, as adaptive plans have it. */
  def adaptive(batch: Long, history: Int, nonce: Long, partitions: Int): Try =
    placed(batch, history, nonce, partitions, new Random(nonce * 17))

  private def placed(batch: Long, history: Int, nonce: Long, partitions: Int, bounds: Random) = {
    val of = new Random(batch * 131 + history * 71)
    val total = if (of.nextInt(8) == 0) 0 else partitions + of.nextInt(4 * partitions)
    val cuts = Vector.fill(partitions - 1)(bounds.nextInt(total + 1)).sorted
    val counts = (0 +: cuts).zip(cuts :+ total).map { case (from, to) => to - from }
    Try(batch, nonce, counts)
  }
}
