package statemark.bench

import java.io.{BufferedReader, File, InputStreamReader}
import java.lang.management.ManagementFactory
import java.nio.file.{Files, Path, Paths}
import java.util.UUID

import org.apache.hadoop.conf.Configuration
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.internal.SQLConf
import scala.jdk.CollectionConverters._

import statemark.spark.BenchQuery

/** From the start of a provider in a fresh process to its first row, by size of the state: Spark's RocksDB
  * provider beside Statemark, on a local checkpoint location and on a slow one.
  *
  * {{{
  *   --keys 1000000,10000000   sizes of one partition
  *   --rounds 5                restarts of each; the median counts
  *   --out FILE                results as JSON
  * }}}
  */
object RestartBenchmark {
  private val contenders = Seq(Contender.SparkRocksDb, Contender.Statemark)
  private val systems = Seq("local", "slow")
  private val batch = 500000

  def main(args: Array[String]): Unit = args.toSeq match {
    case Seq("build", dir, name, keys) => build(Paths.get(dir), name, keys.toInt)
    case Seq("restart", dir, name, version, system, key) =>
      restart(Paths.get(dir), name, version.toLong, system, key.toInt)
    case options =>
      val value = options.grouped(2).collect { case Seq(k, v) => k -> v }.toMap
      val keys = value.getOrElse("--keys", "1000000").split(',').toSeq.map(_.toInt)
      run(keys, value.getOrElse("--rounds", "5").toInt, value.get("--out").map(Paths.get(_)))
  }

  private def run(sizes: Seq[Int], rounds: Int, out: Option[Path]): Unit = {
    val workspace = Files.createTempDirectory("statemark-restart")
    try {
      val results = for (keys <- sizes) yield {
        val stores = contenders.map { name =>
          val dir = Files.createDirectory(workspace.resolve(s"$name-$keys"))
          Output.progress(s"$name: building $keys keys")
          name -> ((dir, child("build", dir.toString, name, keys.toString).toLong))
        }
        // Turns, so that what the machine does meanwhile falls on all alike.
        val times = for {
          _ <- 0 until rounds
          system <- systems
          (name, (dir, version)) <- stores
        } yield {
          val ms =
            child("restart", dir.toString, name, version.toString, system, (keys / 2).toString)
          Output.progress(s"$keys keys, $system, $name: $ms ms")
          (system, name) -> ms.toDouble
        }
        keys -> times.groupMap(_._1)(_._2).map { case (k, ms) => k -> median(ms) }
      }
      report(results)
      val flat = for ((keys, ms) <- results; ((system, name), median) <- ms)
        yield s"$keys keys, $system, $name, ms" -> median
      out.foreach(Output.writeJson(_, flat.toMap))
    } finally BaseStore.delete(workspace)
  }

  private def report(results: Seq[(Int, Map[(String, String), Double])]): Unit = {
    val rows = for ((keys, ms) <- results; system <- systems) yield {
      val (theirs, ours) = (ms((system, contenders(0))), ms((system, contenders(1))))
      Seq(
        f"$keys%,d keys, $system",
        Output.figure(theirs),
        Output.figure(ours),
        Output.figure(ours / theirs)
      )
    }
    Output.table(
      "Restart in a fresh process: provider's start to the first row, ms (median)",
      Seq("state", contenders(0), contenders(1), "ratio"),
      rows
    )
  }

  private def median(values: Seq[Double]): Double = values.sorted.apply(values.length / 2)

  // ---- in the children; the last line of a child is its result

  private def build(dir: Path, name: String, keys: Int): Unit = {
    val provider = open(dir, name, "local")
    var version = 0L
    for (from <- 0 until keys by batch) {
      val store = provider.getStore(version)
      for (i <- from until math.min(from + batch, keys)) store.put(key(i), Rows.valueOf(i))
      version = store.commit()
      provider.doMaintenance()
    }
    // A few small batches after the last snapshot, as a running query has them.
    for (i <- 0 until 3) {
      val store = provider.getStore(version)
      for (k <- 0 until 1000) store.put(key(k), Rows.valueOf(i))
      version = store.commit()
    }
    provider.close()
    println(version)
  }

  private def restart(dir: Path, name: String, version: Long, system: String, first: Int): Unit = {
    org.rocksdb.RocksDB.loadLibrary() // an executor loads it once
    val provider = open(dir, name, system)
    val started = System.nanoTime()
    val store = provider.getStore(version)
    val row = store.get(key(first), StateStore.DEFAULT_COL_FAMILY_NAME)
    val ms = (System.nanoTime() - started) / 1000000L
    require(row.getInt(0) == first, s"$row is not the row of $first")
    store.abort()
    provider.close()
    println(ms)
  }

  private def key(i: Int) = Rows.keyOf(Integer.reverse(i), i * 1000L)

  private def open(dir: Path, name: String, system: String): StateStoreProvider = {
    BenchQuery.begin()
    val contender = Contender.known.find(_.name == name).get
    val sqlConf = new SQLConf()
    val store = "spark.sql.streaming.stateStore"
    val own = Map(
      s"$store.providerClass" -> contender.providerClass,
      s"$store.statemark.localDir" -> dir.resolve("local").toString
    )
    (Contender.shared ++ contender.confs ++ own).foreach { case (k, v) =>
      sqlConf.setConfString(k, v)
    }
    val hadoopConf = new Configuration()
    hadoopConf.set("sql.streaming.runId", UUID.randomUUID().toString)
    hadoopConf.set("fs.slow.impl", classOf[SlowFileSystem].getName)
    val location = dir.resolve("checkpoint/state").toString
    val provider = StateStoreProvider.create(contender.providerClass)
    provider.init(
      StateStoreId(if (system == "slow") s"slow://$location" else location, 0, 0),
      Rows.plain.key,
      Rows.plain.value,
      Rows.plain.encoder,
      useColumnFamilies = false,
      new StateStoreConf(sqlConf),
      hadoopConf
    )
    provider
  }

  /** Spark's own jars, and the one of this class, which spark-submit adds by a class loader. */
  private def classPath: String = {
    val own = new File(getClass.getProtectionDomain.getCodeSource.getLocation.toURI).getPath
    System.getProperty("java.class.path") + File.pathSeparator + own
  }

  private def child(args: String*): String = {
    val flags = ManagementFactory.getRuntimeMXBean.getInputArguments.asScala
      .filter(a => a.startsWith("--add-") || a.startsWith("-X"))
    val command = Seq(new File(System.getProperty("java.home"), "bin/java").getPath) ++ flags ++
      Seq("-cp", classPath, "statemark.bench.RestartBenchmark") ++ args
    val process = new ProcessBuilder(command: _*)
      .redirectError(ProcessBuilder.Redirect.DISCARD).start()
    val lines = new BufferedReader(
      new InputStreamReader(process.getInputStream)
    ).lines().iterator.asScala.toVector
    require(process.waitFor() == 0 && lines.nonEmpty, s"${args.mkString(" ")} failed")
    lines.last
  }
}
