package statemark.spark.offline.inspect

import org.apache.spark.sql.execution.streaming.state.OperatorStateMetadata
import org.json4s.{JNothing, JObject, JString, JValue}
import org.json4s.JsonDSL._
import statemark.common.Position
import statemark.spark.checkpoint.OperatorFacts
import statemark.spark.offline.checkpoint.{PinnedKeys, QueryCheckpoint}
import statemark.spark.offline.cli.{Command, CommandContext, ExitCode, Fields}
import statemark.spark.offline.local.LocalListing

/** `inspect CHECKPOINT [--json]`: what a checkpoint holds, and how large it is. Reads logs, listings and
  * the newest snapshot's metadata of each store, and what the query's stores in the local directory of this machine hold.
  */
object InspectCommand extends Command {
  override val name: String = "inspect"

  final case class Arguments(checkpoint: String, json: Boolean)

  override def read(fields: Fields): Arguments =
    Arguments(fields.checkpoint, fields.flag("json"))

  override def run(args: Arguments, context: CommandContext): ExitCode = {
    val checkpoint = QueryCheckpoint.open(args.checkpoint, context)
    val facts = new CheckpointFacts(
      checkpoint,
      Inspection.stores(checkpoint, checkpoint.commits, context.spark),
      checkpoint.lastCommit.flatMap(checkpoint.end),
      HeldOffsets.of(checkpoint, context.spark)
    )
    context.answer(args.json, facts.json)(new InspectionText(facts).lines)
    ExitCode.Ok
  }
}

/** What `inspect` tells of a checkpoint.
  * @param end source offsets at which its last committed batch ends
  * @param held those that the query's stores in the local directory of this machine hold
  */
