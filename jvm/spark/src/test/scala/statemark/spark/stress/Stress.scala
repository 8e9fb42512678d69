package statemark.spark.stress

import java.io.PrintWriter
import java.nio.file.{Files, Path}
import java.util.concurrent.{Executors, TimeUnit}
import org.apache.spark.TaskContext
import scala.collection.mutable
import scala.jdk.CollectionConverters._
import scala.util.Random
import statemark.common.{Causes, Clock}
import statemark.spark.local.LocalDirectory
import statemark.spark.process.{JvmState, TaskInfo}

/** Random histories of a checkpoint and everything around it, against a sorted map: runs that overlap, rollbacks by
  * hand, interrupts, readers of versions that are gone. It ends with the time, or with the first fault, whose seed it
  * says. No part of any suite: `make stress`.
  *
  * Properties of the process: `statemark.stress.seed` of the first history (1), `statemark.stress.minutes` (20),
  * `statemark.stress.histories` (as many as the minutes have), `statemark.stress.only` (the objects of the actions that
  * are drawn; all).
  */
object Stress {
  private val Steps = 40
  private val LeastShare = 5
  private val actions = Action.named(System.getProperty("statemark.stress.only", ""))

  def main(args: Array[String]): Unit = {
    // Threads of Spark's, and those that a fault left, keep nobody waiting.
    val hasFault =
      try findsFault()
      catch {
        case e: Throwable =>
          e.printStackTrace()
          true
      }
    Runtime.getRuntime.halt(if (hasFault) 1 else 0)
  }

  private def findsFault(): Boolean = {
    val first = property("seed", 1L)
    val begin = Clock.system.nanos()
    val end = begin + TimeUnit.MINUTES.toNanos(property("minutes", 20L))
    // Tasks are of Spark's own query; what no task asks for is of the history's.
    JvmState.runningTask.set { () =>
      Option(TaskContext.get()).fold(TaskInfo(World.queryId, 1, isOfBatch = true))(_ =>
        TaskInfo.now()
      )
    }
    val tally = new Tally(actions)
    val other = new OtherProcess
    val found = Iterator.iterate(first)(_ + 1).takeWhile(_ => Clock.system.nanos() < end)
      .takeWhile(_ - first < property("histories", Long.MaxValue))
      .map(seed => seed -> run(seed, tally, other))
      .collectFirst { case (seed, Some(failure)) => fault(seed, failure) }
    other.close()
    say(tally.text)
    found.foreach(say)
    if (found.isDefined) say(f"found after ${(Clock.system.nanos() - begin) / 6e10}%.1f minutes")
    if (found.isEmpty) tally.rare(LeastShare).foreach(a => say(s"too rare: ${a.name}"))
    found.isDefined
  }

  private def fault(seed: Long, failure: String): String =
    s"FAULT, seed $seed:\n$failure\nAgain: make stress SEED=$seed HISTORIES=1$restricted"

  private def restricted: String =
    if (actions.size == Action.all.size) "" else actions.mkString(" ONLY=\"", " ", "\"")

  /** The fault that a history finds. */
  private def run(seed: Long, tally: Tally, other: OtherProcess): Option[String] = {
    val random = new Random(seed * 0x9e3779b97f4a7c15L)
    val root = Files.createTempDirectory("statemark-stress-")
    val steps = new StepLog(root.resolve("steps"))
    // A crash of the process leaves this line, and the steps.
    say(s"seed $seed, steps in ${steps.file}")
    val watch = Watch.over { dump =>
      say(fault(seed, s"${steps.text}\nIt stands:\n$dump"))
      Runtime.getRuntime.halt(1)
    }
    val fired = mutable.Set.empty[Action]
    try {
      val failure = history(random, root, steps, fired, other)
      tally.add(fired.toSet)
      // The stores of a failed history are open: their files change, and tell what happened.
      if (failure.isEmpty) LocalDirectory.deleteTree(root.toFile)
      failure
    } finally {
      watch.close()
      steps.close()
    }
  }

  private def history(
      random: Random,
      root: Path,
      log: StepLog,
      fired: mutable.Set[Action],
      other: OtherProcess
  ): Option[String] =
    try {
      val world = new World(random, root, log, other)
      log += s"settings: ${world.settings}"
      val steps = new Steps(world, random, other)
      for (_ <- 1 to Stress.Steps) {
        val action = Action.draw(random, actions)
        log += s"-- ${action.name}"
        if (steps.run(action)) fired += action
      }
      log += "-- the end"
      world.readers.toSeq.foreach(world.end)
      world.readAside(world.settings.formatVersion)
      world.close()
      None
    } catch {
      case e: Throwable =>
        val stack = e.getStackTrace.take(30).mkString("  at ", "\n  at ", "")
        Some(s"${log.text}\n${Causes.of(e).mkString("\n  caused by ")}\n$stack")
    }

  private def property(name: String, default: Long): Long =
    Option(System.getProperty(s"statemark.stress.$name")).fold(default)(_.toLong)

  private def say(text: String): Unit = {
    Console.out.println(text)
    Console.out.flush()
  }
}

/** The steps of a history, one line each, in a file: a crash of the process leaves them. */
private[stress] final class StepLog(val file: Path) extends AutoCloseable {
  private val out = new PrintWriter(Files.newBufferedWriter(file), /* autoFlush = */ true)

  def +=(step: String): Unit = out.println(step)

  def text: String = Files.readString(file)

  override def close(): Unit = out.close()
}

/** Says where all threads are when a history takes too long. */
private object Watch {
  private val MostSeconds = 300L
  private val timer = Executors.newSingleThreadScheduledExecutor { (task: Runnable) =>
    val thread = new Thread(task, "stress-watch")
    thread.setDaemon(true)
    thread
  }

  /** @param stands is told where */
  def over(stands: String => Unit): AutoCloseable = {
    val task: Runnable = () => stands(dump)
    val planned = timer.schedule(task, MostSeconds, TimeUnit.SECONDS)
    () => planned.cancel(false): Unit
  }

  private def dump: String = Thread.getAllStackTraces.asScala.map { case (thread, stack) =>
    stack.mkString(s"$thread\n  at ", "\n  at ", "")
  }.mkString("\n")
}

/** In how many histories each action fired. */
private[stress] final class Tally(actions: Seq[Action]) {
  private var histories = 0
  private val fired = mutable.Map.empty[Action, Int].withDefaultValue(0)

  def add(actions: Set[Action]): Unit = {
    histories += 1
    actions.foreach(fired(_) += 1)
  }

  private def share(action: Action): Int =
    if (histories == 0) 0 else 100 * fired(action) / histories

  def text: String = actions.map(a => f"${share(a)}%3d %% ${a.name}")
    .mkString(s"$histories histories; of these have\n", "\n", "")

  def rare(leastShare: Int): Seq[Action] = actions.filter(share(_) < leastShare)
}
