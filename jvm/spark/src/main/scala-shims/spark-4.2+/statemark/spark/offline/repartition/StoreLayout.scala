package statemark.spark.offline.repartition

import java.util.UUID
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.apache.spark.sql.catalyst.expressions.{UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.catalyst.plans.physical.HashPartitioning
import org.apache.spark.sql.catalyst.types.DataTypeUtils
import org.apache.spark.sql.execution.streaming.operators.stateful.join.StreamingSymmetricHashJoinHelper.{
  LeftSide,
  RightSide
}
import org.apache.spark.sql.execution.streaming.operators.stateful.join.SymmetricHashJoinStateManager
import org.apache.spark.sql.execution.streaming.operators.stateful.{
  StatePartitionKeyExtractorFactory,
  StatefulOperatorsUtils
}
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.{
  StateStoreColumnFamilySchemaUtils,
  StateVariableType,
  TransformWithStateOperatorProperties,
  TransformWithStateVariableInfo
}
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.types.{NullType, StructType}
import statemark.spark.offline.cli.UserError

/** A column family of a store, and how a row's key tells the partition that holds it. */
private[offline] final case class FamilyLayout(
    operatorName: String,
    storeName: String,
    schema: StateStoreColFamilySchema,
    joinFormat: Int,
    variable: Option[TransformWithStateVariableInfo]
) {
  def name: String = schema.colFamilyName

  private def isTimedJoinFamily: Boolean = FamilyLayout.timedJoinFamilies.contains(name)

  def hasManyValues: Boolean = isTimedJoinFamily ||
    (variable.exists(_.stateVariableType == StateVariableType.ListState) &&
      variable.exists(_.stateName == name))

  def isInternal: Boolean = StateStoreColumnFamilySchemaUtils.isInternalColFamily(name) ||
    FamilyLayout.joinIndexes.contains(name)

  /** What Spark hashed to place the row. */
  def partitionKey: StatePartitionKeyExtractor =
    // Spark's factory leaves the event time of a join's format 4 in the key.
    if (isTimedJoinFamily) new DropLastNFieldsStatePartitionKeyExtractor(schema.keySchema, 1)
    // One row with a null key, in a single partition; the factory does not know it.
    else if (operatorName == FamilyLayout.GlobalLimit)
      new NoopStatePartitionKeyExtractor(new StructType())
    else
      StatePartitionKeyExtractorFactory.create(
        operatorName,
        schema.keySchema,
        storeName,
        name,
        Some(joinFormat),
        variable
      )

  /** Partition of a key among `from` and among `to` partitions. */
  def placement(from: Int, to: Int): UnsafeRow => (Int, Int) = {
    val extractor = partitionKey
    if (extractor.partitionKeySchema.isEmpty) _ => (0, 0)
    else {
      val fields = DataTypeUtils.toAttributes(extractor.partitionKeySchema)
      val ids = Seq(from, to).map(HashPartitioning(fields, _).partitionIdExpression)
      val project = UnsafeProjection.create(ids, fields)
      key => {
        val placed = project(extractor.partitionKey(key))
        (placed.getInt(0), placed.getInt(1))
      }
    }
  }

  def register(store: StateStore): Unit =
    store.createColFamilyIfAbsent(
      name,
      schema.keySchema,
      schema.valueSchema,
      schema.keyStateEncoderSpec.getOrElse(NoPrefixKeyStateEncoderSpec(schema.keySchema)),
      hasManyValues,
      isInternal
    ): Unit
}

private[offline] object FamilyLayout {

  /** `StreamingGlobalLimitExec.shortName`, which Spark gives no constant. */
  val GlobalLimit = "globalLimit"
  private val timedJoinFamilies =
    SymmetricHashJoinStateManager.allStateStoreNamesV4(LeftSide, RightSide).toSet
  private val joinIndexes = timedJoinFamilies.filter(_.endsWith("-tsWithKey"))
}

/** A state store of an operator, the same for each of its partitions.
  *
  * @param default what a provider is told of the default column family, where the store has rows there
  * or not
  */
private[offline] final case class StoreLayout(
    operatorId: Long,
    operatorName: String,
    name: String,
    families: Seq[FamilyLayout],
    default: StateStoreColFamilySchema,
    usesFamilies: Boolean,
    schemas: Option[StateSchemaProvider]
) {

  /** Some operators keep all state in partition 0, however many partitions the query has: the global
    * limit, and aggregations without grouping keys.
    */
  def isOnePartition: Boolean =
    families.nonEmpty && families.forall(_.partitionKey.partitionKeySchema.isEmpty)

  def partitions(ofQuery: Int): Int = if (isOnePartition) 1 else ofQuery

  def provider(
      stateLocation: String,
      partition: Int,
      conf: StateStoreConf,
      hadoopConf: Configuration
  ): StateStoreProvider =
    StateStoreProvider.createAndInit(
      StateStoreProviderId(
        StateStoreId(stateLocation, operatorId, partition, name),
        UUID.randomUUID()
      ),
      default.keySchema,
      default.valueSchema,
      default.keyStateEncoderSpec.getOrElse(NoPrefixKeyStateEncoderSpec(default.keySchema)),
      usesFamilies,
      conf,
      new Configuration(hadoopConf),
      useMultipleValuesPerKey = false,
      schemas
    )

  def register(store: StateStore): Unit =
    if (usesFamilies)
      families.filter(_.name != StateStore.DEFAULT_COL_FAMILY_NAME).foreach(_.register(store))
}

private[offline] object StoreLayout {
  private val nothing = StructType(Nil).add("nothing", NullType)

  /** The stores of one operator, as its metadata and schema files describe them. */
  def of(
      operator: OperatorStateMetadata,
      stateLocation: String,
      joinFormat: Int,
      hadoopConf: Configuration
  ): Seq[StoreLayout] = {
    val info = operator.operatorInfo
    val isTransformWithState =
      StatefulOperatorsUtils.TRANSFORM_WITH_STATE_OP_NAMES.contains(info.operatorName)
    val variables = operator match {
      case v2: OperatorStateMetadataV2 if isTransformWithState =>
        TransformWithStateOperatorProperties.fromJson(v2.operatorPropertiesJson).stateVariables
      case _ => Nil
    }
    operator.stateStoresMetadata.map { store =>
      val files = store match {
        case v2: StateStoreMetadataV2 => v2.stateSchemaFilePaths
        case _ => Nil
      }
      val schemas = schemasOf(info.operatorId, store, files, stateLocation, hadoopConf)
      val usesFamilies =
        isTransformWithState || schemas.exists(
          _.colFamilyName != StateStore.DEFAULT_COL_FAMILY_NAME
        )
      // The default family of transformWithState holds no rows and has no key to place them by.
      val families = schemas
        .filterNot(isTransformWithState && _.colFamilyName == StateStore.DEFAULT_COL_FAMILY_NAME)
        .map { schema =>
          val base = StateStoreColumnFamilySchemaUtils.getBaseStateName(schema.colFamilyName)
          FamilyLayout(
            info.operatorName,
            store.storeName,
            schema,
            joinFormat,
            variables.find(_.stateName == base)
          )
        }
      StoreLayout(
        info.operatorId,
        info.operatorName,
        store.storeName,
        families,
        schemas.find(_.colFamilyName == StateStore.DEFAULT_COL_FAMILY_NAME)
          .getOrElse(unusedDefault(schemas.headOption)),
        usesFamilies,
        Option.when(isTransformWithState)(
          new InMemoryStateSchemaProvider(
            StateSchemaMetadata.createStateSchemaMetadata(stateLocation, hadoopConf, files)
          )
        )
      )
    }
  }

  private def unusedDefault(like: Option[StateStoreColFamilySchema]): StateStoreColFamilySchema = {
    val key = like.fold(nothing)(_.keySchema)
    StateStoreColFamilySchema(
      StateStore.DEFAULT_COL_FAMILY_NAME,
      keySchemaId = 0,
      key,
      valueSchemaId = 0,
      like.fold(nothing)(_.valueSchema),
      Some(NoPrefixKeyStateEncoderSpec(key))
    )
  }

  private def schemasOf(
      operatorId: Long,
      store: StateStoreMetadata,
      files: List[String],
      stateLocation: String,
      hadoopConf: Configuration
  ): Seq[StateStoreColFamilySchema] = {
    val id = StateStoreId(
      stateLocation,
      operatorId,
      StateStore.PARTITION_ID_TO_CHECK_SCHEMA,
      store.storeName
    )
    new StateSchemaCompatibilityChecker(
      StateStoreProviderId(id, UUID.randomUUID()),
      hadoopConf,
      oldSchemaFilePaths = files.map(new Path(_)),
      createSchemaDir = false
    ).readSchemaFile().map { schema =>
      (schema.keyStateEncoderSpec, store) match {
        case (Some(_), _) => schema
        // Metadata of version 1 says no more of the encoder than the width of the prefix.
        case (None, v1: StateStoreMetadataV1) =>
          val spec =
            if (v1.numColsPrefixKey > 0)
              PrefixKeyScanStateEncoderSpec(schema.keySchema, v1.numColsPrefixKey)
            else NoPrefixKeyStateEncoderSpec(schema.keySchema)
          schema.copy(keyStateEncoderSpec = Some(spec))
        case _ => throw UserError(
            s"the schema of column family ${schema.colFamilyName} of operator $operatorId is damaged",
            s"it does not say how keys are encoded, although $stateLocation has metadata of version 2",
            "bring the schema file back"
          )
      }
    }
  }
}
