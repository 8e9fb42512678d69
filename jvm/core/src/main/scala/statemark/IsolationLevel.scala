package statemark

import statemark.common.InvalidInputException

/** The rows of a running store that a live query sees. ''Source:'' KIP-892, isolation levels. */
sealed abstract class IsolationLevel(val name: String)

object IsolationLevel {

  /** Committed writes only: every row was part of the last batch that the query has committed.
    * Allows no dirty read; two reads may see two different batches.
    */
  case object ReadCommitted extends IsolationLevel("READ_COMMITTED")

  /** Also what the open transaction has staged so far. Allows dirty reads: a row that is seen may be
    * rolled back with its batch and then has never existed.
    */
  case object ReadUncommitted extends IsolationLevel("READ_UNCOMMITTED")

  val all: Seq[IsolationLevel] = Seq(ReadCommitted, ReadUncommitted)

  /** @param name in either case
    * @throws InvalidInputException for any other name
    */
  def of(name: String): IsolationLevel = all.find(_.name.equalsIgnoreCase(name)).getOrElse {
    throw new InvalidInputException(
      s"'$name' is not an isolation level; use ${all.map(_.name).mkString(" or ")}."
    )
  }
}
