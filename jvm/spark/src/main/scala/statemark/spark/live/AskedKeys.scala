package statemark.spark.live

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.types.StructType
import statemark.spark.reads.{LiveKeys, Projections}

/** The keys that a lookup asks for. They are the keys of rows that are equal to them, as a filter has it.
  *
  * ''Thread:'' one.
  *
  * @param schema the schema of a whole key
  * @param values in the order in which they are asked for; None where no row can have the key
  */
private[live] final class AskedKeys(schema: StructType, values: Seq[Option[InternalRow]]) {
  private val form = new KeyForm(schema)

  /** The form of each key that [[AskedKeys.of]] returns for a row with the key. */
  val rows: Seq[Option[UnsafeRow]] = values.map(_.map(of))
  private lazy val distinct = rows.flatten.distinct

  /** Returns the first `n` of the keys. */
  def first(n: Int): AskedKeys = new AskedKeys(schema, values.take(n))

  /** Returns a form of the key that is the same for all equal keys. */
  def of(key: InternalRow): UnsafeRow = form.of(key)

  /** One key of each set of equal ones: equal keys have their rows in one partition. */
  lazy val placed: LiveKeys = LiveKeys(schema, distinct.toArray, isWhole = true)

  /** Returns all keys that a store can have for them; None where there are too many, and who reads has to read all
    * rows.
    *
    * @param areCanonical the store has no others
    */
  def sought(areCanonical: Boolean): Option[LiveKeys] =
    if (areCanonical) Some(placed)
    else if (distinct.exists(key => EqualKeys.hasNaN(key, schema))) None
    else if (distinct.exists(key => EqualKeys.zeros(key, schema) > AskedKeys.MaxZeros)) None
    else {
      val all = distinct.flatMap(EqualKeys.storable(_, schema)).map(form.projected)
      Some(LiveKeys(schema, all.toArray, isWhole = true))
    }
}

/** The form of keys in which equal ones have equal bytes.
  *
  * ''Thread:'' one.
  *
  * @param schema the schema of a whole key
  */
private[live] final class KeyForm(schema: StructType) {
  private val project = Projections.of(schema)

  /** Returns a form of the key that is the same for all equal keys. */
  def of(key: InternalRow): UnsafeRow = projected(EqualKeys.canonical(key, schema))

  /** Returns a key as it is, in bytes of its own. */
  def projected(key: Any): UnsafeRow = project(key.asInstanceOf[InternalRow]).copy()
}

private object AskedKeys {

  /** The largest number of zeros in one key. */
  private val MaxZeros = 6
}
