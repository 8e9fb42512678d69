package statemark.kafka.stress

import java.util.concurrent.{Callable, Executors}
import scala.collection.mutable
import scala.jdk.CollectionConverters._
import statemark.common.{Causes, Clock}
import statemark.kafka.TestBrokers

/** `make stress-kafka`: random histories of three applications whose ways to the broker are cut, held, or lose answers,
  * while processes die, rows are deleted and checkpoints are copied and set back. It says the seed and the steps of each
  * fault, and how many runs were refused, by cause.
  *
  * Properties of the process: `statemark.stress.seed` of the first history (1), `statemark.stress.runs` (20),
  * `statemark.stress.parallel`, how many run side by side (4).
  */
object Stress {

  def main(args: Array[String]): Unit = {
    val brokers = new TestBrokers()
    val faults =
      try run("", defaultParallel = 4)(new History(brokers, _, _).run())
      finally brokers.close()
    // Threads of processes that died may go on.
    Runtime.getRuntime.halt(if (faults == 0) 0 else 1)
  }

  /** Runs as many histories as the properties say, and prints what they came to.
    * @param parts what the command has besides seed and number, for people
    * @return how many have a fault
    */
  def run(parts: String, defaultParallel: Int)(history: (Long, Steps) => Outcome): Int = run(
    parts,
    property("seed", 1),
    property("runs", 20).toInt,
    property("parallel", defaultParallel.toLong).toInt
  )(history)

  /** Runs histories, from a seed on, and prints what they came to.
    * @return how many have a fault
    */
  def run(parts: String, first: Long, runs: Int, parallel: Int)(
      history: (Long, Steps) => Outcome
  ): Int = {
    val begin = Clock.system.nanos()
    val threads = Executors.newFixedThreadPool(parallel)
    try {
      val outcomes = threads.invokeAll((first until first + runs).map { seed =>
        (() => one(parts, seed, history)): Callable[Outcome]
      }.asJava).asScala.map(_.get()).toVector
      val faulty = outcomes.count(_.faults.nonEmpty)
      val counts = mutable.Map.empty[String, Int].withDefaultValue(0)
      outcomes.flatMap(_.refusals).foreach(cause => counts(s"refused: $cause") += 1)
      outcomes.foreach(_.counts.foreach { case (what, n) => counts(what) += n })
      say(
        f"$runs runs in ${(Clock.system.nanos() - begin) / 6e10}%.1f minutes, $faulty with a fault"
      )
      counts.toSeq.sorted.foreach { case (what, n) => say(f"$n%6d $what") }
      faulty
    } finally threads.shutdownNow(): Unit
  }

  private def one(parts: String, seed: Long, history: (Long, Steps) => Outcome): Outcome = {
    val steps = new Steps
    val outcome =
      try history(seed, steps)
      catch {
        case e: Throwable =>
          val stack = Causes.of(e).map(c =>
            s"$c\n${c.getStackTrace.take(12).mkString("  at ", "\n  at ", "")}"
          )
          Outcome(Seq(stack.mkString("\ncaused by ")), Nil, Map.empty)
      }
    if (outcome.faults.nonEmpty) say(
      s"FAULT, seed $seed:\n${steps.text}\n${outcome.faults.mkString("\n")}\n" +
        s"Again: make stress-kafka ${parts}SEED=$seed RUNS=1"
    )
    else say(s"seed $seed: ${steps.seconds} s")
    outcome
  }

  private def property(name: String, default: Long): Long =
    sys.props.get(s"statemark.stress.$name").fold(default)(_.toLong)

  private def say(text: String): Unit = synchronized {
    Console.out.println(text)
    Console.out.flush()
  }
}

/** The steps of a history, a line each, with the time since its beginning. ''Thread:'' any. */
private[kafka] final class Steps {
  private val begin = Clock.system.nanos()
  private val lines = mutable.ArrayBuffer.empty[String]

  def +=(step: String): Unit = synchronized(lines += f"$passed%7.2f $step": Unit)
  def text: String = synchronized(lines.mkString("\n"))
  def seconds: Long = math.round(passed)

  private def passed: Double = (Clock.system.nanos() - begin) / 1e9
}

private[kafka] object Steps {

  /** Where all threads are. */
  def dump: String = Thread.getAllStackTraces.asScala.collect {
    case (thread, stack) if stack.exists(_.getClassName.startsWith("statemark")) =>
      stack.take(25).mkString(s"$thread\n  at ", "\n  at ", "")
  }.mkString("\n")
}
