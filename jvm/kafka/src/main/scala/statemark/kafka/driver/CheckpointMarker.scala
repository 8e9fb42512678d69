package statemark.kafka.driver

/** Remembers in the checkpoint that a sink has an identity record: where the marker is and the record is not, the commit
  * topic was lost, or it is another cluster's (K8).
  */
trait CheckpointMarker {
  def exists(): Boolean
  def write(): Unit
}

object CheckpointMarker {

  /** Of a write without a checkpoint. */
  val none: CheckpointMarker = new CheckpointMarker {
    override def exists(): Boolean = false
    override def write(): Unit = ()
  }
}
