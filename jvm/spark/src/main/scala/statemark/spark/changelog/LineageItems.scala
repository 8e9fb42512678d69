package statemark.spark.changelog

import org.apache.spark.sql.execution.streaming.state.LineageItem
import statemark.engine.VersionId

/** A lineage as Spark writes it, and as stores know it. */
object LineageItems {
  def toVersions(items: Array[LineageItem]): Vector[VersionId] =
    items.toVector.sortBy(_.version).map(i => VersionId(i.version, Some(i.checkpointUniqueId)))

  def toItems(lineage: Vector[VersionId]): Array[LineageItem] =
    lineage.collect { case VersionId(version, Some(id)) => LineageItem(version, id) }.toArray
}
