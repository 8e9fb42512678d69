package statemark.bench

import java.lang.management.ManagementFactory
import java.net.{URL, URLClassLoader}
import java.nio.file.{Files, Paths}
import java.util.UUID

import org.apache.hadoop.conf.Configuration
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.internal.SQLConf

/** What a change costs where rows are written, read and committed: several builds of the provider beside each other in one JVM,
  * each with classes of its own, in turns. The first is what the others are compared with; naming a build twice shows
  * how much of a difference is noise. Usage: `PutPathBenchmark before=old.jar after=new.jar`, where a build of
  * several folders of classes has them separated by colons.
  */
object PutPathBenchmark {
  private val Count = sys.env.get("ROWS").fold(100000)(_.toInt)
  private val Warmups = 5
  private val rounds = if (sys.env.get("QUICK").exists(_ != "0")) 20 else 60

  def main(args: Array[String]): Unit = {
    val builds = args.toSeq.map { arg =>
      val (name, paths) = arg.splitAt(arg.indexOf('='))
      name -> new OwnClasses(paths.drop(1).split(":").map(p => Paths.get(p).toUri.toURL))
    }
    val rows = Rows.random(Count, seed = 42)
    val others = Rows.random(Count, seed = 43)
    val figures = Rounds.interleaved("put path", builds.map(_._1), Warmups, rounds) { name =>
      measure(builds.toMap.apply(name), rows, others)
    }
    val columns = Seq(
      "put",
      "put again",
      "get staged",
      "scan",
      "commit",
      "commit unread",
      "get base",
      "get half",
      "get none"
    )
    val first = builds.head._1
    Output.table(
      s"$Count rows, ns of the thread per row, median of $rounds rounds; in brackets, the median of the rounds' ratios to $first",
      "" +: columns,
      builds.map { case (name, _) =>
        name +: columns.map { c =>
          val ratios = figures(name)(c).zip(figures(first)(c)).map { case (a, b) => a / b }
          f"${Rounds.median(figures(name)(c))}%.0f (${Rounds.median(ratios)}%.3f)"
        }
      }
    )
  }

  private def measure(
      classes: ClassLoader,
      rows: Array[Rows.Pair],
      others: Array[Rows.Pair]
  ): Map[String, Double] = {
    val checkpoint = Files.createTempDirectory("put-path")
    val provider = open(classes, checkpoint.toString)
    try {
      val store = provider.getStore(0)
      def each(body: Rows.Pair => Unit) = timed(rows.foreach(body)) / rows.length
      val figures = Map(
        "put" -> each { case (k, v) => store.put(k, v) },
        "put again" -> each { case (k, v) => store.put(k, v) },
        "get staged" -> each { case (k, _) => store.get(k): Unit },
        "scan" -> timed(store.iterator().foreach(_ => ())) / rows.length
      )
      val version = timed(store.commit(): Unit) / rows.length
      // The rows are in the base now, and each commit has to know which keys were there.
      val next = provider.getStore(1)
      rows.foreach { case (k, v) => next.put(k, v) }
      val unread = timed(next.commit(): Unit) / rows.length
      val reader = provider.getStore(2)
      def get(all: Seq[Rows.Pair]) = timed(all.foreach(r => reader.get(r._1): Unit)) / all.length
      val half = rows.toSeq.zip(others).flatMap { case (a, b) => Seq(a, b) }.drop(rows.length)
      // Each key once: what was read is remembered.
      val found = Map(
        "get base" -> get(rows.toSeq.take(rows.length / 2)),
        "get none" -> get(others.toSeq.take(rows.length / 2)),
        "get half" -> get(half)
      )
      reader.abort()
      figures ++ found + ("commit" -> version) + ("commit unread" -> unread)
    } finally {
      provider.close()
      BaseStore.delete(checkpoint)
    }
  }

  /** Nanoseconds of this thread: what others do on the machine counts for less. */
  private def timed(body: => Unit): Double = {
    val threads = ManagementFactory.getThreadMXBean
    val start = threads.getCurrentThreadCpuTime
    body
    (threads.getCurrentThreadCpuTime - start).toDouble
  }

  private def open(classes: ClassLoader, location: String): StateStoreProvider = {
    val hadoopConf = new Configuration()
    hadoopConf.set("sql.streaming.runId", UUID.randomUUID().toString)
    val provider = classes.loadClass("statemark.spark.StatemarkStateStoreProvider")
      .getConstructor().newInstance().asInstanceOf[StateStoreProvider]
    provider.init(
      StateStoreId(s"$location/state", operatorId = 0, partitionId = 0),
      Rows.plain.key,
      Rows.plain.value,
      Rows.plain.encoder,
      false,
      new StateStoreConf(new SQLConf()),
      hadoopConf
    )
    provider
  }

  /** A build's own classes; everything else, and RocksDB above all, is shared. */
  private final class OwnClasses(urls: Array[URL])
      extends URLClassLoader(urls, classOf[StateStoreProvider].getClassLoader) {
    override def loadClass(name: String, resolve: Boolean): Class[_] =
      getClassLoadingLock(name).synchronized {
        if (!isOwn(name)) super.loadClass(name, resolve)
        else Option(findLoadedClass(name)).getOrElse(findClass(name))
      }

    private def isOwn(name: String): Boolean =
      name.startsWith("statemark.") || findResource(name.replace('.', '/') + ".class") != null
  }
}
