package statemark.spark.model

import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.types.StructType

/** Keys with a time of an event in them, which joins of Spark 4.2 have. */
object TimeKinds {
  private val timed = TimestampKeyStateEncoder.keySchemaWithTimestamp(KeyKind.plain)

  case object TimeFirst extends KeyKind(prefixScan = false, rangeScan = true, deleteRange = false) {
    def schema: StructType = timed
    def spec: KeyStateEncoderSpec = TimestampAsPrefixKeyStateEncoderSpec(schema)
    def prefixColumns: Int = 0
  }
  case object TimeLast extends KeyKind(prefixScan = true, rangeScan = true, deleteRange = false) {
    def schema: StructType = timed
    def spec: KeyStateEncoderSpec = TimestampAsPostfixKeyStateEncoderSpec(schema)
    def prefixColumns: Int = 2
  }

  val all: IndexedSeq[KeyKind] = IndexedSeq(TimeFirst, TimeLast)
}
