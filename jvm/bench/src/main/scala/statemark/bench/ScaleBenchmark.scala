package statemark.bench

import java.nio.file.{Files, Path, Paths}
import java.util.Random

import com.fasterxml.jackson.databind.ObjectMapper
import scala.jdk.CollectionConverters._

/** What a row costs as the state of one partition grows, and the memory that it takes: get then put of random keys
  * and the commit, by size, with the defaults of each provider and with the same bound on native memory. Each figure has a
  * process to itself.
  *
  * {{{
  *   --keys 100000,1000000   sizes
  *   --rounds 3              processes for each; the median counts
  *   --out FILE              results as JSON
  * }}}
  */
object ScaleBenchmark {
  private val SameMemoryMb = 256
  private val BatchRows = 10000
  private val Warmups = 20
  private val Batches = 40
  private val HeapMb = 4096

  /** Spark's provider has memtables, indexes and filters on top of its cache. Its own bound would put them into it, and
    * from some millions of keys on it reads the filter of a file for each row then (docs/adr/0011).
    */
  private val sameMemory = Map(
    Contender.SparkRocksDb -> "blockCacheSizeMB",
    Contender.Statemark -> "maxMemoryUsageMB"
  ).map { case (name, key) =>
    name -> Map(s"spark.sql.streaming.stateStore.rocksdb.$key" -> SameMemoryMb.toString)
  }

  /** A provider, and which one's checkpoint it runs on. */
  private final case class Variant(contender: Contender, builder: Contender)

  private val variants: Seq[Variant] = for {
    isSame <- Seq(false, true)
    name <- Seq(Contender.SparkRocksDb, Contender.Statemark)
    confs = if (isSame) sameMemory(name) else Map.empty[String, String]
    plain = contender(name)
    label = if (confs.isEmpty) name else s"$name, $SameMemoryMb MB"
  } yield Variant(Contender(label, plain.providerClass, plain.confs ++ confs), plain)

  /** Median by figure, and by variant. */
  private type Row = (String, Map[String, Double])

  def main(args: Array[String]): Unit = args.toSeq match {
    case Seq("build", dir, name, keys) =>
      OneStore.build(Paths.get(dir), contender(name), keys.toInt)
    case Seq("run", dir, name, keys, seed, result) =>
      val variant = variants.find(_.contender.name == name).get
      val figures = run(Paths.get(dir), variant.contender, keys.toInt, seed.toLong)
      new ObjectMapper().writeValue(Paths.get(result).toFile, figures.asJava)
    case options =>
      val value = options.grouped(2).collect { case Seq(k, v) => k -> v }.toMap
      val start = System.nanoTime()
      val rounds = value.getOrElse("--rounds", "3").toInt
      val sizes = value.getOrElse("--keys", "100000,1000000").split(',').toSeq.map(_.toInt)
      val rows = sizes.flatMap(measure(_, rounds))
      report(rows)
      value.get("--out").foreach { file =>
        Output.writeJson(Paths.get(file), record(rows, rounds, (System.nanoTime() - start) / 1e9))
      }
  }

  private def measure(keys: Int, rounds: Int): Seq[Row] = {
    val workspace = Files.createTempDirectory("statemark-scale")
    try {
      val dirs = variants.map(_.builder.name).distinct
        .map(name => name -> Files.createDirectory(workspace.resolve(name))).toMap
      ChildProcess.sideBySide(dirs.toSeq) { case (name, dir) =>
        Output.progress(f"building $keys%,d keys, $name")
        child("build", dir.toString, name, keys.toString)
      }
      val samples = for {
        round <- 0 until rounds
        variant <- variants
      } yield {
        val dir = dirs(variant.builder.name)
        val result = workspace.resolve("result")
        val name = variant.contender.name
        child("run", dir.toString, name, keys.toString, round.toString, result.toString)
        val figures =
          new ObjectMapper().readValue(result.toFile, classOf[java.util.Map[String, Double]])
        Output.progress(
          f"$keys%,d keys, round ${round + 1}, $name: ${figures.asScala.mkString(", ")}"
        )
        name -> figures.asScala.toMap
      }
      val byName = samples.groupMap(_._1)(_._2)
      Figures.map { figure =>
        f"$figure, $keys%,d keys" ->
          byName.map { case (name, runs) => name -> Rounds.median(runs.map(_(figure))) }
      }
    } finally BaseStore.delete(workspace)
  }

