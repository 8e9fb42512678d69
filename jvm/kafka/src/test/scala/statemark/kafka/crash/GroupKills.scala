package statemark.kafka.crash

import java.util.Random
import statemark.kafka.TestBrokers
import statemark.kafka.conf.{SinkException, SinkPhase}
import statemark.kafka.sim._

/** Drivers and executors die at random, and brokers in between, of a query that commits its input to a consumer group:
  * after each death and each batch the group is never ahead of a decision, nor behind the one before.
  * @param kills in each of the two modes
  */
final class GroupKills(brokers: TestBrokers, kills: Int, random: Random, passing: () => Unit) {

  /** Returns a line for each mode, with its figures.
    * @throws AssertionError where the group, or a row, is wrong
    */
  def run(): Seq[String] = Seq(false, true).map(isLocal => run(isLocal))

  private def run(isLocal: Boolean): String = {
    val where = if (isLocal) "local mode" else "two executors"
    val deaths = new Deaths(Some(random), oneIn = 25, _ => passing())
    val name = brokers.topic(s"crash-groups-$isLocal")
    val s = new Simulation(
      brokers,
      name,
      deaths,
      isLocal = isLocal,
      options =
        Map("kafka.transaction.timeout.ms" -> "30000", "kafkaConsumerGroup" -> s"group-of-$name"),
      failedTaskOneIn = 8,
      twinOneIn = 8,
      random = random,
      workload = (batch, nonce, n) =>
        if (batch % 3 == 1) Try(batch, nonce, Vector.fill(n)(0)) else Try.of(batch, nonce, n)
    )
    try {
      val input = new InputOffsets(brokers, s)
      def look(): Unit = input.fault().foreach(f => throw new AssertionError(s"$where: $f"))
      var planned = Set.empty[Long]
      while (deaths.counts.values.sum < kills || s.checkpoint.next < 2) {
        val batch = s.checkpoint.next
        // Where the group and the decision could part: of a batch with rows, and of one without.
        if (batch < 2 && !planned(batch)) {
          Seq(SinkPhase.DecisionSent, SinkPhase.DecisionDurable).foreach(deaths.at(_))
          planned += batch
        }
        try s.attemptBatch(batch)
        catch {
          case _: Died => s.killDriver()
          case e: SinkException if e.isRetryable => s.restart()
        }
        look()
      }
      deaths.end()
      s.runBatch()
      s.recover()
      look()
      val judgement = Crash.require(s, where)
      val last = s.checkpoint.committed.max
      if (!input.offset.contains(last)) throw new AssertionError(
        s"$where: the group is at ${input.offset}, and batch $last is complete"
      )
      s"$where: ${deaths.counts.values.sum} kills, ${s.checkpoint.committed.size} batches, ${judgement.rows} rows, " +
        s"${input.looks} looks at the group: never ahead of a decision, never behind the one before; " +
        deaths.counts.toSeq.map { case (p, n) => s"${p.name} $n" }.sorted.mkString(", ")
    } finally s.close()
  }
}
