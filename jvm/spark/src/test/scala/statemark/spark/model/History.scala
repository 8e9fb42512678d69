package statemark.spark.model

import java.io.File
import java.nio.file.Files
import java.util.concurrent.ExecutorService
import statemark.spark.Line

import scala.util.Random
import scala.util.control.NonFatal

import org.apache.hadoop.fs.FileUtil
import org.apache.spark.sql.execution.streaming.state.StateStoreProvider

/** Random steps: batches of 50 to 80 steps, each ended by a commit, an abort or a release, with provider
  * restarts, maintenance and second readers in between. Everything comes from the seed.
  */
object History {

  def draw(random: Random): Vector[Op] = {
    val ends = random.shuffle(
      Seq("commit", "commit", "abort", "retry", "retry") ++
        Seq.fill(random.nextInt(3))(Seq("commit", "retry", "abort", "read")(random.nextInt(4)))
    )
    (("commit" +: ends).flatMap(batch(_, random)) ++ Seq(
      Op.Open(rewind = false, readOnly = false, forceSnapshot = false),
      Op.ReadAll,
      Op.Abort,
      Op.ReadOld(random.nextInt(100), readStore = true),
      // In format v1 the newest version: what another machine would restore.
      Op.ReadOld(0, readStore = false)
    )).toVector
  }

  private def batch(end: String, random: Random): Seq[Op] = {
    def chance(percent: Int) = random.nextInt(100) < percent
    val viaRead = end == "read" || chance(30)
    val opening =
      Op.Open(rewind = end == "retry", viaRead, forceSnapshot = chance(10) && Line.hasStoreOf42)
    val steps = Seq.fill(50 + random.nextInt(30))(step(random))
    val (early, late) = steps.splitAt(if (viaRead && end != "read") random.nextInt(6) else 0)
    val upgrade =
      if (viaRead && end != "read") Seq(Op.Upgrade(chance(10) && Line.hasStoreOf42)) else Nil
    val closing = end match {
      case "abort" | "read" => Op.Abort
      case "retry" if chance(20) => Op.Abort
      case _ => Op.Commit
    }
    val families = Seq.fill(if (chance(60)) 1 + random.nextInt(2) else 0)(
      Op.CreateFamily(random.nextInt(100))
    )
    (opening +: early) ++ upgrade ++ families ++ late ++ Seq(closing) ++ between(random)
  }

  private def between(random: Random): Seq[Op] = Seq(
    25 -> Op.Maintenance,
    15 -> Op.Reload(linger = false),
    8 -> Op.Reload(linger = true),
    25 -> Op.CloseLingering(maintenanceFirst = random.nextBoolean()),
    20 -> Op.AdoptAttempt(random.nextInt(100)),
    10 -> Op.ReadOld(random.nextInt(100), random.nextBoolean()),
    10 -> Op.Replay(random.nextInt(100), random.nextBoolean()),
    15 -> Op.RollBack(1 + random.nextInt(4)),
    12 -> sparkBatches(random)
  ).collect { case (percent, op) if random.nextInt(100) < percent => op }

  /** Spark's provider does not count what a range delete removes; nor is a family removed here. */
  private def sparkBatches(random: Random): Op = {
    def write: Write = {
      val (family, key, value) = (random.nextInt(100), random.nextInt(1000), random.nextInt(1000))
      random.nextInt(5) match {
        case 0 => Op.Remove(family, key)
        case 1 => Op.Merge(family, key, value)
        case _ => Op.Put(family, key, value)
      }
    }
    val batches = Seq.fill(1 + random.nextInt(4))(Seq.fill(random.nextInt(8))(write))
    Op.SparkBatches(batches, random.nextBoolean())
  }

