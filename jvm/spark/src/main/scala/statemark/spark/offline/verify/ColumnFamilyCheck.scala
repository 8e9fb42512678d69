package statemark.spark.offline.verify

import java.io.File
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, StandardCopyOption}
import java.util.zip.ZipInputStream
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.apache.spark.sql.execution.streaming.state.{RocksDBLoader, StatemarkBridge}
import org.apache.spark.sql.SparkSession
import org.apache.spark.util.SerializableConfiguration
import org.rocksdb.{Options, RocksDB}
import scala.jdk.CollectionConverters._
import scala.util.Using
import statemark.spark.checkpoint.StoreFile
import statemark.spark.local.LocalDirectory
import statemark.spark.offline.checkpoint.{Jobs, StoreListing}
import statemark.spark.process.Relocated.CheckpointFileManager

/** Finds snapshots that Spark's provider could not open: it opens the default column family, and RocksDB
  * insists that all are opened (I10).
  */
object ColumnFamilyCheck {

  /** The newest snapshots with another column family than the default one: path and families. */
  def foreign(
      stores: Seq[StoreListing],
      spark: SparkSession,
      hadoopConf: Configuration
  ): Seq[(String, Seq[String])] = {
    val newest = stores.flatMap { store =>
      val snapshots = store.files.map(f => StoreFile.of(f.name)).collect {
        case StoreFile.Snapshot(at) => at
      }
      snapshots.maxByOption(_.version).map(at =>
        s"${store.directory}/${StoreFile.snapshotName(at)}"
      )
    }
    if (newest.isEmpty) Nil
    else {
      val conf = spark.sparkContext.broadcast(new SerializableConfiguration(hadoopConf))
      val found = spark.sparkContext.parallelize(newest, math.min(newest.length, 200)).map { path =>
        path -> familiesOf(new Path(path), conf.value.value)
      }.filter(_._2 != Seq("default"))
      Jobs.run(found.collect()).toSeq
    }
  }

  private def familiesOf(snapshot: Path, hadoopConf: Configuration): Seq[String] = {
    val local = StatemarkBridge.newLocalDirectory("statemark-check-")
    try {
      unzip(snapshot, hadoopConf, local)
      RocksDBLoader.loadLibrary()
      Using.resource(new Options()) { options =>
        RocksDB.listColumnFamilies(options, local.getPath).asScala.map(new String(_, UTF_8)).toSeq
      }
    } finally LocalDirectory.deleteTree(local)
  }

  private def unzip(snapshot: Path, hadoopConf: Configuration, target: File): Unit =
    Using.resource(new ZipInputStream(
      CheckpointFileManager.create(snapshot.getParent, hadoopConf).open(snapshot)
    )) { zip =>
      Iterator.continually(zip.getNextEntry).takeWhile(_ != null).foreach { entry =>
        // The entries are flat; a name that leads elsewhere is cut down to a file here.
        val file = new File(target, new File(entry.getName).getName).toPath
        Files.copy(zip, file, StandardCopyOption.REPLACE_EXISTING): Unit
      }
    }
}
