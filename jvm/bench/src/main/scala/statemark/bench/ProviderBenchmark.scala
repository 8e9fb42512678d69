package statemark.bench

import java.nio.file.{Files, Path, Paths}
import java.time.Duration

import scala.collection.mutable.LinkedHashMap
import scala.util.Try

import org.apache.spark.sql.SparkSession

/** State store providers side by side in one run, at the level of Spark's StateStoreProvider.
  * {{{
  * ProviderBenchmark [--providers name,name,other=its.Class] [--only workload,workload] [--out results.json]
  * }}}
  * QUICK=1 in the environment makes it a look of a minute instead of a record. Nothing here fails
  * because something is slow.
  */
object ProviderBenchmark {

  /** Medians by figure and contender, in the order in which they were measured. */
  private type Results = LinkedHashMap[String, Map[String, Seq[Double]]]

  def main(args: Array[String]): Unit = {
    val options = parse(args.toList)
    val quick = sys.env.get("QUICK").exists(_ != "0")
    val start = System.nanoTime()
    val asked =
      Contender.parse(options.getOrElse("providers", Contender.known.map(_.name).mkString(",")))
    val contenders = Contender.present(asked)
    require(contenders.nonEmpty, "--providers: none of the classes is on the class path")
    val workspace = Files.createTempDirectory("statemark-bench-")
    // Providers look for the session's environment: its coordinator, its local directories.
    val session = SparkSession
      .builder()
      .master("local[1]")
      .appName("statemark-bench")
      .config("spark.ui.enabled", "false")
      .config("spark.local.dir", workspace.resolve("local").toString)
      .getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    // Starts the coordinator that commits report to.
    require(session.streams.active.isEmpty)
    try {
      val results = new Results
      new ProviderWorkloads(quick).groups.foreach { group =>
        val workloads = group.workloads.filter(w =>
          options.get("only").forall(_.split(',').exists(w.name.contains))
        )
        if (workloads.nonEmpty) measure(group, workloads, contenders, workspace, results)
      }
      val seconds = Duration.ofNanos(System.nanoTime() - start).toSeconds
      report(results, contenders)
      options.get("out").foreach { file =>
        Output.writeJson(Paths.get(file), record(results, asked, contenders, quick, seconds))
      }
      Output.progress(s"done in $seconds s")
    } finally {
      session.stop()
      // Spark's shutdown hooks may still be removing their own part of it.
      Try(BaseStore.delete(workspace)): Unit
    }
  }

  private def measure(
      group: Group,
      workloads: Seq[Workload],
      contenders: Seq[Contender],
      workspace: Path,
      results: Results
  ): Unit = {
    val stores = contenders.flatMap(openOrExplain(group, _, workspace))
    try {
      stores.foreach { store =>
        Output.progress(s"${group.name}: loading ${store.contender.name}")
        group.preload(store)
        store.maintain()
      }
      workloads.foreach { workload =>
        val figures = Rounds.interleaved(
          s"${group.name}: ${workload.name}",
          stores,
          workload.warmups,
          workload.rounds,
          collect = workload.heavy
        ) { store =>
          val turn = workload.turn(store)
          if (store.version % VersionsPerMaintenance == 0) store.maintain()
          turn
        }
        val names = stores.flatMap(figures(_).keys).distinct.sorted
        names.foreach { name =>
          results(name) = stores.map(s => s.contender.name -> figures(s)(name)).toMap
        }
      }
    } finally stores.foreach(_.close())
  }

  /** Spark's in-memory provider has no column families; that is a "n/a", not a failure. */
  private def openOrExplain(group: Group, c: Contender, workspace: Path): Option[BenchStore] =
    try Some(new BenchStore(c, group.shape, workspace))
    catch {
      case e: UnsupportedOperationException =>
        Output.progress(s"${group.name}: n/a for ${c.name}: ${e.getMessage.linesIterator.next()}")
        None
    }

  private def report(results: Results, contenders: Seq[Contender]): Unit = {
    val names = contenders.map(_.name)
    val ratios = presentRatios(names)
    val rows = summary(results).map { case (figure, medians) =>
      val values = names.map(n => medians.getOrElse(n, Double.NaN))
      val quotients = ratios.map { r =>
        medians.getOrElse(r.ours, Double.NaN) / medians.getOrElse(r.theirs, Double.NaN)
      }
      figure +: (values ++ quotients).map(Output.figure)
    }
    val header = "median" +: (names ++ ratios.map(_.name))
    Output.table("State store providers", header, rows.toSeq)
  }

  private def presentRatios(names: Seq[String]): Seq[Contender.Ratio] =
    Contender.ratios.filter(r => names.contains(r.ours) && names.contains(r.theirs))

  /** The median of each figure; for commits the tail as well. */
  private def summary(results: Results): Seq[(String, Map[String, Double])] =
    results.toSeq.flatMap { case (figure, samples) =>
      val medians = samples.map { case (n, xs) => n -> Rounds.median(xs) }
      val tails =
        if (!figure.startsWith("commit of") || samples.values.exists(_.size < TailNeeds)) Nil
        else Seq(s"$figure, p99" -> samples.map { case (n, xs) => n -> Rounds.percentile(xs, 99) })
      (figure -> medians) +: tails
    }

  private def record(
      results: Results,
      asked: Seq[Contender],
      contenders: Seq[Contender],
      quick: Boolean,
      seconds: Long
  ): Map[String, Any] = {
    val names = contenders.map(_.name)
    Map(
      "command" -> (if (quick) "QUICK=1 make bench-providers" else "make bench-providers"),
      "seconds" -> seconds,
      "environment" -> Environment.describe(),
      "settings" -> Contender.shared,
      "providers" -> contenders.map(c =>
        c.name -> (Map("class" -> c.providerClass) ++ c.confs)
      ).toMap,
      "left out" -> asked.map(_.name).diff(names),
      "figures" -> summary(results).map { case (figure, medians) =>
        val quotients = presentRatios(names).collect {
          case r if medians.contains(r.ours) && medians.contains(r.theirs) =>
            r.name -> medians(r.ours) / medians(r.theirs)
        }
        Map[String, Any]("figure" -> figure, "median" -> medians, "ratio" -> quotients.toMap)
      },
      "samples" -> results.toMap
    )
  }

  private def parse(args: List[String]): Map[String, String] = args match {
    case "--providers" :: list :: rest => parse(rest) + ("providers" -> list)
    case "--only" :: workloads :: rest => parse(rest) + ("only" -> workloads)
    case "--out" :: file :: rest => parse(rest) + ("out" -> file)
    case Nil => Map.empty
    case other :: _ =>
      sys.error(s"$other: expected --providers LIST, --only WORKLOADS or --out FILE")
  }

  private val VersionsPerMaintenance = 10
  private val TailNeeds = 20
}
