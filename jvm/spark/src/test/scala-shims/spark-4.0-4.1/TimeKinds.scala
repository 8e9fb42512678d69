package statemark.spark.model

/** No key of these lines has a time of an event in it. */
object TimeKinds {
  val all: IndexedSeq[KeyKind] = IndexedSeq.empty
}
