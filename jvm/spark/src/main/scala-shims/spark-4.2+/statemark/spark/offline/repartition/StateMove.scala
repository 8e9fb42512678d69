package statemark.spark.offline.repartition

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.classic.Dataset
import org.apache.spark.sql.{Encoder, Encoders, SparkSession}
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.functions.col
import org.apache.spark.TaskContext
import org.apache.spark.util.SerializableConfiguration
import statemark.spark.offline.checkpoint.Jobs
import statemark.spark.offline.cli.UserError
import statemark.spark.offline.ownership.OwnedFileManager

/** What a move reads: a version of every store of the query.
  *
  * @param ids checkpoint ids by operator, partition and store, in checkpoint format v2
  */
private[offline] final case class MoveSource(
    version: Long,
    partitions: Int,
    conf: StateStoreConf,
    ids: Map[Long, Array[Array[String]]]
)

/** What a move writes: each store anew, as a snapshot of `version + 1`. */
private[offline] final case class MoveTarget(version: Long, partitions: Int, conf: StateStoreConf)

/** One partition of a store that a move has written. */
private[offline] final case class WrittenPartition(partition: Int, rows: Long, id: Option[String])

/** Reads a version of a store, deals its rows to another number of partitions, and writes them as a
  * snapshot of a later version. Rows go by Spark's own shuffle; the rows of one key stay in order.
  *
  * ''Thread:'' the driver's caller.
  */
private[offline] final class StateMove(
    session: SparkSession,
    stateLocation: String,
    hadoopConf: Configuration,
    held: Path,
    source: MoveSource,
    target: MoveTarget
) {
  import StateMove._

  /** @param index which store of its operator this is
    * @param written is told of each partition when it is in the checkpoint
    */
  def move(layout: StoreLayout, index: Int)(written: WrittenPartition => Unit): Unit = {
    val from = layout.partitions(source.partitions)
    val to = layout.partitions(target.partitions)
    val hadoop = session.sparkContext.broadcast(new SerializableConfiguration(hadoopConf))
    val owned = session.sparkContext.broadcast(
      new SerializableConfiguration(OwnedFileManager.settings(hadoopConf, held))
    )
    val ids = source.ids.get(layout.operatorId)
    // Locals, so that tasks take no more than these along.
    val (location, reads, writes) = (stateLocation, source, target)
    val rows = session.sparkContext.parallelize(0 until from, from).mapPartitionsWithIndex {
      (partition, _) =>
        val provider = layout.provider(location, partition, reads.conf, hadoop.value.value)
        val id = ids.map(_(partition)(index))
        read(layout, provider, reads.version, id, partition, from, to)
    }
    val dealt = session.createDataset(rows)(encoder).repartitionById(to, col("_1"))
    Jobs.run(session.sparkContext.runJob(
      dealt.asInstanceOf[Dataset[StateRow]].queryExecution.toRdd,
      (task: TaskContext, rows: Iterator[InternalRow]) => {
        val partition = task.partitionId()
        val provider = layout.provider(location, partition, writes.conf, owned.value.value)
        write(layout, provider, writes.version, partition, rows)
      },
      0 until to,
      (_: Int, done: WrittenPartition) => written(done)
    ))
  }
}

private[offline] object StateMove {

  /** Target partition, index of the column family, key, value. */
  private type StateRow = (Int, Int, Array[Byte], Array[Byte])

  private val encoder: Encoder[StateRow] =
    Encoders.tuple(Encoders.scalaInt, Encoders.scalaInt, Encoders.BINARY, Encoders.BINARY)

  private def read(
      layout: StoreLayout,
      provider: StateStoreProvider,
      version: Long,
      id: Option[String],
      partition: Int,
      from: Int,
      to: Int
  ): Iterator[StateRow] = {
    onTaskEnd(provider.close())
    val store = provider.getStore(version, id)
    onTaskEnd(store.abort())
    layout.register(store)
    layout.families.iterator.zipWithIndex.flatMap { case (family, index) =>
      val place = family.placement(from, to)
      val pairs =
        if (family.hasManyValues) store.iteratorWithMultiValues(family.name)
        else store.iterator(family.name)
      onTaskEnd(pairs.close())
      pairs.map { pair =>
        val (was, becomes) = place(pair.key)
        if (was != partition) throw misplaced(layout, partition, was)
        (becomes, index, pair.key.getBytes, pair.value.getBytes)
      }
    }
  }

  private def write(
      layout: StoreLayout,
      provider: StateStoreProvider,
      version: Long,
      partition: Int,
      rows: Iterator[InternalRow]
  ): WrittenPartition = {
    onTaskEnd(provider.close())
    val store = provider.getStore(version, None, forceSnapshotOnCommit = false, loadEmpty = true)
    onTaskEnd(if (!store.hasCommitted) store.abort())
    layout.register(store)
    val families = layout.families.map { family =>
      val (keys, values) = (family.schema.keySchema.length, family.schema.valueSchema.length)
      (family.name, family.hasManyValues, new UnsafeRow(keys), new UnsafeRow(values))
    }.toArray
    val lists = new ListWriter(store)
    var count = 0L
    rows.foreach { row =>
      val (name, hasManyValues, key, value) = families(row.getInt(1))
      pointTo(key, row.getBinary(2))
      pointTo(value, row.getBinary(3))
      if (hasManyValues) lists.add(key, value, name) else store.put(key, value, name)
      count += 1
    }
    store.commit(): Unit
    WrittenPartition(partition, count, store.getStateStoreCheckpointInfo().stateStoreCkptId)
  }

  private def pointTo(row: UnsafeRow, bytes: Array[Byte]): Unit = row.pointTo(bytes, bytes.length)

  /** Runs when the task is over, however it ends; later ones first. */
  private def onTaskEnd(close: => Unit): Unit =
    TaskContext.get().addTaskCompletionListener[Unit](_ => close): Unit

  /** Every row is checked against where Spark's hash puts it. What was dealt by another rule, such as
    * that of queries first run before Spark 3.3, would be dealt wrongly again.
    */
  private def misplaced(layout: StoreLayout, found: Int, expected: Int) =
    UserError(
      s"store ${layout.name} of operator ${layout.operatorId} (${layout.operatorName}) cannot be moved",
      s"partition $found has a row that belongs into $expected by the hash of its key: the query " +
        "deals its rows by another rule, as queries first run before Spark 3.3 may",
      "run statemark repartition CHECKPOINT --rollback, and keep the number of partitions"
    )
}

/** Writes lists a value at a time. The values of a key come one after the other, so that a store is asked once for each
  * list whether it has it: Spark's provider reads all values that it has of the key for an answer.
  *
  * ''Thread:'' one.
  */
private[offline] final class ListWriter(store: StateStore) {
  private var last = Option.empty[(String, UnsafeRow)]

  /** Appends `value` to the list of `key`, or begins the list with it. */
  def add(key: UnsafeRow, value: UnsafeRow, family: String): Unit = {
    val goesOn = last.exists { case (name, of) => name == family && of == key }
    if (!goesOn) last = Some((family, key.copy()))
    if (goesOn || store.keyExists(key, family)) store.merge(key, value, family)
    else store.put(key, value, family)
  }
}
