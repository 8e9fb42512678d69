package statemark.spark

import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Path, StandardCopyOption}
import java.util.concurrent.locks.LockSupport
import java.util.concurrent.TimeUnit
import org.scalatest.funsuite.AnyFunSuite
import scala.collection.mutable
import scala.jdk.CollectionConverters._
import scala.util.Random
import statemark.spark.local.LocalDirectory
import statemark.transaction.CommitPhase

/** Goal: no row is lost, doubled or changed, wherever a process dies (I2, I3, I6). Method: a query in a child
  * process is killed (SIGKILL) at named phases and at random times, input arriving all the time, and
  * started again on the same checkpoint and local directory; what it wrote at last is compared with the
  * batch answer, row for row.
  *
  * A suite for each checkpoint format, so that they run side by side. `STATEMARK_KILLS` is the number of kills of both (`make crash`: 500), `STATEMARK_SEED` repeats a run.
  */
abstract class CrashSuite(format: String) extends AnyFunSuite {
  private val kills = sys.env.get("STATEMARK_KILLS").fold(24)(_.toInt)
  private val seed = sys.env.get("STATEMARK_SEED").fold(Random.nextInt())(_.toInt)

  /** A phase and the visits at which a process may die there. Early visits come twice in a row before a
    * new commit. A query without column families takes no snapshot in a commit, and parts of versions as small
    * as here are not on disk when the process dies, so that none is written to its end.
    */
  private val places: Seq[(String, Seq[Int])] =
    (CommitPhase.all ++ CommitPhase.besides ++ CommitPhase.spills).filterNot { phase =>
      phase == CommitPhase.SnapshotUploaded || phase == CommitPhase.RedoStarted
    }.map {
      case phase @ (CommitPhase.HomeProven | CommitPhase.StoreLoaded) => phase.name -> Seq(1, 2, 3)
      case phase @ (CommitPhase.SnapshotStarted | CommitPhase.SnapshotEnded) =>
        phase.name -> Seq(1, 2)
      case phase @ (CommitPhase.FlushStarted | CommitPhase.FlushFrozen) =>
        phase.name -> Seq(1, 2, 4)
      case phase => phase.name -> Seq(1, 2, 3, 5, 8)
    }
  private val atRandom = "random"
  private val MaxBatches = 15
  private val Tries = 10
  private val MaxIntoUploadMs = 15

  /** Every place in turn, and every fourth time while a snapshot is being uploaded. Each format begins with the half of
    * the places that the other ends with, so that few kills of both are at all of them; both begin with those that are
    * before any commit.
    */
  private def schedule: Iterator[String] = {
    val loads = Seq(CommitPhase.HomeProven, CommitPhase.StoreLoaded).map(_.name)
    val (first, later) = (places.map(_._1) :+ atRandom).zipWithIndex.partition {
      case (place, i) => loads.contains(place) || i % 2 == format.toInt % 2
    }
    Iterator.continually((first ++ later).map(_._1)).flatten.grouped(3)
      .flatMap(_ :+ CrashChild.Uploading)
  }

  test(s"killed ${kills / 2} times, checkpoint format v$format: the answer of the batch run") {
    info(s"STATEMARK_SEED=$seed")
    val crash = new Crash(new Random(seed + format.toInt))
    try {
      schedule.take(kills / 2).zipWithIndex.foreach { case (place, i) =>
        // An upload may end before the signal comes, and a phase not be reached in time.
        assert(Iterator.continually(crash.kill(place)).take(Tries).contains(true), place)
        if (i % 25 == 24) alert(s"${i + 1} of ${kills / 2} kills")
      }
      crash.finish()
      assert(crash.output == crash.expected)
      info(
        s"killed at ${crash.fired.toSeq.sortBy(_._1).map { case (p, n) => s"$p: $n" }.mkString(", ")}"
      )
      info(
        s"loads: ${crash.loads.toSeq.sortBy(_._1).map { case (p, n) => s"$p: $n" }.mkString(", ")}"
      )
      info(s"killed before the first new commit: ${crash.early}, missed: ${crash.missed}")
      // Each fault has proved that it fired; and the local directory was used.
      places.foreach { case (place, _) => assert(crash.fired(place) >= kills / 50, place) }
      assert(crash.fired(CrashChild.Uploading) >= kills / 10)
      assert(crash.early >= kills / 10)
      assert(crash.loads("statemarkLoadLocalCount") > crash.loads("statemarkLoadCheckpointCount"))
    } finally crash.close()
  }

  private final class Crash(random: Random) {
    private val root = Files.createTempDirectory("statemark-crash-")
    Seq("input", "output").foreach(d => Files.createDirectories(root.resolve(d)))
    val fired: mutable.Map[String, Int] = mutable.Map.empty[String, Int].withDefaultValue(0)
    val loads: mutable.Map[String, Long] = mutable.Map.empty[String, Long].withDefaultValue(0L)
    var missed = 0
    var early = 0
    private var files = 0
    private var started = 0
    private var spare = newSpare()
    private val rows = mutable.ArrayBuffer.empty[(Int, Int)]

