package statemark.spark.memory

import statemark.transaction.UncommittedMemory

object UncommittedStores {

  /** What all stores of this executor stage. */
  val memory: UncommittedMemory = new UncommittedMemory
}
