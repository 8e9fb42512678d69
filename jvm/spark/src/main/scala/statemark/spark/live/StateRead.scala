package statemark.spark.live

import org.apache.spark.sql.connector.read.PartitionReaderFactory
import org.apache.spark.sql.execution.datasources.v2.state._
import org.apache.spark.sql.execution.streaming.state.StatemarkBridge
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap
import statemark.spark.reads.{KeyPlacement, LiveKeys}

/** A read of an operator's state as of one batch of a running query: what Spark's format `statestore` makes of it.
  *
  * ''Thread:'' any of the driver.
  *
  * @param theirs options of Spark's format
  */
private[live] final case class StateRead(
    schema: StructType,
    pin: PinnedBatch,
    theirs: CaseInsensitiveStringMap
) {

  /** Columns of a key, where it has some. */
  val key: Option[StructType] = schema.find(_.name == "key").map(_.dataType).collect {
    case struct: StructType => struct
  }

  private lazy val batch = pin.bySpark {
    new StateDataSource().getTable(schema, Array.empty, theirs.asCaseSensitiveMap) match {
      case state: StateTable => state.newScanBuilder(theirs).build().toBatch
      case other =>
        throw new IllegalStateException(s"Spark reads state with a ${other.getClass.getName}.")
    }
  }

  private lazy val all = batch.planInputPartitions().toSeq.map {
    case partition: StateStoreInputPartition => partition
    case other =>
      throw new IllegalStateException(s"Spark reads state by a ${other.getClass.getName}.")
  }

  private lazy val operatorName: Option[String] = {
    val spark = SparkSession.active
    val operator = all.head.sourceOptions.operatorId
    StatemarkBridge.operatorMetadata(
      pin.query.checkpoint,
      StatemarkBridge.hadoopConf(spark),
      pin.batch
    ).map(_.operatorInfo).find(_.operatorId == operator).map(_.operatorName)
  }

  /** Tells whether the operator's rows have one form only of keys that are equal. */
  lazy val hasCanonicalKeys: Boolean = operatorName.exists(KeyPlacement.aggregations)

  lazy val factory: PartitionReaderFactory = batch.createReaderFactory()

  /** @throws statemark.common.InvalidInputException where the operator has no such partition */
  def requirePartition(id: Int): Unit = if (!all.exists(_.partition == id)) throw LiveQueries.wrong(
    s"Option partition is $id, and the operator has ${all.length} partitions.",
    s"Set it to a number from 0 to ${all.length - 1}."
  )

  /** Returns the partitions that have `keys`, of the pinned batch. */
  def partitions(keys: Option[LiveKeys]): Seq[StateStoreInputPartition] = {
    val wanted = for {
      of <- keys
      if pin.query.placesByWholeKey()
      name <- operatorName
      ids <- of.partitions(name, all.length)
    } yield ids
    all.filter(p => wanted.forall(_.contains(p.partition)))
  }

  /** Returns the same of another batch of the same run. */
  def partitionsAt(later: PinnedBatch, keys: LiveKeys): Seq[StateStoreInputPartition] =
    partitions(Some(keys)).map { partition =>
      val operator = partition.sourceOptions.operatorId.toLong
      val ids = later.query.idsOf(later.batch, operator)
      new StateStoreInputPartition(
        partition.partition,
        later.query.runId,
        VersionedReads.at(partition.sourceOptions, later.batch, ids)
      )
    }
}
