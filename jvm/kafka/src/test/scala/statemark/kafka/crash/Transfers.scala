package statemark.kafka.crash

import java.time.Duration
import java.util.concurrent.atomic.AtomicInteger
import org.apache.kafka.clients.consumer.KafkaConsumer
import org.apache.kafka.common.TopicPartition
import org.apache.kafka.common.serialization.ByteArrayDeserializer
import scala.collection.mutable
import scala.jdk.CollectionConverters._
import statemark.kafka.TestBrokers
import statemark.kafka.sim._

/** Transfers between accounts, both sides in one partition that one task writes to, under deaths: a reader finds every
  * partition balanced at every last stable offset.
  *
  * Rows of two transactions that lie between each other do not have that property, whoever writes them: an open one
  * hides what another has committed behind its first row.
  */
final class Transfers(brokers: TestBrokers, sizes: Sizes) {
  private val Partitions = 4

  def run(): Unit = {
    val random = new java.util.Random(sizes.seed)
    val outages = new BrokerKills(brokers, random, oneIn = 200)
    val deaths = new Deaths(Some(random), oneIn = 30, _ => outages.maybe())
    val name = brokers.topic("crash-transfers", Partitions)
    val reader = new BalanceReader(brokers, name, Partitions)
    val s = new Simulation(
      brokers,
      name,
      deaths,
      partitions = Partitions,
      options = Map("kafka.transaction.timeout.ms" -> "30000"),
      failedTaskOneIn = 8,
      random = random,
      workload = Try.ofTransfers
    )
    try {
      reader.start()
      while (s.checkpoint.committed.size < sizes.transfers) s.runBatch(restarts = 1000)
      outages.await()
      deaths.end()
      s.recover()
      val judgement = Crash.require(s, "transfers")
      val rows = brokers.read(name)
      val total = rows.map(r => Try.amount(r.value)).sum
      if (total != 0) throw new AssertionError(s"the balance over all is $total")
      reader.stop(rows.size)
      println(
        s"transfers: ${judgement.rows} rows of ${s.checkpoint.committed.size} batches, " +
          s"${deaths.counts.values.sum} deaths, ${outages.count} brokers; balanced in each of " +
          s"$Partitions partitions at ${reader.checks} last stable offsets, and over all"
      )
    } finally {
      reader.end()
      s.close()
    }
  }
}

/** Reads from one last stable offset to the next, and adds up. */
private final class BalanceReader(brokers: TestBrokers, topic: String, partitions: Int) {
  private val checked = new AtomicInteger
  @volatile private var isOver = false
  @volatile private var rows = 0
  @volatile private var wrong = Option.empty[Throwable]
  private val thread = new Thread(() => run(), "balance-reader")

  def checks: Int = checked.get

  def start(): Unit = thread.start()

  /** Waits until so many rows are read. */
  def stop(all: Int): Unit = {
    while (rows < all && wrong.isEmpty && thread.isAlive) Thread.onSpinWait()
    end()
    wrong.foreach(e => throw new AssertionError(e.getMessage, e))
  }

  def end(): Unit = {
    isOver = true
    thread.join()
  }

  private def run(): Unit =
    try read()
    catch { case e: Throwable => wrong = Some(e) }

  private def read(): Unit = {
    val settings = Map[String, Object](
      "bootstrap.servers" -> brokers.bootstrap,
      "isolation.level" -> "read_committed",
      "enable.auto.commit" -> "false",
      "fetch.max.wait.ms" -> "10"
    )
    val bytes = new ByteArrayDeserializer
    val consumer = new KafkaConsumer(settings.asJava, bytes, bytes)
    try {
      val places = (0 until partitions).map(new TopicPartition(topic, _)).asJava
      consumer.assign(places)
      consumer.seekToBeginning(places)
      val balance = mutable.Map.empty[TopicPartition, Long].withDefaultValue(0L)
      // Rows that were fetched behind the offset that was asked for.
      val ahead = mutable.ArrayBuffer.empty[(TopicPartition, Long, Long)]
      while (!isOver) {
        val ends = consumer.endOffsets(places).asScala
        while (!isOver && ends.exists { case (place, end) => consumer.position(place) < end })
          consumer.poll(Duration.ofMillis(50)).asScala.foreach { r =>
            ahead += ((new TopicPartition(r.topic, r.partition), r.offset, Try.amount(r.value)))
          }
        val (now, later) = ahead.toVector.partition { case (place, offset, _) =>
          offset < ends(place)
        }
        ahead.clear()
        ahead ++= later
        now.foreach { case (place, _, amount) => balance(place) += amount }
        rows += now.size
        if (!isOver) {
          balance.find(_._2 != 0).foreach { case (place, sum) =>
            throw new AssertionError(s"$place has balance $sum at offset ${ends(place)}")
          }
          if (now.nonEmpty) checked.incrementAndGet(): Unit
        }
      }
    } finally consumer.close()
  }
}
