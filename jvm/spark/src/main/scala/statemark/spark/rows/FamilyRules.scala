package statemark.spark.rows

import org.apache.spark.sql.execution.streaming.state.{StateStore, StateStoreErrors}
import statemark.engine.ColumnFamilies

/** What names of virtual column families may be used and when.
  *
  * ''Source:'' Spark 4.2 `RocksDBStateStoreProvider.verifyColFamilyOperations`,
  * `verifyColFamilyCreationOrDeletion`.
  */
object FamilyRules {
  private val Disabled = "multiple column families is disabled in StatemarkStateStoreProvider"

  /** @throws StateStoreUnsupportedOperationException and its kin where `family` cannot be used */
  def checkUse(
      operation: String,
      family: String,
      usesFamilies: Boolean,
      families: ColumnFamilies
  ): Unit =
    if (family != StateStore.DEFAULT_COL_FAMILY_NAME) {
      if (!usesFamilies) throw StateStoreErrors.unsupportedOperationException(operation, Disabled)
      if (family.isEmpty || family.trim != family)
        throw StateStoreErrors.cannotUseColumnFamilyWithInvalidName(operation, family)
      if (!families.byName.contains(family))
        throw StateStoreErrors.unsupportedOperationOnMissingColumnFamily(operation, family)
    }

  /** @throws StateStoreUnsupportedOperationException and its kin where `family` cannot be created or
    *   removed
    */
  def checkChange(
      operation: String,
      family: String,
      isInternal: Boolean,
      usesFamilies: Boolean
  ): Unit = {
    if (!usesFamilies) throw StateStoreErrors.unsupportedOperationException(operation, Disabled)
    val isReserved = family == StateStore.DEFAULT_COL_FAMILY_NAME && !isInternal
    if (family.isEmpty || family.trim != family || isReserved)
      throw StateStoreErrors.cannotUseColumnFamilyWithInvalidName(operation, family)
    if (!isInternal && family.head == '$')
      throw StateStoreErrors.cannotCreateColumnFamilyWithReservedChars(family)
  }
}
