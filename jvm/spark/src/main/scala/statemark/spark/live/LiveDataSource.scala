package statemark.spark.live

import java.util.{Map => JMap, Set => JSet, UUID}
import org.apache.spark.sql.catalyst.{InternalRow, ProjectingInternalRow}
import org.apache.spark.sql.connector.catalog._
import org.apache.spark.sql.connector.expressions.Transform
import org.apache.spark.sql.connector.read._
import org.apache.spark.sql.execution.datasources.v2.state.StateStoreInputPartition
import org.apache.spark.sql.sources.{
  BaseRelation,
  CreatableRelationProvider,
  DataSourceRegister,
  Filter
}
import org.apache.spark.sql.{DataFrame, SQLContext, SaveMode, SparkSession}
import org.apache.spark.sql.types.{IntegerType, StringType, StructType}
import org.apache.spark.sql.util.CaseInsensitiveStringMap
import org.apache.spark.unsafe.types.UTF8String
import scala.jdk.CollectionConverters._
import statemark.spark.checkpoint.StoreAddress
import statemark.spark.errors.FormatRefusedException
import statemark.spark.reads.{LiveKeys, LiveRead, ReadRequest}

/** Format `statemark`: the state of a query that runs in this application, while it runs.
  *
  * Options and columns are those of Spark's format `statestore`, without `path` and what belongs to the past of a
  * checkpoint; and `queryId` or `queryName`, `isolationLevel`, `positionBound` (what `position` gives) and `timeout`
  * (how long a bound, or the first batch, is waited for, and by a lookup also a task; a duration such as `10s`). With
  * `what` set to `position` it has a row for each source of the query instead: its name ([[SourceNames]]), and the offset
  * that the last committed batch ends at; set to `committedOffset` the same as one store holds it, that of option
  * `partition`. Set to `operators` it has a row for each stateful operator: its number, which is what `operatorId` takes, and
  * what else a read may name of it. Set to `installation` it has a row for the driver and one for each executor: which version
  * of the plugin it has. Set to `lookup` it has the rows of option `keys`, a JSON array with an object for each key, and the place of
  * each row's key in that array ([[KeyJson]]); of the first keys, where the rows are more than a page: option `asOf` with
  * what column `as_of` has reads the rest. No job runs for these, but for a lookup of a store that is open nowhere.
  *
  * READ_COMMITTED is one batch, of all partitions: the last that the query had committed when the read was planned,
  * and so anew for each query on the same view.
  *
  * ''Source:'' Spark 4.2 `StateDataSource`, which makes schema, layout and rows of each operator.
  */
final class LiveDataSource extends TableProvider with DataSourceRegister
    with CreatableRelationProvider {
  override def shortName(): String = "statemark"

  override def inferSchema(options: CaseInsensitiveStringMap): StructType =
    if (LiveOptions.isLookup(options)) LiveLookup.explained(schemaOf(LiveOptions(options)))
    else LiveOptions.refusing(options)(schemaOf(LiveOptions(options)))

  private def schemaOf(read: LiveOptions): StructType =
    read.what match {
      case LiveContent.State => read.schema()
      case LiveContent.Operators => OperatorsScan.schema
      case LiveContent.Position => PositionScan.schema
      case LiveContent.CommittedOffset => CommittedOffsetScan.schema
      case LiveContent.Installation => Installation.schema
      case _: LiveContent.Lookup => LookupScan.schema(LiveLookup.schema(read))
    }

  override def getTable(
      schema: StructType,
      partitioning: Array[Transform],
      properties: JMap[String, String]
  ): Table = {
    val options = new CaseInsensitiveStringMap(properties)
    LiveOptions.refusing(options)(new LiveTable(schema, LiveOptions(options)))
  }

  override def supportsExternalMetadata(): Boolean = false

  /** Refuses a write, for which Spark takes this way where a table offers none. */
  override def createRelation(
      session: SQLContext,
      mode: SaveMode,
      options: Map[String, String],
      rows: DataFrame
  ): BaseRelation = throw new FormatRefusedException(
    "Format 'statemark' cannot be written",
    LiveQueries.wrong(
      "It shows the state of a running query, which only the query itself changes.",
      "Write rows where the query reads them, or to another format."
    )
  )
}

