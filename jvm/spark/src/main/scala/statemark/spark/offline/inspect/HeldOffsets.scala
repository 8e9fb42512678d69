package statemark.spark.offline.inspect

import org.apache.spark.sql.SparkSession
import statemark.common.Position
import statemark.spark.conf.{LocalRoot, StoreSettings}
import statemark.spark.offline.checkpoint.QueryCheckpoint
import statemark.spark.offline.local.LocalStores

/** The source offsets that a store in the local directory of this machine holds.
  *
  * @param store operator, partition and name
  * @param differs whether the checkpoint's offset log has others for the version
  */
final case class HeldOffsets(store: String, version: Long, position: Position, differs: Boolean)

object HeldOffsets {

  /** Returns those of a query's stores that no process uses, and that know them. */
  def of(checkpoint: QueryCheckpoint, spark: SparkSession): Seq[HeldOffsets] = {
    val settings = StoreSettings.from(spark.conf.getAll, Runtime.getRuntime.maxMemory)
    val own = for {
      root <- LocalRoot.place(settings).map(_.directory).toSeq
      if root.isDirectory
      home <- new LocalStores(root).ofQuery(checkpoint.queryId)
      version <- home.version
      position <- home.position
    } yield (home.store, version, position)
    val ends = own.map(_._2).distinct.map(v => v -> checkpoint.end(v - 1)).toMap
    own.map { case (store, version, position) =>
      val differs = ends(version).exists(position.differences(_).nonEmpty)
      HeldOffsets(store, version, position, differs)
    }
  }
}