final class CheckpointFacts(
    val checkpoint: QueryCheckpoint,
    val stores: Seq[StoreFacts],
    val end: Option[Position],
    val held: Seq[HeldOffsets]
) {
  private val offsets = checkpoint.offsets
  private val confs = checkpoint.latestOffset.confs

  /** Batches at which the pinned provider changes, the oldest retained batch first. */
  val providers: Seq[(Long, Option[String])] =
    offsets.map(o => o.batch -> o.provider.map(_.className)).foldLeft(Vector.empty[(
        Long,
        Option[String]
    )]) {
      case (found, (_, provider)) if found.lastOption.exists(_._2 == provider) => found
      case (found, change) => found :+ change
    }

  val lastPlanned: Long = checkpoint.latestOffset.batch
  val lastCommitted: Option[Long] = checkpoint.lastCommit

  /** None before the first commit. */
  val formatVersion: Option[Int] =
    lastCommitted.map(b => if (checkpoint.checkpointIds(b).isDefined) 2 else 1)

  val settings: Seq[(String, Option[String])] = Seq(
    "codec" -> confs.get(PinnedKeys.Codec),
    "encoding" -> confs.get(PinnedKeys.Encoding),
    "rowChecksums" -> confs.get(PinnedKeys.RowChecksums),
    "mergeOperatorVersion" -> confs.get(PinnedKeys.MergeOperator),
    // Not pinned: whether files have them now.
    "fileChecksums" -> Some(stores.exists(_.partitions.exists(_.checksumFiles > 0)).toString)
  )

  private val metadata: Seq[OperatorFacts] =
    lastCommitted.fold(Seq.empty[OperatorStateMetadata])(checkpoint.operators).map(OperatorFacts.of)

  val partitions: Option[Int] =
    checkpoint.latestOffset.partitions.orElse(metadata.map(_.partitions).maxOption)

  /** Every operator with its stores: those that metadata names, and those that lie there without. */
  val operators: Seq[OperatorView] = {
    val named = metadata.map { facts =>
      OperatorView(
        facts.id,
        Some(facts.name),
        stateFormat(facts.name),
        facts.variables,
        stores.filter(s => s.operator == facts.id && facts.stores.contains(s.name))
      )
    }
    val unnamed = stores.map(_.operator).distinct.filterNot(id => named.exists(_.id == id)).map {
      id =>
        OperatorView(id, None, None, Nil, stores.filter(_.operator == id))
    }
    (named ++ unnamed).sortBy(_.id)
  }

  private def stateFormat(operator: String): Option[String] = {
    val key = operator match {
      case "stateStoreSave" | "sessionWindowStateStoreSaveExec" =>
        Some(PinnedKeys.AggregationFormat)
      case "symmetricHashJoin" => Some(PinnedKeys.JoinFormat)
      case name if name.startsWith("flatMapGroups") || name.startsWith("applyInPandas") =>
        Some(PinnedKeys.GroupsFormat)
      case _ => None
    }
    key.flatMap(confs.get)
  }

  def json: JObject =
    ("checkpoint" -> checkpoint.root.toString) ~
      ("queryId" -> checkpoint.queryId) ~
      ("provider" -> providers.last._2) ~
      ("providers" -> providers.map { case (b, p) => ("fromBatch" -> b) ~ ("provider" -> p) }) ~
      ("checkpointFormatVersion" -> formatVersion) ~
      ("settings" -> JObject(settings.map { case (k, v) =>
        k -> v.fold[JValue](JNothing)(JString(_))
      }.toList)) ~
      ("partitions" -> partitions) ~
      ("oldestRetainedBatch" -> offsets.head.batch) ~
      ("lastPlannedBatch" -> lastPlanned) ~
      ("lastCommittedBatch" -> lastCommitted) ~
      ("offsets" -> end.map(LocalListing.offsets)) ~
      ("localStores" -> held.map(of =>
        ("store" -> of.store) ~ ("version" -> of.version) ~
          ("offsets" -> LocalListing.offsets(of.position)) ~ ("differs" -> of.differs)
      )) ~
      ("operators" -> operators.map(operatorJson)) ~
      ("totals" -> (("stores" -> stores.map(_.partitions.length).sum) ~
        ("bytes" -> stores.map(_.bytes).sum) ~
        ("changelogBytes" -> all(_.changelogBytes)) ~
        ("snapshotBytes" -> all(_.snapshotBytes)) ~
        ("sstBytes" -> all(_.sharedBytes))))

  private def all(figure: PartitionFacts => Long): Long =
    stores.flatMap(_.partitions).map(figure).sum

  private def operatorJson(o: OperatorView): JObject =
    ("id" -> o.id) ~ ("name" -> o.name) ~ ("stateFormatVersion" -> o.stateFormat) ~
      ("stateVariables" -> o.variables) ~ ("stores" -> o.stores.map(storeJson))

  private def storeJson(s: StoreFacts): JObject =
    ("name" -> s.name) ~
      ("columnFamilies" -> s.families.map(f =>
        ("name" -> f.name) ~ ("id" -> f.id) ~ ("internal" -> f.isInternal)
      )) ~
      ("rows" -> s.rows) ~ ("bytes" -> s.bytes) ~ ("skew" -> s.skew) ~
      ("partitions" -> s.partitions.map(partitionJson))

  private def partitionJson(p: PartitionFacts): JObject = {
    val snapshot = p.newestSnapshot.toOption
    ("partition" -> p.partition) ~
      ("oldestVersion" -> p.oldest) ~
      ("newestVersion" -> p.newest) ~
      ("snapshots" -> p.snapshots) ~
      ("newestSnapshotVersion" -> snapshot.map(_.version)) ~
      ("rows" -> snapshot.flatMap(_.rows)) ~
      ("internalRows" -> snapshot.flatMap(_.internalRows)) ~
      ("unknown" -> p.newestSnapshot.left.toOption) ~
      ("changelogBytes" -> p.changelogBytes) ~
      ("snapshotBytes" -> p.snapshotBytes) ~
      ("sstBytes" -> p.sharedBytes)
  }
}

/** @param name None where no metadata names the operator
  * @param variables state variables of a transformWithState
  */
final case class OperatorView(
    id: Long,
    name: Option[String],
    stateFormat: Option[String],
    variables: Seq[String],
    stores: Seq[StoreFacts]
)