  private val GetPut = "get then put, ns a row"
  private val WithCommit = "get then put and commit, ns a row"
  private val Native = "memory outside the heap, MB"
  private val Heap = "live heap, MB"
  private val Both = "memory, heap and outside, MB"
  private val Figures = Seq(GetPut, WithCommit, Native, Heap, Both)

  /** Random keys, ten thousand a batch, over the state that `build` left. The heap is of one size and touched from the
    * start, so that what the process holds beyond it is outside the heap.
    */
  private def run(
      dir: Path,
      contender: Contender,
      keys: Int,
      seed: Long
  ): Map[String, java.lang.Double] = {
    val provider = OneStore.open(dir, contender, "", dir.resolve("local"))
    var version = OneStore.version(dir)
    val random = new Random(seed)
    val batches = (1 to Warmups + Batches).map { i =>
      val rows = Array.fill(BatchRows)(random.nextInt(keys))
      val pairs = rows.map(k => (OneStore.key(k), Rows.valueOf(k)))
      val store = provider.getStore(version)
      val calls = Rounds.timed(pairs.foreach { case (key, value) =>
        require(store.get(key) != null, "a row is lost")
        store.put(key, value)
      })
      val commit = Rounds.timed { version = store.commit() }
      store.metrics: Unit
      if (i % 10 == 0) provider.doMaintenance()
      (calls / BatchRows, (calls + commit) / BatchRows)
    }.drop(Warmups)
    System.gc()
    val runtime = Runtime.getRuntime
    val native = peakMemoryMb - HeapMb
    val heap = (runtime.totalMemory - runtime.freeMemory) / 1048576.0
    val figures = Map(
      GetPut -> Rounds.median(batches.map(_._1)),
      WithCommit -> Rounds.median(batches.map(_._2)),
      Native -> native,
      Heap -> heap,
      Both -> (native + heap)
    )
    provider.close()
    OneStore.setVersion(dir, version)
    figures.map { case (name, value) => name -> Double.box(value) }
  }

  /** The most that the process has held, as Linux tells. */
  private def peakMemoryMb: Double = {
    val status = Files.readAllLines(Paths.get("/proc/self/status")).asScala
    status.find(_.startsWith("VmHWM:")).get.split("\\s+")(1).toDouble / 1024
  }

  private def ratios(medians: Map[String, Double]): Seq[(String, Double)] =
    variants.grouped(2).toSeq.map(pair => (pair.head, pair.last)).map { case (theirs, ours) =>
      val kind = if (ours.contender.name == ours.builder.name) "defaults" else s"$SameMemoryMb MB"
      s"÷ rocksdb, $kind" -> medians(ours.contender.name) / medians(theirs.contender.name)
    }

  private def report(rows: Seq[Row]): Unit = Output.table(
    "Cost of a row and memory by size of the state",
    "median" +: (variants.map(_.contender.name) ++ ratios(rows.head._2).map(_._1)),
    rows.map { case (name, medians) =>
      name +: (variants.map(v => medians(v.contender.name)) ++ ratios(medians).map(_._2))
        .map(Output.figure)
    }
  )

  private def record(rows: Seq[Row], rounds: Int, seconds: Double): Map[String, Any] = Map(
    "rounds" -> rounds,
    "seconds" -> seconds.toLong,
    "environment" -> (Environment.describe() + ("heap MB" -> HeapMb.toString)),
    "providers" -> variants.map(_.contender.name),
    "same memory MB" -> SameMemoryMb,
    "figures" -> rows.map { case (name, medians) =>
      Map[String, Any]("figure" -> name, "median" -> medians, "ratio" -> ratios(medians).toMap)
    }
  )

  private def contender(name: String): Contender = Contender.parse(name).head

  private def child(args: String*): Unit = ChildProcess.run(
    "statemark.bench.ScaleBenchmark",
    args,
    Seq(s"-Xms${HeapMb}m", s"-Xmx${HeapMb}m", "-XX:+AlwaysPreTouch")
  )
}
