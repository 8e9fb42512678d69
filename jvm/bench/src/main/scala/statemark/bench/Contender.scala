package statemark.bench

import java.nio.file.Path

/** A state store provider and the settings it runs with. */
final case class Contender(name: String, providerClass: String, confs: Map[String, String]) {

  /** @param localDir where Statemark keeps local state beyond the process */
  def settings(localDir: Path): Map[String, String] = Contender.shared ++ confs ++ Map(
    s"${Contender.conf}.providerClass" -> providerClass,
    s"${Contender.conf}.statemark.localDir" -> localDir.toString
  )
}

object Contender {
  private val conf = "spark.sql.streaming.stateStore"
  private val sparkRocksDb =
    "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
  private val statemark = "statemark.spark.StatemarkStateStoreProvider"
  private val untracked = s"$conf.rocksdb.trackTotalNumberOfRows" -> "false"

  /** What all run with. Statemark always writes a changelog; Spark's provider only with the first
    * setting, and without it uploads whole files in every commit. Reports of snapshots go to a
    * coordinator that knows the query, and there is none here.
    */
  val shared: Map[String, String] = Map(
    s"$conf.rocksdb.changelogCheckpointing.enabled" -> "true",
    s"$conf.coordinatorReportSnapshotUploadLag" -> "false"
  )

  val SparkRocksDb = "spark-rocksdb"
  val SparkRocksDbUntracked = "spark-rocksdb-untracked"
  val SparkInMemory = "spark-hdfs"
  val Statemark = "statemark"
  val StatemarkUntracked = "statemark-untracked"

  val known: Seq[Contender] = Seq(
    Contender(SparkRocksDb, sparkRocksDb, Map.empty),
    Contender(SparkRocksDbUntracked, sparkRocksDb, Map(untracked)),
    Contender(
      SparkInMemory,
      "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
      Map.empty
    ),
    Contender(Statemark, statemark, Map.empty),
    Contender(StatemarkUntracked, statemark, Map(untracked))
  )

  /** Who is divided by whom, under which name: always at the same row tracking, where the other has
    * such a thing.
    */
  final case class Ratio(name: String, ours: String, theirs: String)

  val ratios: Seq[Ratio] = Seq(
    Ratio("÷ rocksdb", Statemark, SparkRocksDb),
    Ratio("untracked ÷ untracked", StatemarkUntracked, SparkRocksDbUntracked),
    Ratio("÷ hdfs", Statemark, SparkInMemory)
  )

  /** Known names, or `name=class` for any other provider, separated by commas. */
  def parse(list: String): Seq[Contender] = list.split(',').toSeq.map(_.trim).map { entry =>
    entry.split('=') match {
      case Array(name, providerClass) => Contender(name, providerClass, Map.empty)
      case _ =>
        known.find(_.name == entry).getOrElse {
          val names = known.map(_.name).mkString(", ")
          sys.error(s"--providers: $entry is not known; use name=class or some of $names")
        }
    }
  }

  /** Those whose class can be loaded; the others are named, not silently left out. */
  def present(contenders: Seq[Contender]): Seq[Contender] = contenders.filter { c =>
    try {
      Class.forName(c.providerClass, false, Thread.currentThread.getContextClassLoader)
      true
    } catch {
      case _: ClassNotFoundException =>
        Output.progress(s"${c.name}: left out, ${c.providerClass} is not on the class path")
        false
    }
  }
}
