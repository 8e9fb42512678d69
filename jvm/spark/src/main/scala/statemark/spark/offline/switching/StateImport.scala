package statemark.spark.offline.switching

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.apache.spark.{SparkContext, TaskContext}
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types.StructType
import org.apache.spark.util.SerializableConfiguration
import scala.annotation.tailrec
import scala.util.Using
import statemark.spark.checkpoint.{OperatorFacts, StoreFile}
import statemark.spark.conf.ProviderClass
import statemark.spark.offline.checkpoint.{Jobs, QueryCheckpoint, StoreListing}
import statemark.spark.offline.cli.{CommandContext, ProgressLines, UserError}
import statemark.spark.offline.ownership.{OwnedFileManager, Ownership}
import statemark.spark.StatemarkStateStoreProvider

/** One store to import.
  *
  * @param prefixColumns leading columns of the key that the operator scans by
  */
private final case class StoreImport(
    id: StateStoreId,
    keySchema: StructType,
    valueSchema: StructType,
    prefixColumns: Int,
    version: Long
) {
  def keyEncoder: KeyStateEncoderSpec =
    if (prefixColumns == 0) NoPrefixKeyStateEncoderSpec(keySchema)
    else PrefixKeyScanStateEncoderSpec(keySchema, prefixColumns)
}

/** What an import did. */
final case class Imported(version: Long, stores: Int, rows: Long) {
  def summary: String =
    if (version == 0) "no batch was committed, so that there was no state to import"
    else {
      s"imported version $version of the state: $stores stores, $rows rows; the .delta and .snapshot " +
        s"files stay, for reads at batches before ${version - 1}"
    }
}

/** Writes one version of a query's state, which is in files of Spark's HDFS-backed provider, as RocksDB
  * snapshots into the same directories. Nothing reads those before the offset log pins a provider that
  * does: an interrupted import leaves files that the HDFS-backed provider passes over and the next
  * import replaces.
  *
  * @param version the version that the query's next batch begins with
  */
final class StateImport(checkpoint: QueryCheckpoint, version: Long, context: CommandContext) {
  private val entry = checkpoint.latestOffset

  private lazy val stores: Seq[StoreImport] =
    if (version == 0) Nil
    else {
      val found = checkpoint.listedStores
      val known = described(found)
      checkPartitions(found, known.values.map(_.numPartitions).maxOption)
      found.groupBy(s => (s.operator, s.name)).toSeq.sortBy(_._1).flatMap {
        case ((operator, name), listings) =>
          val schema = schemaOf(operator, name)
          val prefix = known.get((operator, name)).map(_.numColsPrefixKey)
            .getOrElse(UndescribedStores.prefixColumns(schema))
          listings.map { listing =>
            StoreImport(
              checkpoint.storeId(operator, listing.partition, name),
              schema.keySchema,
              schema.valueSchema,
              prefix,
              version
            )
          }
      }
    }

  /** Refuses a checkpoint that cannot be imported; changes nothing. */
  def check(): Unit = stores: Unit

  /** @param owner of the checkpoint: nothing is written after it has lost it */
  def run(owner: Ownership): Imported =
    if (stores.isEmpty) Imported(version, 0, 0)
    else {
      deleteLeftovers(owner)
      val spark = context.spark
      val conf = new StateStoreConf(
        settings,
        Map(StateStoreConf.FORMAT_VALIDATION_CHECK_VALUE_CONFIG -> "false")
      )
      var done = 0
      var rows = 0L
      val lines = new ProgressLines(context.console, context.clock)
      val owned = OwnedFileManager.settings(checkpoint.hadoopConf, owner.held)
      StateImport.onExecutors(spark.sparkContext, owned, stores, conf) { written =>
        owner.requireHeld()
        done += 1
        rows += written
        lines.show(always = done == stores.length) {
          s"imported $done of ${stores.length} stores, $rows rows"
        }
      }
      Imported(version, done, rows)
    }

  /** Removes what an interrupted import, or a time on another provider that was rolled back, left: a
    * snapshot of a later version would be read one day. Here and not in the tasks: a late one would
    * remove what another import has written since.
    */
  @tailrec
  private def deleteLeftovers(owner: Ownership): Unit = {
    val kept =
      checkpoint.offsets.filter(_.provider.exists(_.usesRocksDbFiles)).map(_.batch + 1).toSet
    def isLeft(name: String) =
      StoreFile.version(name).exists(!kept(_)) || StoreFile.unfinishedVersion(name).nonEmpty
    def path(store: StoreListing)(name: String) = new Path(store.directory, name)
    val found = checkpoint.stores(withShared = true)
    val left = found.map(store => store -> store.files.map(_.name).filter(isLeft))
    for ((store, names) <- left) names.map(path(store)).foreach(owner.remove)
    if (kept.isEmpty) {
      for (store <- found)
        store.files.map(_.name).filter(StoreFile.of(_) == StoreFile.Shared).map(path(store))
          .foreach(owner.delete)
    }
    // A file that was being written may have come to its place meanwhile.
    if (left.exists(_._2.nonEmpty)) deleteLeftovers(owner)
  }

