package statemark.spark.provider

import java.nio.charset.StandardCharsets.ISO_8859_1
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.types.StructType
import org.apache.spark.TaskContext
import org.slf4j.LoggerFactory
import scala.util.control.NonFatal
import statemark.common.Bytes
import statemark.engine.RocksEngine
import statemark.spark.errors.StoreFailures
import statemark.spark.metrics.InstanceMetrics
import statemark.spark.reads.{KeysThere, LiveKeys, PointScan, PrefixesScan}
import statemark.spark.rows.{FamilyRules, RowBytes, RowEncoders, RowFormat, RowValidation}
import statemark.transaction.{RowScan, Rows, Transaction}

/** Ends what a handle has checked out. The handle holds the stamp when it calls. */
private[spark] trait HandleOwner {
  private[spark] def commit(handle: StatemarkRocksDBStateStore): CommitResult
  private[spark] def abort(handle: StatemarkRocksDBStateStore): Unit
}

/** One version of a store, checked out by a task: Spark's rows on one side, a transaction on the other.
  *
  * A read store becomes a write store as the same object, so that reads that began on it go on and see
  * the writes. Listeners end it with the task; abort and release may come several times.
  *
  * ''Thread:'' one at a time, not always the task's own (PySpark's transformWithState).
  * ''Source:'' Spark 4.2 `StateStore`, `ReadStateStore`, whose suites look for `RocksDBStateStore` in the name of a class.
  */
