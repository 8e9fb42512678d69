package statemark.bench

import java.nio.file.{Files, Paths}

/** A restart in a fresh process, by size of the state: Spark's RocksDB provider beside Statemark, with
  * its local state and without any, on a local checkpoint location and on a slow one.
  *
  * {{{
  *   --keys 1000000,10000000     sizes of one partition
  *   --query-keys 10000000       sizes of the whole query
  *   --rounds 3                  restarts of each; the median counts
  *   --out FILE                  results as JSON
  * }}}
  */
object RestartBenchmark {

  /** @param isKept whether local state is there */
  private final case class Variant(name: String, contender: String, isKept: Boolean)

  private val theirs = Variant(Contender.SparkRocksDb, Contender.SparkRocksDb, isKept = true)
  private val variants = Seq(
    theirs,
    Variant(Contender.Statemark, Contender.Statemark, isKept = true),
    Variant(s"${Contender.Statemark}, nothing local", Contender.Statemark, isKept = false)
  )
  private val systems = Seq("local" -> "", "slow" -> "slow://")

  /** Median milliseconds by variant. */
  private type Row = (String, Map[String, Double])

  def main(args: Array[String]): Unit = args.toSeq match {
    case Seq("build", kind, dir, name, keys) =>
      kindOf(kind).build(Paths.get(dir), contender(name), keys.toInt)
    case Seq("restart", kind, dir, name, keys, prefix, localDir, result) =>
      val ms = kindOf(kind)
        .restart(Paths.get(dir), contender(name), keys.toInt, prefix, Paths.get(localDir))
      Files.writeString(Paths.get(result), ms.toString): Unit
    case options =>
      val value = options.grouped(2).collect { case Seq(k, v) => k -> v }.toMap
      def sizes(option: String) =
        value.getOrElse(option, "1000000").split(',').toSeq.filter(_.nonEmpty).map(_.toInt)
      val start = System.nanoTime()
      val rounds = value.getOrElse("--rounds", "3").toInt
      val asked =
        sizes("--keys").map((OneStore, _)) ++ sizes("--query-keys").map((WholeQuery, _))
      require(asked.nonEmpty, "name a size with --keys or --query-keys")
      val rows = asked.flatMap { case (kind, keys) => measure(kind, keys, rounds) }
      report(rows)
      value.get("--out").foreach { file =>
        Output.writeJson(Paths.get(file), record(rows, rounds, (System.nanoTime() - start) / 1e9))
      }
  }

  private def measure(kind: Restarts, keys: Int, rounds: Int): Seq[Row] = {
    val workspace = Files.createTempDirectory("statemark-restart")
    try {
      val dirs = variants.map { v =>
        v -> workspace.resolve((if (kind.onlyReads) v.contender else v.name).replaceAll(
          "\\W+",
          "-"
        ))
      }
      ChildProcess.sideBySide(dirs.distinctBy(_._2)) { case (v, dir) =>
        Output.progress(s"${kind.name}: building $keys keys, ${v.name}")
        Files.createDirectory(dir)
        child("build", kind.name, dir.toString, v.contender, keys.toString)
      }
      // Turns, so that what the machine does meanwhile falls on all alike.
      val times = for {
        round <- 0 until rounds
        (system, prefix) <- systems
        (variant, dir) <- dirs
      } yield {
        val localDir = dir.resolve(if (variant.isKept) "local" else s"local-$system-$round")
        val result = dir.resolve("result")
        child(
          Seq("restart", kind.name, dir.toString, variant.contender, keys.toString, prefix) ++
            Seq(localDir, result).map(_.toString): _*
        )
        val ms = Files.readString(result).toDouble
        Output.progress(f"${kind.name}: $keys keys, $system, ${variant.name}: $ms%.0f ms")
        (system, variant.name) -> ms
      }
      val medians = times.groupMap(_._1)(_._2).map { case (k, ms) => k -> Rounds.median(ms) }
      systems.map { case (system, _) =>
        f"${kind.name}, $keys%,d keys, $system" ->
          variants.map(v => v.name -> medians((system, v.name))).toMap
      }
    } finally BaseStore.delete(workspace)
  }

  private def ratios(medians: Map[String, Double]): Seq[(String, Double)] =
    variants.filter(_ != theirs).map(v => v.name -> medians(v.name) / medians(theirs.name))

  private def report(rows: Seq[Row]): Unit = Output.table(
    "Restart in a fresh process, ms (median); ÷ Spark's",
    "restart" +: (variants.map(_.name) ++ ratios(rows.head._2).map("÷ " + _._1)),
    rows.map { case (name, medians) =>
      name +: (variants.map(v => medians(v.name)) ++ ratios(medians).map(_._2)).map(Output.figure)
    }
  )

  private def record(rows: Seq[Row], rounds: Int, seconds: Double): Map[String, Any] = Map(
    "rounds" -> rounds,
    "seconds" -> seconds.toLong,
    "environment" -> Environment.describe(),
    "variants" -> variants.map(_.name),
    "figures" -> rows.map { case (name, medians) =>
      Map[String, Any]("figure" -> name, "median" -> medians, "ratio" -> ratios(medians).toMap)
    }
  )

  private def kindOf(name: String): Restarts = Restarts.all.find(_.name == name).get

  private def contender(name: String): Contender = Contender.parse(name).head

  private def child(args: String*): Unit =
    ChildProcess.run("statemark.bench.RestartBenchmark", args)
}
