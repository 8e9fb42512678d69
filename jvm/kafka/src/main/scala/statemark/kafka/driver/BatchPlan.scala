package statemark.kafka.driver

import statemark.kafka.executor.WriterSpec

/** What the driver does with a batch. */
sealed trait BatchPlan {

  /** For the tasks. */
  def writers: WriterSpec
}

object BatchPlan {

  /** Its rows are written, and [[BatchCoordinator.commit]] decides it. */
  final case class Write(writers: WriterSpec) extends BatchPlan

  /** It was decided before. Spark computes it again, for its state; the rows are dropped. A batch write that leaves no more
    * than rows needs no job.
    * @param isOld whether later batches are decided as well
    */
  final case class Discard(writers: WriterSpec, isOld: Boolean) extends BatchPlan
}