  private def step(random: Random): Op = {
    def f = random.nextInt(100)
    def key = random.nextInt(1000)
    def value = random.nextInt(1000)
    def some[A](next: => A) = Seq.fill(1 + random.nextInt(3))(next)
    def scan = random.nextInt(3) match {
      case 0 => Scan.All
      case 1 => Scan.Prefix(key)
      case _ =>
        def end = if (random.nextInt(4) == 0) None else Some(key)
        Scan.Range(end, end)
    }
    def slot = random.nextInt(3)
    def multi = random.nextBoolean()
    random.nextInt(100) match {
      case n if n < 22 => Op.Put(f, key, value)
      case n if n < 33 => Op.Remove(f, key)
      case n if n < 40 => Op.Merge(f, key, value)
      case n if n < 44 => Op.MergeList(f, key, some(value))
      case n if n < 48 => Op.PutList(f, key, some(value))
      case n if n < 51 => Op.DeleteRange(f, key, key)
      case n if n < 62 => Op.Get(f, key)
      case n if n < 65 => Op.MultiGet(f, some(key))
      case n if n < 68 => Op.KeyExists(f, key)
      case n if n < 72 => Op.Values(f, key)
      case n if n < 80 => Op.ReadScan(f, scan, multi)
      case n if n < 86 => Op.OpenScan(slot, f, scan, multi)
      case n if n < 92 => Op.AdvanceScan(slot, 1 + random.nextInt(4))
      case n if n < 95 => Op.FinishScan(slot)
      case n if n < 96 => Op.CloseScan(slot)
      case n if n < 97 => Op.ReadAll
      case n if n < 98 => Op.CreateFamily(f)
      case 98 => if (random.nextInt(3) == 0) Op.RemoveFamily(f) else Op.Get(f, key)
      case _ => Op.Maintenance
    }
  }
}

/** A history that failed, and how. */
final case class Failure(
    seed: Long,
    settings: Settings,
    ops: Vector[Op],
    log: Seq[String],
    cause: Throwable
) {
  override def toString: String = {
    val why = cause match {
      case d: Disagreement => d.getMessage
      case e =>
        s"no error, but: $e\n${e.getStackTrace.take(25).mkString("    at ", "\n    at ", "")}"
    }
    s"""STATEMARK_SEEDS=$seed
       |settings: $settings
       |${log.mkString("  ", "\n  ", "")}
       |$why""".stripMargin
  }
}

/** Draws histories and runs them against one provider class, each in a checkpoint of its own. */
final class Histories(
    traits: ProviderTraits,
    newProvider: () => StateStoreProvider,
    second: ExecutorService
) {

  /** Settings and steps of a seed: the same on every machine. */
  def draw(seed: Long): (Settings, Vector[Op]) = {
    val random = new Random(seed * 0x9e3779b97f4a7c15L)
    (Settings.draw(random), History.draw(random))
  }

  def run(seed: Long): Either[Failure, Counts] = {
    val (settings, ops) = draw(seed)
    run(seed, settings, ops)
  }

  def run(seed: Long, settings: Settings, ops: Vector[Op]): Either[Failure, Counts] = {
    val dir = Files.createTempDirectory("history").toFile
    val machine = new Machine(settings, traits, newProvider, new File(dir, "state"), second)
    var done = 0
    try {
      try ops.foreach { op => machine.run(op); done += 1 }
      finally machine.close()
      Right(machine.counts)
    } catch {
      case NonFatal(e) => Left(Failure(seed, settings, ops.take(done + 1), machine.log.toSeq, e))
    } finally FileUtil.fullyDelete(dir)
  }

  /** Drops steps, in ever smaller blocks, while the history still fails. */
  def shrink(failure: Failure, tries: Int = 300): Failure = {
    var smallest = failure
    var left = tries
    var size = failure.ops.size / 2
    while (size >= 1 && left > 0) {
      var from = 0
      while (from < smallest.ops.size && left > 0) {
        val fewer = smallest.ops.patch(from, Nil, size)
        left -= 1
        run(failure.seed, failure.settings, fewer) match {
          case Left(found) => smallest = found
          case Right(_) => from += size
        }
      }
      size /= 2
    }
    smallest
  }
}
