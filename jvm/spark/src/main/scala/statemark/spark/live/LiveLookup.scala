package statemark.spark.live

import java.util.concurrent.TimeUnit
import java.util.UUID
import net.razorvine.pickle.Pickler
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.execution.python.EvaluatePython
import org.apache.spark.sql.execution.streaming.state.StatemarkBridge
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap
import org.json4s.jackson.JsonMethods.parse
import scala.annotation.tailrec
import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal
import scala.util.{Failure, Success, Try}
import statemark.common.{Causes, Clock, InvalidInputException, ViewClosedException}
import statemark.IsolationLevel
import statemark.spark.errors.{LookupException, StoreMovedException, VersionGoneException}
import statemark.spark.process.{JvmState, RecentlyUsed}
import statemark.spark.reads.LiveRead

/** Reads rows of a running query by key. The driver asks its own stores, or the executors that hold them, over the
  * connections that Spark has, and no job runs; where a store is open nowhere, a task on an executor reads it
  * ([[LookupTasks]]). Python calls [[get]] over py4j; a Spark Connect client reads the same rows as a table
  * ([[LookupScan]]).
  *
  * ''Thread:'' any of the driver, several at once.
  */
object LiveLookup {
  private val MaxPlans = 64
  private val Tries = 5

  /** The key of a plan: all that it depends on. Options that change from request to request, such as the isolation
    * level, are no part of it.
    *
    * @param state options that name it
    * @param settings the settings of the session that asks: they say how the files are read of a store that is open
    *   nowhere
    */
  private final case class Planned(
      runId: UUID,
      state: CaseInsensitiveStringMap,
      settings: Map[String, String]
  )

  private val plans = JvmState.value(new RecentlyUsed[Planned, LookupPlan](MaxPlans))

  /** Returns the rows of some keys, all as of one batch, as Python reads them.
    *
    * @param options those of format `statemark`, as a JSON object of strings
    * @param keys a JSON array with an object for each key, which has a field for each of its columns
    * @return a pickled list: for each key its Row, or None
    * @throws LookupException where the keys are not the operator's, one has several rows, or the query gives no answer
    */
  def get(options: String, keys: String): Array[Byte] = {
    val spark = SparkSession.active
    withActive(spark) {
      explained {
        val (rows, schema) = find(parse(options).values.asInstanceOf[Map[String, String]], keys)
        pickled(rows, schema, spark)
      }
    }
  }

  /** Runs a step of a lookup. Every failure becomes a [[LookupException]]. */
  private[live] def explained[A](step: => A): A =
    try step
    catch {
      case e: LookupException => throw e
      case NonFatal(e) => throw new LookupException(e)
    }

  private[spark] def find(
      options: Map[String, String],
      keys: String
  ): (Seq[Option[InternalRow]], StructType) =
    find(LiveOptions(new CaseInsensitiveStringMap(options.asJava)), keys)

  /** Returns the rows of some keys, all as of one batch, and what they consist of.
    *
    * @throws InvalidInputException where the keys are not the operator's, or one has several rows
    * @throws statemark.spark.errors.LookupTimeoutException where a store is open nowhere, and no executor has read it within `timeout`
    */
  private[live] def find(
      asked: LiveOptions,
      keys: String
  ): (Seq[Option[InternalRow]], StructType) = {
    val clock = Clock.system
    val deadline = clock.nanos() + TimeUnit.MILLISECONDS.toNanos(asked.timeoutMs)
    val tasks = new LookupTasks(SparkSession.active, clock, deadline, asked.timeoutMs)
    @tailrec def attempt(left: Int): (Seq[Option[InternalRow]], StructType) = {
      val (pin, plan) = planned(asked)
      Try(plan.rows(pin, asked.level, plan.keys(keys), tasks)) match {
        case Success(rows) => (rows, plan.schema)
        // The next attempt reads the batch that is the newest now.
        case Failure(e) if left > 1 && isOutlived(e) => attempt(left - 1)
        case Failure(e) => throw e
      }
    }
    attempt(Tries)
  }

  /** Returns the columns of the rows of a lookup. */
  private[live] def schema(asked: LiveOptions): StructType = planned(asked)._2.schema

  /** Returns the batch to read now, and the plan of it, which is made where none has been. */
  private def planned(asked: LiveOptions): (PinnedBatch, LookupPlan) = {
    val (pin, theirs) = asked.pinned()
    val from = Planned(pin.query.runId, asked.state, SparkSession.active.conf.getAll)
    val plan = plans().get(from).getOrElse {
      val made = new LookupPlan(StateRead(asked.schemaOf(pin, theirs), pin, theirs))
      plans().put(from, made)
      made
    }
    (pin, plan)
  }

  /** Tells whether the store has left the version, its transaction or its executor since the read was planned. */
  private def isOutlived(failure: Throwable): Boolean =
    Causes.of(failure).exists {
      case _: VersionGoneException | _: StoreMovedException | _: ViewClosedException => true
      case _ => false
    }

  private def pickled(
      rows: Seq[Option[InternalRow]],
      schema: StructType,
      spark: SparkSession
  ): Array[Byte] = {
    val conf = StatemarkBridge.settings(spark)
    EvaluatePython.registerPicklers()
    val values = rows.map(_.map(VersionedReads.pythonRow(_, schema, conf)).orNull)
    new Pickler( /* useMemo = */ true, /* valueCompare = */ false).dumps(values.toArray[Any])
  }

  private def withActive[A](spark: SparkSession)(body: => A): A = {
    val before = SparkSession.getActiveSession
    SparkSession.setActiveSession(spark)
    try body
    finally before.fold(SparkSession.clearActiveSession())(SparkSession.setActiveSession)
  }
}

/** The parts of a lookup that do not change while a query runs.
  *
  * @param read a read of any batch of the query
  */
private final class LookupPlan(read: StateRead) {
  val schema: StructType = read.schema
  private val key: StructType = read.key.getOrElse(
    throw new InvalidInputException(
      s"The rows have no key columns, but ${schema.fieldNames.mkString(", ")}; read them with format 'statemark'."
    )
  )
  private val keyAt = schema.fieldIndex("key")

  /** @param text a JSON array; times are of the session that asks */
  def keys(text: String): AskedKeys =
    new KeyJson(key, SQLConf.get.sessionLocalTimeZone).keys(text)

  /** Returns the rows of keys in their order.
    *
    * @param tasks read the partitions whose stores are open nowhere
    */
  def rows(
      pin: PinnedBatch,
      level: IsolationLevel,
      keys: AskedKeys,
      tasks: LookupTasks
  ): Seq[Option[InternalRow]] = {
    val live = LiveRead(level, keys.sought(read.hasCanonicalKeys))
    val lookup = LookupRead(read.factory, schema, key, keys.rows.flatten.toSet, live)
    val partitions = if (lookup.wanted.isEmpty) Nil else read.partitionsAt(pin, keys.placed)
    val (closed, open) = partitions.partitionMap(p => lookup.rowsIfOpen(p).toRight(p))
    val found = open.flatten ++ tasks.rows(lookup, closed)
    val byKey = found.groupBy(row => keys.of(row.getStruct(keyAt, key.length)))
    keys.rows.map { key =>
      key.flatMap(byKey.get).map {
        case Seq(row) => row
        case several => throw new InvalidInputException(
            s"The key has ${several.length} rows; read them with format 'statemark' and a filter on the key."
          )
      }
    }
  }
}