    /** Runs the query and kills it at a phase, or at some time; false where that was missed. */
    def kill(place: String): Boolean = {
      addInput(2)
      val visits = places.toMap.getOrElse(place, Seq(1, 2))
      val visit = visits(random.nextInt(visits.length))
      val child = start(if (place == atRandom) "never" else place, visit)
      val (isThere, batches) =
        try {
          val followed = follow(child, place != atRandom)
          if (place == CrashChild.Uploading)
            LockSupport.parkNanos(random.nextInt(MaxIntoUploadMs) * 1000000L)
          followed
        } finally child.kill()
      val isOver = child.lines.asScala.exists(_.startsWith(CrashChild.Uploaded))
      if (batches == 0) early += 1
      val isFired = (isThere && !isOver) || place == atRandom
      if (isFired) fired(place) += 1 else missed += 1
      isFired
    }

    /** Runs the query to the end of its input, however much has piled up. */
    def finish(): Unit = {
      val child = start("none", 1)
      var idleSeconds = 0
      while (child.process.isAlive && idleSeconds < 120)
        Option(child.lines.poll(1, TimeUnit.SECONDS)).fold(idleSeconds += 1) { line =>
          note(line)
          idleSeconds = 0
        }
      val ended = child.process.waitFor(10, TimeUnit.SECONDS)
      child.kill()
      child.lines.forEach(l => note(l))
      assert(
        ended && child.process.exitValue == 0,
        s"the last run hangs or failed, see ${child.log}"
      )
    }

    /** The last row of each key, in the order of batches. */
    def output: Map[Int, (Long, Long)] =
      list(root.resolve("output")).filterNot(_.getFileName.toString.startsWith("."))
        .sortBy(_.getFileName.toString.toLong).flatMap { file =>
          Files.readAllLines(file, UTF_8).asScala.map(_.split(" ")).map { row =>
            row(0).toInt -> ((row(1).toLong, row(2).toLong))
          }
        }.toMap

    def expected: Map[Int, (Long, Long)] =
      rows.groupBy(_._1).map { case (k, vs) => k -> ((vs.length.toLong, vs.map(_._2.toLong).sum)) }

    def close(): Unit = {
      spare.kill()
      LocalDirectory.deleteTree(root.toFile)
    }

    private def addInput(n: Int): Unit = for (_ <- 0 until n) {
      val added = Seq.fill(40)((random.nextInt(150), random.nextInt(1000)))
      rows ++= added
      val fresh = root.resolve(f".$files%05d.new")
      Files.write(fresh, added.map { case (k, v) => s"""{"k":$k,"v":$v}""" }.asJava, UTF_8)
      Files.move(fresh, root.resolve(f"input/$files%05d.json"), StandardCopyOption.ATOMIC_MOVE)
      files += 1
    }

    /** Adds input until the child stands at its phase, and how many batches it committed; false after so
      * many batches without it. A random time counts from the child's first sign of life.
      */
    private def follow(child: Child, hasPhase: Boolean): (Boolean, Int) = {
      var isThere = false
      var batches = 0
      var deadline = System.nanoTime() + 120 * 1000000000L
      while (!isThere && batches < MaxBatches && System.nanoTime() < deadline) {
        Option(child.lines.poll(20, TimeUnit.MILLISECONDS)).foreach { line =>
          note(line)
          if (line.startsWith(CrashChild.AtPhase)) isThere = true
          if (line.startsWith(CrashChild.Batch)) {
            addInput(1)
            batches += 1
          }
          if (!hasPhase && line.startsWith(CrashChild.Ready))
            deadline = System.nanoTime() + random.nextInt(3000) * 1000000L
        }
        if (!child.process.isAlive) fail(s"the child ended by itself, see ${child.log}")
      }
      (isThere, batches)
    }

    private def note(line: String): Unit = if (line.startsWith(CrashChild.Loaded))
      line.split(" ").drop(2).map(_.split("=")).foreach { figure =>
        loads(figure(0)) += figure(1).toLong
      }

    /** Waits for its orders, so that its start costs no time later. */
    private def newSpare(): Child = {
      started += 1
      ChildJvm.start(root.resolve(s"child-${started % 2}.log").toFile, root.toString, format)
    }

    private def start(phase: String, visit: Int): Child = {
      val child = spare
      child.begin(phase, visit)
      spare = newSpare()
      child
    }
  }

  private def list(directory: Path): Seq[Path] = {
    val found = Files.list(directory)
    try found.iterator.asScala.toVector
    finally found.close()
  }
}

class CrashV1Suite extends CrashSuite("1")
class CrashV2Suite extends CrashSuite("2")
