package statemark.spark

import statemark.transaction.UncommittedMemory

object UncommittedStores {

  /** What all stores of this executor stage. */
  val memory: UncommittedMemory = new UncommittedMemory
}