private final class LiveTable(override val schema: StructType, options: LiveOptions)
    extends Table
    with SupportsRead {
  override def name(): String = s"statemark(${options.shown})"

  override def capabilities(): JSet[TableCapability] = Set(TableCapability.BATCH_READ).asJava

  override def newScanBuilder(scanOptions: CaseInsensitiveStringMap): ScanBuilder =
    LiveOptions.refusing(options.all)(scanBuilder())

  private def scanBuilder(): ScanBuilder =
    options.what match {
      case LiveContent.Lookup(keys) => () => new LookupScan(schema, options, keys)
      case LiveContent.Installation => () => new InstallationScan(SparkSession.active)
      case LiveContent.Position =>
        val (pin, _) = options.pinned()
        () => new PositionScan(pin, options.sourcesOf(pin))
      case LiveContent.CommittedOffset => () => new CommittedOffsetScan(options)
      case LiveContent.Operators =>
        val (pin, theirs) = options.pinned()
        () => new OperatorsScan(pin, theirs)
      case LiveContent.State =>
        val (pin, theirs) = options.pinned()
        // Batches may come faster than Spark plans and starts the tasks of a read.
        val planned =
          ReadRequest.Pin(pin.query.runId, options.operator, UUID.randomUUID(), pin.version)
        ReadRouter.tell(planned)
        val read = StateRead(schema, pin, theirs)
        options.partition.foreach(read.requirePartition)
        new LiveScanBuilder(read, options, planned)
    }
}

/** @param planned the note that the stores got about the read */
private final class LiveScanBuilder(
    read: StateRead,
    options: LiveOptions,
    planned: ReadRequest.Pin
) extends ScanBuilder
    with SupportsPushDownFilters with SupportsPushDownRequiredColumns with SupportsPushDownLimit {
  private var required = read.schema
  private var limit: Option[Int] = None
  private var filters = Array.empty[Filter]
  private var keys: Option[LiveKeys] = None
  private var partitions: Option[Set[Int]] = None

  /** Keys and partitions narrow what is read; all filters are left to Spark. */
  override def pushFilters(offered: Array[Filter]): Array[Filter] = {
    keys = read.key.flatMap(KeyFilters.keys(offered.toSeq, _))
    partitions = KeyFilters.partitions(offered.toSeq)
    if (keys.isDefined || partitions.isDefined) filters = offered
    offered
  }

  override def pushedFilters(): Array[Filter] = filters

  override def pruneColumns(schema: StructType): Unit =
    // Whole columns: a struct is one row in memory, whichever fields of it are used.
    required = StructType(read.schema.filter(f => schema.fieldNames.contains(f.name)))

  override def pushLimit(n: Int): Boolean = {
    limit = Some(n)
    true
  }

  override def isPartiallyPushed: Boolean = true

  override def build(): Scan = {
    val only = (options.partition.map(Set(_)) ++ partitions).reduceOption(_ & _)
    new LiveScan(read, options, planned, keys, only, required, limit)
  }
}

/** @param only the partitions that are read; None for all
  * @param limit rows that each partition gives at most
  */
