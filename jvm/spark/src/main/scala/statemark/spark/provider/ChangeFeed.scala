package statemark.spark.provider

import java.util.Locale
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state._
import scala.util.Using
import statemark.engine.{ColumnFamilies, RocksEngine, VersionId}
import statemark.spark.changelog.{ChangelogPrefetch, CheckpointLineage, RangeDeletes}

/** The changes between two versions of a store, from their changelogs, in program order.
  *
  * @param family only changes of this column family; None for a store without families
  * @param families column families of the version that was loaded last
  * ''Source:'' Spark 4.2 `StateStoreChangeDataReader`.
  */
final class ChangeFeed(
    context: ProviderContext,
    startVersion: Long,
    end: VersionId,
    family: Option[String],
    families: Option[ColumnFamilies]
) extends ChangeFeedBase(context, startVersion, end.version, family) {

  override protected val versionsAndUniqueIds: Array[(Long, Option[String])] =
    if (end.checkpointId.isEmpty) (startVersion to end.version).map((_, None)).toArray
    else
      Using.resource(new ChangelogPrefetch(context.checkpoint.changelogs)) { changelogs =>
        new CheckpointLineage(context.checkpoint.files, changelogs).full(startVersion, end)
          .map(v => (v.version, v.checkpointId)).toArray
      }

  private val name = family.getOrElse(StateStore.DEFAULT_COL_FAMILY_NAME)
  private val rows = context.encoders.get(name).getOrElse(
    throw StateStoreErrors.unsupportedOperationOnMissingColumnFamily("change feed", name)
  )
  private val checksums = context.checksums(verifiesAll = false)
  private val familyId = family.flatMap(f => families.flatMap(_.byName.get(f)).map(_.id))

  override protected def getNext(): (RecordType.Value, UnsafeRow, UnsafeRow, Long) =
    nextOfFamily() match {
      case None => null // the contract of Spark's NextIterator at the end
      case Some((kind, key, value)) =>
        val bare =
          if (family.isDefined) RocksDBStateStoreProvider.decodeStateRowWithPrefix(key) else key
        (
          kind,
          rows.key.decodeKey(bare),
          value.map(rows.value.decodeValue).orNull,
          currentChangelogVersion - 1
        )
    }

  private def nextOfFamily(): Option[(RecordType.Value, Array[Byte], Option[Array[Byte]])] = {
    var found: Option[(RecordType.Value, Array[Byte], Option[Array[Byte]])] = None
    var reader = Option(currentChangelogReader())
    while (found.isEmpty && reader.isDefined) {
      val record = decoded(reader.get.next())
      if (family.isEmpty || familyId.contains(RocksEngine.familyId(record._2))) found = Some(record)
      else reader = Option(currentChangelogReader())
    }
    found
  }

  private def decoded(record: (RecordType.Value, Array[Byte], Array[Byte])) = {
    val (kind, key, value) = record
    if (RangeDeletes.is(kind))
      throw new UnsupportedOperationException(
        s"The change feed cannot show a range delete (${kind.toString.toUpperCase(Locale.ROOT)}) " +
          "as single changes. Read batches before or after it."
      )
    if (kind == RecordType.DELETE_RECORD) (kind, checksums.decodeDeleted(key), None)
    else (kind, key, Option(checksums.decode(key, value)))
  }
}
