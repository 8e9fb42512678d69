package statemark.spark.reads

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.types.StructType

/** Projections to Spark's own rows for a handful of them: to have one compiled takes longer than to run it.
  *
  * ''Thread:'' each one thread.
  */
private[spark] object Projections {

  /** Returns all columns of `schema`, by place. */
  def of(schema: StructType): UnsafeProjection =
    InterpretedUnsafeProjection.createProjection(schema.fields.toSeq.zipWithIndex.map {
      case (field, i) => BoundReference(i, field.dataType, nullable = true)
    })

  /** `expressions` over rows of `columns`. */
  def of(expressions: Seq[Expression], columns: Seq[Attribute]): UnsafeProjection =
    InterpretedUnsafeProjection.createProjection(
      expressions.map(BindReferences.bindReference(_, AttributeSeq(columns)))
    )
}
