package statemark.spark.offline.switching

import org.apache.spark.sql.execution.streaming.state.{StateStoreColFamilySchema, StateStoreId}
import org.apache.spark.sql.types.{StructType, TimestampType}

/** Stores of operators without metadata: Spark before 4.0 wrote none. Names of stores and their schemas say all that an
  * import needs, since those releases had few kinds of operators.
  */
private[offline] object UndescribedStores {

  /** ''Source:'' Spark 3.5 `SymmetricHashJoinStateManager.allStateStoreNames` */
  private val Join = for {
    side <- Set("left", "right")
    what <- Set("keyToNumValues", "keyWithIndexToValue")
  } yield s"$side-$what"

  /** ''Source:'' Spark 3.5 `StreamingSessionWindowStateManagerImplV1`, `SessionWindow.marker` */
  private val SessionStart = "sessionStartTime"
  private val SessionMarker = "spark.sessionWindow"

  /** Returns how many leading columns of its key an operator of Spark before 4.0 scans a store by. Session windows alone
    * scan: by all columns but the start of the session.
    */
  def prefixColumns(schema: StateStoreColFamilySchema): Int =
    if (isOfSessions(schema.keySchema, schema.valueSchema)) schema.keySchema.length - 1 else 0

  /** Tells whether rows are of session windows. A query may group by a column of any name; the marked column among the
    * values, with every other column of the key beside it, is Spark's own.
    */
  private def isOfSessions(key: StructType, value: StructType): Boolean =
    key.lastOption.exists(c => c.name == SessionStart && c.dataType == TimestampType) &&
      key.init.forall(c => value.fieldNames.contains(c.name)) &&
      value.exists(_.metadata.contains(SessionMarker))

  /** Returns why the stores cannot be imported without metadata, and what to do about it; None where they can.
    *
    * @param stores the operator and the name of each
    * @param described the operators that have metadata
    */
  def problem(stores: Set[(Long, String)], described: Set[Long]): Option[(String, String)] = {
    val names = stores.groupMap(_._1)(_._2)
    val operators = described ++ names.keySet
    val lost = (0L to operators.maxOption.getOrElse(-1L)).toSet -- operators
    def shown(some: Set[String]) = some.toSeq.sorted.mkString(", ")
    if (stores.nonEmpty && lost.nonEmpty)
      Some((
        s"the directories of the operators ${lost.toSeq.sorted.mkString(", ")} are missing",
        "bring them back"
      ))
    else names.toSeq.sortBy(_._1).collectFirst {
      case (operator, some) if some.subsetOf(Join) && some != Join =>
        (
          s"the stores ${shown(Join -- some)} of the join, operator $operator, are missing",
          "bring them back"
        )
      case (operator, some) if some != Join && some != Set(StateStoreId.DEFAULT_STORE_NAME) =>
        (
          s"operator $operator has no metadata, and no operator of a Spark before 4.0 has the stores ${shown(some)}",
          s"bring the file state/$operator/_metadata/metadata back"
        )
    }
  }
}
