package statemark.spark.live

import java.util.concurrent.{TimeUnit, TimeoutException}
import org.apache.spark.{Partition, SparkContext, SparkException, TaskContext}
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.connector.read.{InputPartition, PartitionReaderFactory}
import org.apache.spark.sql.execution.SQLExecution
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.types.StructType
import scala.concurrent.Await
import scala.concurrent.duration.Duration
import statemark.common.{Causes, Clock, StatemarkException}
import statemark.spark.errors.LookupTimeoutException
import statemark.spark.reads.{LiveRead, Projections, StoreClosed}

/** A read of the rows of some keys in one partition, wherever it runs: in the driver, or in a task.
  *
  * @param schema the columns of the rows, one of which is `key`
  * @param wanted the keys, as [[KeyForm]] returns them
  * @param most bytes of the rows of one partition that the reader wants; of a single key it wants two rows in any case, as
  *   a key with several is refused
  */
private[live] final case class LookupRead(
    factory: PartitionReaderFactory,
    schema: StructType,
    key: StructType,
    wanted: Set[UnsafeRow],
    live: LiveRead,
    most: Long
) {

  /** Returns the rows of `partition`. Where these are more than `most` bytes, only the first of them, up to the row that
    * goes over it ([[isPart]]). A store that is open nowhere is loaded for them: only a task does that.
    */
  def rows(partition: InputPartition): Vector[InternalRow] = rows(partition, live)

  /** Returns the rows of `partition` where its stores are open in some JVM; None where one is open nowhere. */
  def rowsIfOpen(partition: InputPartition): Option[Vector[InternalRow]] =
    try Some(rows(partition, live.copy(loads = false)))
    catch { case e: Exception if Causes.of(e).exists(_.isInstanceOf[StoreClosed]) => None }

  private def rows(partition: InputPartition, live: LiveRead): Vector[InternalRow] = live.during {
    // Rows of joins have columns that no schema shows.
    val project = Projections.of(schema)
    val keyAt = schema.fieldIndex("key")
    val form = new KeyForm(key)
    val reader = factory.createReader(partition)
    val found = Vector.newBuilder[InternalRow]
    var bytes = 0L
    var count = 0
    try {
      while ((bytes <= most || wanted.size == 1 && count < 2) && reader.next()) {
        val row = project(reader.get())
        if (wanted(form.of(row.getStruct(keyAt, key.length)))) {
          found += row.copy()
          bytes += row.getSizeInBytes
          count += 1
        }
      }
      found.result()
    } finally reader.close()
  }

  /** Tells whether `rows` of a partition are only the first of its rows. */
  def isPart(rows: Vector[InternalRow]): Boolean = LookupRead.bytesOf(rows) > most
}

private[live] object LookupRead {

  /** Returns bytes of rows of a [[LookupRead]]. */
  def bytesOf(rows: Vector[InternalRow]): Long = rows.iterator.map {
    case row: UnsafeRow => row.getSizeInBytes.toLong
    case other => throw new IllegalStateException(s"A lookup has a ${other.getClass.getName}.")
  }.sum
}

/** Has tasks on executors read partitions whose stores are open nowhere: on a cluster the driver opens no store, as it
  * has neither the disk nor the memory for them.
  *
  * ''Thread:'' one, of the driver.
  *
  * @param deadline when the caller stops waiting, in nanoseconds of `clock`
  * @param timeoutMs how long it has waited then
  */
private[live] final class LookupTasks(
    spark: SparkSession,
    clock: Clock,
    deadline: Long,
    timeoutMs: Long
) {

  /** Returns the rows of each partition.
    * @throws LookupTimeoutException where the tasks have not ended by the deadline
    * @throws InterruptedException where the thread is interrupted while it waits
    */
  def rows(read: LookupRead, partitions: Seq[InputPartition]): Seq[Vector[InternalRow]] =
    if (partitions.isEmpty) Nil
    else {
      val found = new Array[Vector[InternalRow]](partitions.length)
      val job = submitted(read, partitions, (i, rows) => found(i) = rows)
      val left = math.max(0, deadline - clock.nanos())
      try Await.result(job, Duration(left, TimeUnit.NANOSECONDS))
      catch {
        case _: TimeoutException => throw new LookupTimeoutException(partitions.length, timeoutMs)
        // Spark's own message of a failed job has the stacks of the driver and of the task.
        case e: SparkException =>
          throw Causes.of(e).collectFirst { case own: StatemarkException => own }.getOrElse(e)
      } finally
        // A load that no caller waits for would keep a core from the query.
        if (!job.isCompleted) job.cancel()
      found.toSeq
    }

  private def submitted(
      read: LookupRead,
      partitions: Seq[InputPartition],
      handle: (Int, Vector[InternalRow]) => Unit
  ) = {
    val context = spark.sparkContext
    val before = context.getLocalProperty(LookupTasks.InterruptOnCancel)
    context.setLocalProperty(LookupTasks.InterruptOnCancel, "true")
    // Tasks take the session's SQL settings from there.
    try
      SQLExecution.withSQLConfPropagated(
        spark.asInstanceOf[org.apache.spark.sql.classic.SparkSession]
      ) {
        context.submitJob(
          new LookupRdd(context, read, partitions),
          (rows: Iterator[InternalRow]) => rows.toVector,
          partitions.indices,
          handle,
          ()
        )
      }
    finally context.setLocalProperty(LookupTasks.InterruptOnCancel, before)
  }
}

private object LookupTasks {

  /** ''Source:'' Spark 4.2 `SparkContext.SPARK_JOB_INTERRUPT_ON_CANCEL`. */
  private val InterruptOnCancel = "spark.job.interruptOnCancel"
}

/** ''Source:'' Spark 4.2 `DataSourceRDD`: partitions travel with their tasks, in Java's serialization. */
private final class LookupRdd(
    context: SparkContext,
    read: LookupRead,
    @transient private val partitions_ : Seq[InputPartition]
) extends RDD[InternalRow](context, Nil) {
  override protected def getPartitions: Array[Partition] =
    partitions_.zipWithIndex.map { case (of, i) => new LookupPartition(i, of): Partition }.toArray

  override def compute(split: Partition, task: TaskContext): Iterator[InternalRow] = split match {
    case partition: LookupPartition => read.rows(partition.of).iterator
    case other => throw new IllegalArgumentException(s"$other is no partition of a lookup.")
  }
}

private final class LookupPartition(override val index: Int, val of: InputPartition)
    extends Partition
