package statemark.spark.offline.inspect

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.apache.spark.sql.execution.streaming.state.StatemarkBridge
import org.apache.spark.sql.SparkSession
import org.apache.spark.util.SerializableConfiguration
import statemark.engine.VersionId
import statemark.spark.checkpoint.StoreFile
import statemark.spark.local.LocalDirectory
import statemark.spark.offline.checkpoint.{Jobs, QueryCheckpoint, StoreListing}
import statemark.spark.offline.verify.{FindingKind, Problem, SnapshotCheck, StoreChain, StoreFiles}

/** A virtual column family: a state variable, a timer, or the rows of an operator without them. */
final case class FamilyFacts(name: String, id: Int, isInternal: Boolean)

/** What the newest snapshot of a store says.
  *
  * @param rows None where rows are not tracked
  */
final case class SnapshotFacts(
    version: Long,
    rows: Option[Long],
    internalRows: Option[Long],
    families: Seq[FamilyFacts]
)

/** One partition of one store.
  *
  * @param oldest oldest committed version that file names promise; `verify` proves it
  * @param newest newest one
  * @param newestSnapshot what it says, or why nothing is known of it
  */
final case class PartitionFacts(
    partition: Int,
    oldest: Option[Long],
    newest: Option[Long],
    snapshots: Int,
    newestSnapshot: Either[String, SnapshotFacts],
    changelogBytes: Long,
    snapshotBytes: Long,
    sharedBytes: Long,
    checksumFiles: Int
) {
  def bytes: Long = changelogBytes + snapshotBytes + sharedBytes
}

/** One store over all its partitions. */
final case class StoreFacts(operator: Long, name: String, partitions: Seq[PartitionFacts]) {
  def bytes: Long = partitions.map(_.bytes).sum

  /** Rows of all partitions; None where one of them tells none. */
  def rows: Option[Long] = {
    val known = partitions.flatMap(_.newestSnapshot.toOption.flatMap(_.rows))
    Option.when(known.length == partitions.length)(known.sum)
  }

  /** The largest partition by what the mean is of; None for an empty store. */
  def skew: Option[Double] = {
    val sizes = partitions.map(_.bytes)
    Option.when(sizes.sum > 0)(sizes.max.toDouble * sizes.length / sizes.sum)
  }

  def families: Seq[FamilyFacts] =
    partitions.flatMap(_.newestSnapshot.toOption.toSeq.flatMap(_.families)).distinct.sortBy(_.id)
}

object Inspection {

  /** @param lastCommitted the newest committed batch */
  def stores(
      checkpoint: QueryCheckpoint,
      committed: Seq[Long],
      spark: SparkSession
  ): Seq[StoreFacts] = {
    val listings = checkpoint.stores(withShared = true)
    if (listings.isEmpty) Nil
    else {
      val conf = spark.sparkContext.broadcast(new SerializableConfiguration(checkpoint.hadoopConf))
      val facts = spark.sparkContext.parallelize(listings, math.min(listings.length, 200)).map { l =>
        (l.operator, l.name, partition(l, committed, conf.value.value))
      }
      Jobs.run(facts.collect()).toSeq.groupBy(f => (f._1, f._2)).toSeq.sortBy(_._1).map {
        case ((operator, name), own) =>
          StoreFacts(operator, name, own.map(_._3).sortBy(_.partition))
      }
    }
  }

  private def partition(
      listing: StoreListing,
      committed: Seq[Long],
      hadoopConf: Configuration
  ): PartitionFacts = {
    val byKind = listing.files.map(f => (f, StoreFile.of(f.name)))
    val snapshots = byKind.collect { case (f, StoreFile.Snapshot(at)) => at -> f }
    val maps = byKind.collect { case (f, StoreFile.FullMap(v)) => v -> f }
    val changes = byKind.collect {
      case (f, StoreFile.Changelog(at)) => at.version -> f
      case (f, StoreFile.Delta(v)) => v -> f
    }
    // By number alone: which attempt a file is of makes no difference here.
    val chain = StoreChain(
      (snapshots.map(_._1.version) ++ maps.map(_._1)).map(VersionId(_, None)).toSet,
      changes.map(c => VersionId(c._1, None)).toSet,
      Map.empty
    )
    val restorable = committed.map(_ + 1).filter(v => chain.path(VersionId(v, None)).isRight)
    PartitionFacts(
      listing.partition,
      restorable.headOption,
      restorable.lastOption,
      snapshots.length + maps.length,
      snapshots.map(_._1).maxByOption(_.version).fold[Either[String, SnapshotFacts]](
        Left(if (maps.isEmpty) "no snapshot yet"
        else "the HDFS-backed provider counts no rows in its files")
      )(read(listing, _, hadoopConf)),
      changes.map(_._2.bytes).sum,
      (snapshots.map(_._2) ++ maps.map(_._2)).map(_.bytes).sum,
      byKind.collect { case (f, StoreFile.Shared) => f.bytes }.sum,
      byKind.count(_._2.isInstanceOf[StoreFile.Sidecar])
    )
  }

  private def read(
      listing: StoreListing,
      at: VersionId,
      hadoopConf: Configuration
  ): Either[String, SnapshotFacts] = {
    val scratch = StatemarkBridge.newLocalDirectory("statemark-inspect-")
    try {
      val files = new StoreFiles(
        new Path(listing.directory),
        hadoopConf,
        scratch,
        readsChecksumFiles = true,
        unread = _ => ()
      )
      val name = StoreFile.snapshotName(at)
      val image = files.fresh()
      files.withCopy(name) { zip =>
        SnapshotCheck.unpacked(zip, image).left.map(Problem(name, FindingKind.Damaged, _))
      }.left.map(p => s"${p.file}: ${p.detail}").map { metadata =>
        val types = metadata.columnFamilyTypeMap.getOrElse(Map.empty)
        SnapshotFacts(
          at.version,
          Option.when(metadata.numKeys >= 0)(metadata.numKeys),
          Option.when(metadata.numInternalKeys >= 0)(metadata.numInternalKeys),
          metadata.columnFamilyMapping.getOrElse(Map.empty).toSeq.map { case (family, id) =>
            FamilyFacts(family, id.toInt, types.getOrElse(family, false))
          }.sortBy(_.id)
        )
      }
    } finally LocalDirectory.deleteTree(scratch)
  }
}
