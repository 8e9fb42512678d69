package statemark.kafka.crash

import java.util.concurrent.{CountDownLatch, TimeUnit}
import statemark.kafka.TestBrokers
import statemark.kafka.sim.{Judgement, Simulation}

/** `make crash-kafka`: three brokers, and the sink under deaths of everything, in parts. Each prints what it did, and ends
  * with an error where a row was duplicated, lost or mixed, or where too little has died.
  */
object Crash {
  private val parts: Map[String, (TestBrokers, Sizes) => Unit] = Map(
    "kills" -> ((brokers, sizes) => new RandomKills(brokers, sizes).run()),
    "outages" -> ((brokers, sizes) => new Outages(brokers, sizes).run()),
    "groups" -> ((brokers, sizes) => {
      val random = new java.util.Random(sizes.seed)
      val outages = new BrokerKills(brokers, random, oneIn = 60)
      new GroupKills(brokers, sizes.groupKills / 2, random, () => outages.maybe()).run().foreach(
        println
      )
      outages.await()
      println(s"brokers killed: ${outages.count}")
    }),
    "transfers" -> ((brokers, sizes) => new Transfers(brokers, sizes).run())
  )

  /** @param args names of parts; all of them by default */
  def main(args: Array[String]): Unit = {
    val sizes = Sizes.ofProperties
    val brokers = new TestBrokers(nodes = 3)
    val wrong =
      try
        args.toSeq.ensuring(
          _.forall(parts.contains),
          s"parts are ${parts.keys.mkString(", ")}"
        ) match {
          case Seq() => parts.keys.toSeq.sorted.flatMap(run(_, brokers, sizes))
          case names => names.flatMap(run(_, brokers, sizes))
        }
      finally brokers.close()
    wrong.foreach(println)
    // Threads of producers that died may go on.
    Runtime.getRuntime.halt(if (wrong.isEmpty) 0 else 1)
  }

  private def run(name: String, brokers: TestBrokers, sizes: Sizes): Option[String] = {
    println(s"== $name: $sizes")
    try {
      parts(name)(brokers, sizes)
      println(s"== $name: passed")
      None
    } catch {
      case e: Throwable =>
        e.printStackTrace(System.out)
        Some(s"== $name: FAILED: $e")
    }
  }

  /** Fails where the judgement is not right. */
  def require(simulation: Simulation, what: String): Judgement = {
    val judgement = simulation.judge()
    if (!judgement.isRight) throw new AssertionError(s"$what: $judgement")
    judgement
  }

  /** An outage is a time in which nothing happens. */
  def pass(ms: Long): Unit = new CountDownLatch(1).await(ms, TimeUnit.MILLISECONDS): Unit
}

/** @param kills of driver, executors and brokers together
  * @param perPhase how often each phase has to be the last of a process
  * @param copies recoveries that have to copy rows
  * @param groupKills of driver and executors while the query's input is committed to a group
  * @param seed of what is random
  */
final case class Sizes(
    kills: Int,
    perPhase: Int,
    copies: Int,
    transfers: Int,
    groupKills: Int,
    seed: Long
)

object Sizes {
  def ofProperties: Sizes = {
    def number(name: String, default: Int) =
      sys.props.get(s"statemark.crash.$name").fold(default)(_.toInt)
    Sizes(
      number("kills", 200),
      number("perPhase", 5),
      number("copies", 30),
      number("transfers", 60),
      number("groupKills", 50),
      number("seed", 1).toLong
    )
  }
}
