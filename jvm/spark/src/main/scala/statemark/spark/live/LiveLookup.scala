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
import statemark.common.Clock
import statemark.spark.errors.LookupException
import statemark.spark.process.{JvmState, RecentlyUsed}
import statemark.spark.reads.{LiveRead, ReadRequest, RemoteRows}

/** Reads rows of a running query by key. The driver asks its own stores, or the executors that hold them, over the
  * connections that Spark has, and no job runs; where a store is open nowhere, a task on an executor reads it
  * ([[LookupTasks]]). Python calls [[get]] over py4j; a Spark Connect client reads the same rows as a table
  * ([[LookupScan]]).
  *
  * ''Thread:'' any of the driver, several at once.
  */
object LiveLookup {
  private val MaxPlans = 64

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

  /** Returns the rows of the first of some keys, all as of one batch, as Python reads them: a page of rows, which the
    * caller continues with the keys that are left and option `asOf`.
    *
    * @param options those of format `statemark`, as a JSON object of strings
    * @param keys a JSON array with an object for each key, which has a field for each of its columns
    * @return a pickled list: what option `asOf` takes, a list that has for each of the first keys its Row, or None, and the
    *   names of the columns of a key
    * @throws LookupException where the keys are not the operator's, one has several rows, or the query gives no answer
    */
  def get(options: String, keys: String): Array[Byte] = {
    val spark = SparkSession.active
    withActive(spark) {
      explained {
        val all = parse(options).values.asInstanceOf[Map[String, String]]
        pickled(find(LiveOptions(new CaseInsensitiveStringMap(all.asJava)), keys), spark)
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
  ): (Seq[Option[InternalRow]], StructType) = {
    val page = find(LiveOptions(new CaseInsensitiveStringMap(options.asJava)), keys)
    (page.rows, page.schema)
  }

  /** Returns the rows of the first of some keys, all as of one batch, and what they consist of.
    *
    * @throws statemark.common.InvalidInputException where the keys are not the operator's, or one has several rows
    * @throws statemark.spark.errors.LookupTimeoutException where a store is open nowhere, and no executor has read it within `timeout`
    */
  private[live] def find(asked: LiveOptions, keys: String): LookupPage = {
    val clock = Clock.system
    val deadline = clock.nanos() + TimeUnit.MILLISECONDS.toNanos(asked.timeoutMs)
    val tasks = new LookupTasks(SparkSession.active, clock, deadline, asked.timeoutMs)
    LiveQueries.retried(planned(asked)) { case (pin, plan) =>
      val page = plan.page(pin, asked, plan.keys(keys), tasks)
      // The stores keep the batch for the pages that follow.
      if (!page.isLast && asked.asOf.isEmpty) ReadRouter.tell(
        ReadRequest.Pin(pin.query.runId, asked.operator, UUID.randomUUID(), pin.version)
      )
      page
    }
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

  private def pickled(page: LookupPage, spark: SparkSession): Array[Byte] = {
    val conf = StatemarkBridge.settings(spark)
    EvaluatePython.registerPicklers()
    val key = page.schema("key").dataType.asInstanceOf[StructType]
    val values = page.rows.map(_.map(VersionedReads.pythonRow(_, page.schema, conf)).orNull)
    new Pickler( /* useMemo = */ true, /* valueCompare = */ false)
      .dumps(Array[Any](page.asOf, values.toArray[Any], key.fieldNames.toArray[Any]))
  }

  private def withActive[A](spark: SparkSession)(body: => A): A = {
    val before = SparkSession.getActiveSession
    SparkSession.setActiveSession(spark)
    try body
    finally before.fold(SparkSession.clearActiveSession())(SparkSession.setActiveSession)
  }
}

/** The rows of the first keys of a lookup.
  *
  * @param asOf what option `asOf` takes to read the rest of the keys as of the same batch
  * @param isLast whether these are all keys
  */
private[live] final case class LookupPage(
    rows: Seq[Option[InternalRow]],
    schema: StructType,
    asOf: String,
    isLast: Boolean
)

/** The parts of a lookup that do not change while a query runs.
  *
  * @param read a read of any batch of the query
  */
private final class LookupPlan(read: StateRead) {
  val schema: StructType = read.schema
  private val key: StructType = read.key.getOrElse(
    throw LiveQueries.wrong(
      s"The rows have no key columns, but ${schema.fieldNames.mkString(", ")}.",
      "Read them with format 'statemark' and without keys (statemark.live)."
    )
  )
  private val keyAt = schema.fieldIndex("key")

  /** @param text a JSON array; times are of the session that asks */
  def keys(text: String): AskedKeys =
    new KeyJson(key, SQLConf.get.sessionLocalTimeZone).keys(text)

  /** Returns the rows of the first of `keys`, in their order: of all, where their rows come to a page. Else of as many
    * as have come to one, or of the first key alone.
    *
    * @param tasks read the partitions whose stores are open nowhere
    */
  def page(
      pin: PinnedBatch,
      asked: LiveOptions,
      keys: AskedKeys,
      tasks: LookupTasks
  ): LookupPage = {
    @tailrec def attempt(n: Int): LookupPage = {
      val first = keys.first(n)
      val (rows, isOver) = found(pin, asked, first, tasks)
      if (isOver && n > 1) attempt(math.max(1, math.min(n / 2, rows.length - 1)))
      else LookupPage(ordered(first, rows), schema, LiveOptions.asOf(pin), n == keys.rows.length)
    }
    attempt(keys.rows.length)
  }

  /** Returns the rows of keys, and whether they come to more than a page: then not all of them. */
  private def found(
      pin: PinnedBatch,
      asked: LiveOptions,
      keys: AskedKeys,
      tasks: LookupTasks
  ): (Vector[InternalRow], Boolean) = {
    val live =
      LiveRead(asked.level, keys.sought(read.hasCanonicalKeys), expected = pin.offsets)
    val wanted = keys.rows.flatten.toSet
    val partitions = if (wanted.isEmpty) Nil else read.partitionsAt(pin, keys.placed)
    asked.begun(pin, partitions.map(_.partition))
    var rows = Vector.empty[InternalRow]
    var left = RemoteRows.PageBytes.toLong
    def lookup(most: Long) = LookupRead(read.factory, schema, key, wanted, live, most)
    val closed = partitions.filter { partition =>
      val here = if (left < 0) Some(Vector.empty) else lookup(left).rowsIfOpen(partition)
      rows ++= here.getOrElse(Vector.empty)
      left -= LookupRead.bytesOf(here.getOrElse(Vector.empty))
      here.isEmpty
    }
    if (left >= 0 && closed.nonEmpty) {
      val share = lookup(left / closed.length)
      val theirs = tasks.rows(share, closed)
      rows ++= theirs.flatten
      if (theirs.exists(share.isPart)) left = -1
    }
    (rows, left < 0)
  }

  private def ordered(keys: AskedKeys, found: Vector[InternalRow]): Seq[Option[InternalRow]] = {
    val byKey = found.groupBy(row => keys.of(row.getStruct(keyAt, key.length)))
    keys.rows.map { key =>
      key.flatMap(byKey.get).map {
        case Seq(row) => row
        case several => throw LiveQueries.wrong(
            s"The key has ${several.length} rows or more.",
            "Read them with format 'statemark' and a filter on the key (statemark.live)."
          )
      }
    }
  }
}
