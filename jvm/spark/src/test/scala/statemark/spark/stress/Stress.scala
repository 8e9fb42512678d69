package statemark.spark.stress

import java.nio.file.{Files, Path}
import java.util.concurrent.TimeUnit
import scala.collection.mutable
import scala.util.Random
import statemark.common.Clock
import statemark.spark.{LocalDirectory, RunningTask, StatemarkStateStoreProvider}

/** Random histories of a checkpoint and everything around it, against a sorted map: runs that overlap, rollbacks by
  * hand, interrupts, readers of versions that are gone. It ends with the time, or with the first fault, whose seed it
  * says. No part of any suite: `make stress`.
  *
  * Properties of the process: `statemark.stress.seed` of the first history (1), `statemark.stress.minutes` (20).
  */
object Stress {
  private val Steps = 40
  private val LeastShare = 5

  def main(args: Array[String]): Unit = {
    val first = property("seed", 1L)
    val end = Clock.system.nanos() + TimeUnit.MINUTES.toNanos(property("minutes", 20L))
    StatemarkStateStoreProvider.runningTask = () => RunningTask(World.query, 1)
    val tally = new Tally
    val other = new OtherProcess
    val found = Iterator.iterate(first)(_ + 1).takeWhile(_ => Clock.system.nanos() < end)
      .map(seed => seed -> run(seed, tally, other))
      .collectFirst { case (seed, Some(failure)) => s"FAULT, seed $seed:\n$failure" }
    other.close()
    say(tally.text)
    found.foreach(say)
    if (found.isEmpty) tally.rare(LeastShare).foreach(a => say(s"too rare: ${a.name}"))
    Runtime.getRuntime.halt(if (found.isDefined) 1 else 0)
  }

  /** The fault that a history finds. */
  private def run(seed: Long, tally: Tally, other: OtherProcess): Option[String] = {
    // A crash of the process leaves the last line.
    say(s"seed $seed")
    val random = new Random(seed * 0x9e3779b97f4a7c15L)
    val root = Files.createTempDirectory("statemark-stress-")
    val log = mutable.Buffer.empty[Action]
    try {
      val failure = history(random, root, log, other)
      tally.add(log.toSet)
      failure
    } finally LocalDirectory.deleteTree(root.toFile)
  }

  private def history(
      random: Random,
      root: Path,
      log: mutable.Buffer[Action],
      other: OtherProcess
  ): Option[String] = {
    val world = new World(random, root, other)
    val steps = new Steps(world, random, other)
    var now = Option.empty[Action]
    try {
      for (_ <- 1 to Stress.Steps) {
        val action = Action.draw(random)
        now = Some(action)
        world.log += s"-- ${action.name}"
        if (steps.run(action)) log += action
      }
      now = None
      world.readers.toSeq.foreach(world.end)
      world.readAside(world.settings.formatVersion)
      world.close()
      None
    } catch {
      case e: Throwable =>
        val stack = e.getStackTrace.take(30).mkString("  at ", "\n  at ", "")
        val causes = statemark.common.Causes.of(e).mkString("\n  caused by ")
        Some(
          s"settings: ${world.settings}\n  ${world.log.mkString("\n  ")}\n" +
            s"then ${now.fold("the end")(_.name)}: $causes\n$stack"
        )
    }
  }

  private def property(name: String, default: Long): Long =
    Option(System.getProperty(s"statemark.stress.$name")).fold(default)(_.toLong)

  private def say(text: String): Unit = {
    Console.out.println(text)
    Console.out.flush()
  }
}

/** In how many histories each action fired. */
private[stress] final class Tally {
  private var histories = 0
  private val fired = mutable.Map.empty[Action, Int].withDefaultValue(0)

  def add(actions: Set[Action]): Unit = {
    histories += 1
    actions.foreach(fired(_) += 1)
  }

  private def share(action: Action): Int =
    if (histories == 0) 0 else 100 * fired(action) / histories

  def text: String = Action.all.map(a => f"${share(a)}%3d %% ${a.name}")
    .mkString(s"$histories histories; of these have\n", "\n", "")

  def rare(leastShare: Int): Seq[Action] = Action.all.filter(share(_) < leastShare)
}