final class StatemarkRocksDBStateStore private[spark] (
    owner: HandleOwner,
    context: ProviderContext,
    override val version: Long,
    stamp: Long,
    startsReadOnly: Boolean,
    startsForced: Boolean,
    private[spark] val checkedOut: Checkout
) extends StoreBase {
  import context.{encoders, location}, context.conf.usesFamilies

  private lazy val log = LoggerFactory.getLogger(classOf[StatemarkRocksDBStateStore])
  @volatile private var state: HandleState = HandleState.Updating
  @volatile private var isReadOnly_ = startsReadOnly
  @volatile private[spark] var isSnapshotForced: Boolean = startsForced
  @volatile private var isValidated = false
  @volatile private var committed: Option[CommitResult] = None
  private[spark] var gets = 0L
  private[spark] var puts = 0L
  private val stored: Rows = checkedOut.rows
  private val plainKey = new RowBytes
  private val plainValue = new RowBytes
  private val checksums = context.checksums(verifiesAll = false)
  private val delimiter = context.mergeDelimiter.getBytes(ISO_8859_1)
  private val pairs = new RowPairs(usesFamilies, checksums, validate)

  override def id: StateStoreId = location.storeId

  /** The transaction that the handle writes to.
    * @throws IllegalStateException for a reader of a running query, which writes nothing
    */
  private[spark] def owned: Checkout.Owned = checkedOut match {
    case owned: Checkout.Owned => owned
    case _: Checkout.Beside =>
      throw new IllegalStateException(s"$this reads beside a running query; it cannot be written.")
  }

  private def transaction: Transaction = owned.transaction

  /** Drops what the handle wrote, or closes what it reads. Idempotent. */
  private[spark] def letGo(): Unit = checkedOut match {
    case Checkout.Owned(transaction, _, _) => transaction.rollback()
    case Checkout.Beside(reads) => reads.close()
  }

  private[spark] def isReadOnly: Boolean = isReadOnly_

  /** Fails where the handle does not have the store any more. */
  private[spark] def verifyStamp(): Unit = context.stateMachine.verifyStamp(stamp)

  private[spark] def isUpdating: Boolean = state == HandleState.Updating

  private[spark] def becomeWritable(forceSnapshot: Boolean): Unit = {
    isReadOnly_ = false
    isSnapshotForced = forceSnapshot
  }

  // ---- reads

  override def get(key: UnsafeRow, colFamilyName: String): UnsafeRow = {
    val rows = reading("get", colFamilyName, key)
    gets += 1
    val encoded = keyFor(rows, key, colFamilyName)
    stored.get(encoded) match {
      case Some(found) =>
        val value = rows.value.decodeValue(checksums.decode(encoded, found))
        validate(key, value)
        value
      case None => null
    }
  }

  override def multiGet(keys: Array[UnsafeRow], colFamilyName: String): Iterator[UnsafeRow] = {
    verify(keys != null && keys.forall(_ != null), "Keys cannot be null")
    val rows = updating("multiGet", colFamilyName)
    gets += keys.length
    val encoded = keys.toSeq.map(keyBytes(rows, _, colFamilyName))
    encoded.iterator.zip(stored.getAll(encoded)).map { case (key, value) =>
      value.map(v => rows.value.decodeValue(checksums.decode(key, v))).orNull
    }
  }

  override def keyExists(key: UnsafeRow, colFamilyName: String): Boolean = {
    val rows = reading("keyExists", colFamilyName, key)
    gets += 1
    stored.get(keyFor(rows, key, colFamilyName)).isDefined
  }

  override def valuesIterator(key: UnsafeRow, colFamilyName: String): Iterator[UnsafeRow] = {
    val rows = reading("valuesIterator", colFamilyName, key)
    verify(
      rows.value.supportsMultipleValuesPerKey,
      "valuesIterator requires a encoder that supports multiple values for a single key."
    )
    gets += 1
    val encoded = keyBytes(rows, key, colFamilyName)
    stored.get(encoded).fold(Iterator.empty[UnsafeRow])(checksums.rows(rows.value, encoded, _))
  }

  override def iterator(colFamilyName: String): StateStoreIterator[UnsafeRowPair] = {
    val rows = updating("iterator", colFamilyName)
    if (isScannedByValue(rows)) pairs.byValue(rows, stored.unordered(familyPrefix(colFamilyName)))
    else pairs.of(rows, scanOf(rows, colFamilyName), isValidating = true)
  }

  override def iteratorWithMultiValues(colFamilyName: String): StateStoreIterator[UnsafeRowPair] = {
    val rows = updating("iteratorWithMultiValues", colFamilyName)
    verifyMultiple(rows, "Multi-value iterator operation")
    pairs.ofLists(rows, scanOf(rows, colFamilyName))
  }

  override def prefixScan(
      prefixKey: UnsafeRow,
      colFamilyName: String
  ): StateStoreIterator[UnsafeRowPair] = {
    val rows = updating("prefixScan", colFamilyName)
    require(rows.key.supportPrefixKeyScan, "Prefix scan requires setting prefix key!")
    pairs.of(rows, stored.prefix(prefixBytes(rows, prefixKey, colFamilyName)))
  }

  override def prefixScanWithMultiValues(
      prefixKey: UnsafeRow,
      colFamilyName: String
  ): StateStoreIterator[UnsafeRowPair] = {
    val rows = updating("prefixScanWithMultiValues", colFamilyName)
    verify(
      rows.key.supportPrefixKeyScan,
      "prefixScanWithMultiValues requires encoder supporting prefix scan!"
    )
    verifyMultiple(rows, "Multi-value iterator operation")
    pairs.ofLists(rows, stored.prefix(prefixBytes(rows, prefixKey, colFamilyName)))
  }

  override def rangeScan(
      startKey: Option[UnsafeRow],
      endKey: Option[UnsafeRow],
      colFamilyName: String
  ): StateStoreIterator[UnsafeRowPair] = {
    val rows = updating("rangeScan", colFamilyName)
    require(
      RowFormat.supportsRangeScan(rows.key),
      "Range scan requires an encoder that supports range scanning!"
    )
    pairs.of(rows, range(rows, startKey, endKey, colFamilyName))
  }

  override def rangeScanWithMultiValues(
      startKey: Option[UnsafeRow],
      endKey: Option[UnsafeRow],
      colFamilyName: String
  ): StateStoreIterator[UnsafeRowPair] = {
    val rows = updating("rangeScanWithMultiValues", colFamilyName)
    require(
      RowFormat.supportsRangeScan(rows.key),
      "Range scan with multiple values requires an encoder that supports range scanning!"
    )
    verifyMultiple(rows, "Range scan with multiple values")
    pairs.ofLists(rows, range(rows, startKey, endKey, colFamilyName))
  }

  // ---- writes

  override def put(key: UnsafeRow, value: UnsafeRow, colFamilyName: String): Unit = {
    val rows = writing("put", colFamilyName, key)
    require(value != null, "Cannot put a null value")
    val encoded = keyFor(rows, key, colFamilyName)
    transaction.put(encoded, checksums.encode(encoded, rows.valueBytes(value, plainValue)))
  }

  override def putList(key: UnsafeRow, values: Array[UnsafeRow], colFamilyName: String): Unit = {
    val rows = writing("put", colFamilyName, key)
    requireValues(values, "put")
    verifyMultiple(rows, "Multi-value put operation")
    val encoded = keyBytes(rows, key, colFamilyName)
    transaction.put(encoded, rows.joined(values, delimiter)(checksums.encode(encoded, _)))
  }

  override def merge(key: UnsafeRow, value: UnsafeRow, colFamilyName: String): Unit = {
    val rows = writing("merge", colFamilyName, key)
    verifyMultiple(rows, "Merge operation")
    require(value != null, "Cannot merge a null value")
    val encoded = keyBytes(rows, key, colFamilyName)
    transaction.merge(encoded, checksums.encode(encoded, rows.value.encodeValue(value)))
  }

  override def mergeList(key: UnsafeRow, values: Array[UnsafeRow], colFamilyName: String): Unit = {
    val rows = writing("merge", colFamilyName, key)
    verifyMultiple(rows, "Merge operation")
    requireValues(values, "merge")
    val encoded = keyBytes(rows, key, colFamilyName)
    transaction.merge(encoded, rows.joined(values, delimiter)(checksums.encode(encoded, _)))
  }

  override def remove(key: UnsafeRow, colFamilyName: String): Unit = {
    val rows = writing("remove", colFamilyName, key)
    transaction.remove(keyFor(rows, key, colFamilyName))
  }

  override def deleteRange(
      beginKey: UnsafeRow,
      endKey: UnsafeRow,
      colFamilyName: String
  ): Unit = {
    val rows = writing("deleteRange", colFamilyName, beginKey)
    verify(endKey != null, "End key cannot be null")
    verify(
      RowFormat.supportsDeleteRange(rows.key),
      "deleteRange requires a RangeKeyScanStateEncoderSpec for ordered key encoding"
    )
    val begin = keyBytes(rows, beginKey, colFamilyName)
    val end = keyBytes(rows, endKey, colFamilyName)
    // Changelogs of stores without column families have no record for a range.
    if (usesFamilies) transaction.deleteRange(begin, end) else transaction.removeEach(begin, end)
  }

  // ---- column families

  override def allColumnFamilyNames: Set[String] = checkedOut.families.byName.keySet

  override def createColFamilyIfAbsent(
      colFamilyName: String,
      keySchema: StructType,
      valueSchema: StructType,
      keyStateEncoderSpec: KeyStateEncoderSpec,
      useMultipleValuesPerKey: Boolean,
      isInternal: Boolean
  ): Unit = {
    enter(HandleState.Update)
    FamilyRules.checkChange("create_col_family", colFamilyName, isInternal, usesFamilies)
    checkedOut match {
      case Checkout.Owned(transaction, _, _) =>
        transaction.createColumnFamily(colFamilyName, isInternal): Unit
      case Checkout.Beside(reads) => reads.createColumnFamily(colFamilyName)
    }
    encoders.register(
      colFamilyName,
      keySchema,
      valueSchema,
      keyStateEncoderSpec,
      useMultipleValuesPerKey
    )
  }

  override def removeColFamilyIfExists(colFamilyName: String): Boolean = {
    FamilyRules.checkChange("remove_col_family", colFamilyName, isInternal = false, usesFamilies)
    verifyWritable()
    val existed = transaction.dropColumnFamily(colFamilyName)
    if (existed) encoders.remove(colFamilyName)
    existed
  }

  // ---- end

  override def commit(): Long = synchronized {
    if (state != HandleState.Updating) HandleState.next(state, HandleState.CommitResult): Unit
    try {
      verifyWritable()
      context.stateMachine.verifyStamp(stamp)
      committed = Some(owner.commit(this))
      enter(HandleState.CommitResult)
      version + 1
    } catch {
      case e: Throwable =>
        throw StoreFailures.committing(toString, location.toString, version + 1, e)
    }
  }

  override def abort(): Unit =
    if (
      state != HandleState.Aborted && !(state == HandleState.Released && ReleaseRules.areAborted)
    ) {
      // What a committed or released store says to an abort comes before what its stamp says.
      HandleState.next(state, HandleState.Abort): Unit
      enter(HandleState.Abort)
      try owner.abort(this)
      finally context.stateMachine.releaseStamp(stamp): Unit
    }

  override def release(): Unit = {
    verify(isReadOnly, "Release can only be called on a read-only store")
    if (state != HandleState.Released) {
      letGo()
      enter(HandleState.Release)
    }
  }

  override def hasCommitted: Boolean = state == HandleState.Committed

  override def metrics: StateStoreMetrics = {
    enter(HandleState.Metrics)
    committed.fold(InstanceMetrics.none)(_.metrics)
  }

  override def getStateStoreCheckpointInfo(): StateStoreCheckpointInfo = {
    enter(HandleState.Metrics)
    committed.map(_.info).getOrElse(throw StateStoreErrors.stateStoreOperationOutOfOrder(
      "Cannot get checkpointInfo without committing the store"
    ))
  }

  override def toString: String =
    s"StatemarkRocksDBStateStore[id=(op=${id.operatorId},part=${id.partitionId}), " +
      s"stateStoreId=$id, version=$version]"

  Option(TaskContext.get()).foreach { task =>
    task.addTaskCompletionListener[Unit](_ => endWithTask())
    task.addTaskFailureListener((_, _) => end())
    // Listeners that are added to a failed task run at once; nobody may use the store then.
    StatemarkBridge.failureOf(task).foreach(throw _)
  }

  /** Ends what its user has neither committed nor let go of. */
  private def end(): Unit =
    if (state == HandleState.Updating) { if (isReadOnly) release() else abort() }

  /** Never frees the stamp of a later owner: each has its own. */
  private def endWithTask(): Unit =
    try end()
    catch {
      case NonFatal(e) => log.warn(s"$this could not be aborted or released with its task.", e)
    } finally context.stateMachine.releaseStamp(stamp, throwEx = false): Unit

  // ---- checks

  private def enter(operation: HandleState.Operation): Unit = {
    val isRepeated = (state == HandleState.Aborted && operation == HandleState.Abort) ||
      (state == HandleState.Released && operation == HandleState.Release)
    if (operation != HandleState.Metrics && !isRepeated) context.stateMachine.verifyStamp(stamp)
    val next = HandleState.next(state, operation)
    if (operation == HandleState.CommitResult || operation == HandleState.Release)
      context.stateMachine.releaseStamp(stamp): Unit
    state = next
  }

  private def updating(operation: String, family: String): RowEncoders = {
    if (state != HandleState.Updating) enter(HandleState.Update)
    else context.stateMachine.verifyStamp(stamp)
    FamilyRules.checkUse(operation, family, usesFamilies, checkedOut.families)
    val rows = encoders.get(family)
    if (rows.isDefined) rows.get
    else throw StateStoreErrors.unsupportedOperationOnMissingColumnFamily(operation, family)
  }

  private def reading(operation: String, family: String, key: UnsafeRow): RowEncoders = {
    val rows = updating(operation, family)
    verify(key != null, "Key cannot be null")
    rows
  }

  private def writing(operation: String, family: String, key: UnsafeRow): RowEncoders = {
    val rows = reading(operation, family, key)
    verifyWritable()
    puts += 1
    rows
  }

  private def verifyWritable(): Unit =
    verify(!isReadOnly, s"$this was opened for reading; upgrade it before it is written.")

  private def verifyMultiple(rows: RowEncoders, operation: String): Unit = verify(
    rows.value.supportsMultipleValuesPerKey,
    s"$operation requires an encoder which supports multiple values for a single key"
  )

  private def requireValues(values: Array[UnsafeRow], verb: String): Unit = {
    require(values != null, s"Cannot $verb a null value")
    values.foreach(v => require(v != null, s"Cannot $verb a null value in the array"))
  }

  private def verify(condition: Boolean, problem: => String): Unit =
    if (!condition) throw new IllegalStateException(problem)

  /** Spark checks the first row that it reads against the schema, once per store. */
  private def validate(key: UnsafeRow, value: UnsafeRow): Unit =
    if (!isValidated && !usesFamilies && value != null) {
      RowValidation.validate(
        key,
        context.keySchema,
        value,
        context.valueSchema,
        id,
        context.conf.spark
      )
      isValidated = true
    }

  // ---- bytes

  private def familyPrefix(family: String): Array[Byte] =
    if (usesFamilies) RocksEngine.familyPrefix(checkedOut.families.byName(family).id)
    else Bytes.empty

  private def keyBytes(rows: RowEncoders, key: UnsafeRow, family: String): Array[Byte] =
    prefixed(rows.key.encodeKey(key), family)

  /** Returns the bytes of a key for a call that keeps none of them. */
  private def keyFor(rows: RowEncoders, key: UnsafeRow, family: String): Array[Byte] =
    prefixed(rows.keyBytes(key, plainKey), family)

  private def prefixBytes(rows: RowEncoders, key: UnsafeRow, family: String): Array[Byte] =
    prefixed(rows.key.encodePrefixKey(key), family)

  private def prefixed(encoded: Array[Byte], family: String): Array[Byte] =
    if (usesFamilies)
      RocksDBStateStoreProvider.encodeStateRowWithPrefix(
        encoded,
        checkedOut.families.byName(family).id
      )
    else encoded

  private def range(
      rows: RowEncoders,
      start: Option[UnsafeRow],
      end: Option[UnsafeRow],
      family: String
  ): RowScan = {
    val prefix = familyPrefix(family)
    val begin = start.map(keyBytes(rows, _, family)).orElse(Option.when(usesFamilies)(prefix))
    stored.range(begin, end.map(keyBytes(rows, _, family)).orElse(Bytes.prefixEnd(prefix)))
  }

  /** Tells whether a scan of all rows may come in any order, and without keys. Keys that are plain have no order. */
  private def isScannedByValue(rows: RowEncoders): Boolean =
    !isReadOnly && !usesFamilies && rows.areKeysPlain && !checksums.isEnabled &&
      RowPairs.areFoundByValue(context.valueSchema)

  /** The keys that the reader of a running query wants, where it does not want all. */
  private def wanted: Option[LiveKeys] = checkedOut match {
    case Checkout.Beside(reads) => reads.keys
    case _: Checkout.Owned => None
  }

  /** All rows of a family; of a running query only those that its reader can use, where the family has them
    * by key.
    */
  private def scanOf(rows: RowEncoders, family: String): RowScan =
    wanted.flatMap(_.in(rows.keySchema, rows.prefixColumns)) match {
      case None => stored.prefix(familyPrefix(family))
      case Some(KeysThere.Whole(keys)) =>
        new PointScan(stored, keys.map(keyBytes(rows, _, family)))
      case Some(KeysThere.Prefixes(keys)) =>
        new PrefixesScan(stored, keys.map(prefixBytes(rows, _, family)))
    }
}