private final class LiveScan(
    read: StateRead,
    options: LiveOptions,
    planned: ReadRequest.Pin,
    keys: Option[LiveKeys],
    only: Option[Set[Int]],
    required: StructType,
    limit: Option[Int]
) extends Scan with Batch {
  override def readSchema(): StructType = required
  override def toBatch: Batch = this
  override def description(): String = {
    val query = read.pin.query
    val narrowed = keys.fold("")(k => s", ${k.rows.length} keys") +
      only.fold("")(_.toSeq.sorted.mkString(", partitions ", " ", ""))
    s"statemark ${query.id}${query.name.fold("")(n => s" ($n)")}, batch ${read.pin.batch}, " +
      s"${options.level.name}$narrowed"
  }

  override def planInputPartitions(): Array[InputPartition] = {
    val partitions = read.partitions(keys).filter(p => only.forall(_(p.partition)))
    options.begun(read.pin, partitions.map(_.partition))
    if (keys.isDefined || only.isDefined) {
      val ids = partitions.map(_.partition).toSet
      ReadRouter.tell(ReadRequest.Narrow(planned.runId, planned.operator, planned.read, ids))
    }
    partitions.map { partition =>
      new LivePartition(partition, planned.runId, hostOf(partition).toArray)
    }.toArray
  }

  /** Returns the executor that holds the store, as Spark's coordinator knows it. */
  private def hostOf(partition: StateStoreInputPartition): Option[String] = {
    val options = partition.sourceOptions
    val query = read.pin.query
    val address =
      StoreAddress(query.runId, options.operatorId, partition.partition, options.storeName)
    ReadRouter.locationOf(SparkSession.active, query.stateRoot, address)
  }

  override def createReaderFactory(): PartitionReaderFactory = {
    val columns = required.map(f => read.schema.fieldIndex(f.name))
    new LiveReaderFactory(
      read.factory,
      LiveRead(options.level, keys, Some(planned.read), read.pin.offsets),
      Option.when(required != read.schema)((required, columns)),
      limit
    )
  }
}

/** @param hosts where the store is open: a preference, read by the scheduler on the driver */
private final class LivePartition(
    of: StateStoreInputPartition,
    runId: UUID,
    hosts: Array[String]
) extends StateStoreInputPartition(of.partition, runId, of.sourceOptions) {
  override def preferredLocations(): Array[String] = hosts
}

/** @param pruned columns that are wanted, and their places among all, where not all are wanted */
private final class LiveReaderFactory(
    inner: PartitionReaderFactory,
    read: LiveRead,
    pruned: Option[(StructType, Seq[Int])],
    limit: Option[Int]
) extends PartitionReaderFactory {
  override def createReader(partition: InputPartition): PartitionReader[InternalRow] = {
    val reader = read.during(inner.createReader(partition))
    val projection = pruned.map { case (schema, columns) => ProjectingInternalRow(schema, columns) }
    new PartitionReader[InternalRow] {
      private var left = limit.getOrElse(Int.MaxValue)

      override def next(): Boolean = left > 0 && {
        left -= 1
        read.during(reader.next())
      }
      override def get(): InternalRow = projection.fold(reader.get()) { projected =>
        projected.project(reader.get())
        projected
      }
      override def close(): Unit = read.during(reader.close())
    }
  }
}

/** The rows that [[LiveLookup]] finds, as of the batch that is the last when a query over the table is planned. */
private final class LookupScan(
    override val readSchema: StructType,
    options: LiveOptions,
    keys: String
) extends LocalScan {
  override def description(): String = s"statemark ${options.shown}"

  override def rows(): Array[InternalRow] = LiveLookup.explained {
    val page = LiveLookup.find(options, keys)
    // A table may be kept for longer than a run, and Spark reads the bytes of a row as the table says.
    if (LookupScan.schema(page.schema) != readSchema)
      throw LiveQueries.wrong(
        s"The query was started again with other state: its rows are ${page.schema.sql} now.",
        "Load format 'statemark' anew."
      )
    val asOf = UTF8String.fromString(page.asOf)
    page.rows.zipWithIndex.map { case (row, place) => InternalRow(place, row.orNull, asOf) }.toArray
  }
}

private object LookupScan {

  /** @param row the columns of the rows of the state */
  def schema(row: StructType): StructType = new StructType()
    .add("place", IntegerType, nullable = false)
    .add("row", row)
    .add("as_of", StringType, nullable = false)
}
