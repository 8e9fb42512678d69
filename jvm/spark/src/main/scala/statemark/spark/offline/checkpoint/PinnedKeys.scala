package statemark.spark.offline.checkpoint

/** Settings that Spark pins in offset entries, by key: not every line of Spark names all of them. */
object PinnedKeys {
  private val Streaming = "spark.sql.streaming."
  val Codec: String = s"${Streaming}stateStore.compression.codec"
  val Encoding: String = s"${Streaming}stateStore.encodingFormat"
  val RowChecksums: String = s"${Streaming}stateStore.rowChecksum.enabled"
  val MergeOperator: String = s"${Streaming}stateStore.rocksdb.mergeOperatorVersion"
  val TableFormat: String = s"${Streaming}stateStore.rocksdb.formatVersion"
  val AggregationFormat: String = s"${Streaming}aggregation.stateFormatVersion"
  val JoinFormat: String = s"${Streaming}join.stateFormatVersion"
  val GroupsFormat: String = s"${Streaming}flatMapGroupsWithState.stateFormatVersion"
}