  private def settings: SQLConf = {
    val conf = checkpoint.settings(entry)
    // The HDFS-backed provider knows no checkpoint ids.
    conf.setConf(SQLConf.STATE_STORE_CHECKPOINT_FORMAT_VERSION, 1)
    // No batch of a query waits for these commits.
    conf.setConfString("spark.sql.streaming.stateStore.commitValidation.enabled", "false")
    conf
  }

  /** The metadata of every store whose operator has some, by operator and name. */
  private def described(found: Seq[StoreListing]): Map[(Long, String), StateStoreMetadata] = {
    val all = (for {
      operator <- checkpoint.operators(checkpoint.lastCommit.getOrElse(entry.batch))
      store <- OperatorFacts.storesOf(operator)
    } yield (operator.operatorInfo.operatorId, store.storeName) -> store).toMap
    val (there, undescribed) =
      found.map(s => (s.operator, s.name)).toSet.partition(s => all.keys.exists(_._1 == s._1))
    UndescribedStores.problem(undescribed, there.map(_._1)).foreach { case (reason, remedy) =>
      refuse(reason, remedy)
    }
    val differing = (there -- all.keySet) ++ (all.keySet -- there)
    if (differing.nonEmpty) {
      val names = differing.toSeq.sorted.map { case (o, n) => s"operator $o, store $n" }
      refuse(
        s"the metadata of the operators and the directories of the stores differ in ${names.mkString("; ")}",
        "files are missing: bring them back"
      )
    }
    all.collectFirst { case ((operator, _), _: StateStoreMetadataV2) => operator }.foreach { o =>
      refuse(
        s"operator $o has column families, which the HDFS-backed provider does not know",
        "use the Statemark of the Spark that wrote the checkpoint"
      )
    }
    all
  }

  /** An operator has a store in every partition, or in the first one only if its rows are not spread.
    *
    * @param described the number of partitions by the metadata of the operators
    */
  private def checkPartitions(found: Seq[StoreListing], described: Option[Int]): Unit = {
    val partitions = entry.partitions.orElse(described).getOrElse(refuse(
      s"the offset entry of batch ${entry.batch} does not name the number of partitions",
      "bring the file back as Spark wrote it"
    ))
    found.groupBy(s => (s.operator, s.name)).foreach { case ((operator, name), listings) =>
      val there = listings.map(_.partition).toSet
      val missing = (0 until partitions).toSet -- there
      if (there != Set(0) && missing.nonEmpty) {
        refuse(
          s"operator $operator, store $name, has no directory for the partitions " +
            missing.toSeq.sorted.mkString(", "),
          "bring them back"
        )
      }
    }
  }

  private def schemaOf(operator: Long, name: String): StateStoreColFamilySchema =
    checkpoint.schemas(operator, name).getOrElse(refuse(
      s"the schema of operator $operator, store $name, is missing",
      "if the query last ran on a Spark before 3.1, which wrote none, run one batch of it on this Spark with the " +
        "provider that it has, which writes it; else bring the file back"
    ))

  private def refuse(reason: String, remedy: String): Nothing =
    throw UserError(s"the state of ${checkpoint.root} cannot be imported", reason, remedy)
}

private object StateImport {

  /** Imports every store in a task of its own; `finished` hears the rows of each, on this thread's side.
    */
  def onExecutors(
      spark: SparkContext,
      hadoopConf: Configuration,
      stores: Seq[StoreImport],
      conf: StateStoreConf
  )(finished: Long => Unit): Unit = {
    val broadcast = spark.broadcast(new SerializableConfiguration(hadoopConf))
    val tasks = spark.parallelize(stores, stores.length)
    val work = (_: TaskContext, some: Iterator[StoreImport]) =>
      some.map(importOne(_, conf, broadcast.value.value)).sum
    Jobs.run(spark.runJob(tasks, work, stores.indices, (_: Int, rows: Long) => finished(rows)))
  }

  private def importOne(store: StoreImport, conf: StateStoreConf, shared: Configuration): Long = {
    val hadoopConf = ProviderClass.newRun(shared)
    Using.Manager { use =>
      def open[P <: StateStoreProvider](made: P): P = {
        made.init(
          store.id,
          store.keySchema,
          store.valueSchema,
          store.keyEncoder,
          useColumnFamilies = false,
          conf,
          hadoopConf
        )
        use(made)((p: P) => p.close())
      }
      val hdfs = open(StateStoreProvider.create(ProviderClass.Hdfs.className))
      val source = hdfs.getReadStore(store.version, None)
      val target = open(new StatemarkStateStoreProvider).getStore(
        store.version - 1,
        None,
        forceSnapshotOnCommit = false,
        loadEmpty = true
      )
      try {
        var rows = 0L
        source.iterator().foreach { pair =>
          target.put(pair.key, pair.value)
          rows += 1
        }
        target.commit(): Unit
        rows
      } finally {
        if (!target.hasCommitted) target.abort()
        source.abort()
      }
    }.get
  }
}
