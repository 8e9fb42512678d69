package statemark.spark.live

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.util.{ArrayData, GenericArrayData}
import org.apache.spark.sql.types.{ArrayType, DataType, StructType}

/** Values that are equal to Spark though their bytes differ: 0.0 and -0.0, and a NaN and any other. Aggregations
  * store one of them for all, other operators what came.
  *
  * ''Source:'' Spark 4.2 `SQLOrderingUtil`, `NormalizeFloatingNumbers`.
  */
private[live] object EqualKeys {

  /** Returns the one that stands for all that are equal to `value`: the one that aggregations store. */
  def canonical(value: Any, dataType: DataType): Any = value match {
    case d: Double => if (d == 0) 0.0 else if (d.isNaN) Double.NaN else d
    case f: Float => if (f == 0) 0.0f else if (f.isNaN) Float.NaN else f
    case _ => nested(value, dataType).fold(value) { case (parts, whole) =>
        whole(parts.map { case (part, of) => canonical(part, of) })
      }
  }

  /** Returns all that are equal to a canonical value, but only one for a NaN: there are too many. */
  def storable(value: Any, dataType: DataType): Seq[Any] = value match {
    case d: Double if d == 0 => Seq(0.0, -0.0)
    case f: Float if f == 0 => Seq(0.0f, -0.0f)
    case _ => nested(value, dataType).fold(Seq(value)) { case (parts, whole) =>
        parts.foldLeft(Seq(Seq.empty[Any])) { case (rows, (part, of)) =>
          for (row <- rows; one <- storable(part, of)) yield row :+ one
        }.map(whole)
      }
  }

  /** Counts the zeros in a value: each doubles the number of its storable forms. */
  def zeros(value: Any, dataType: DataType): Int = leaves(value, dataType).count {
    case d: Double => d == 0
    case f: Float => f == 0
    case _ => false
  }

  def hasNaN(value: Any, dataType: DataType): Boolean = leaves(value, dataType).exists {
    case d: Double => d.isNaN
    case f: Float => f.isNaN
    case _ => false
  }

  private def leaves(value: Any, dataType: DataType): Iterator[Any] =
    nested(value, dataType).fold(Iterator(value)) { case (parts, _) =>
      parts.iterator.flatMap { case (part, of) => leaves(part, of) }
    }

  /** Returns the parts of a struct or an array with their types, and what makes one of such parts. */
  private def nested(
      value: Any,
      dataType: DataType
  ): Option[(Seq[(Any, DataType)], Seq[Any] => Any)] = (value, dataType) match {
    case (row: InternalRow, struct: StructType) =>
      Some((row.toSeq(struct).zip(struct.map(_.dataType)), InternalRow.fromSeq))
    case (array: ArrayData, ArrayType(element, _)) =>
      val parts = array.toObjectArray(element).toSeq.map(_ -> element)
      Some((parts, values => new GenericArrayData(values.toArray[Any])))
    case _ => None
  }
}
