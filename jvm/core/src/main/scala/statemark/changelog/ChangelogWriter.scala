package statemark.changelog

import statemark.common.Fingerprint

/** The ordered log of one transaction: every call, in the order in which the program made it.
  *
  * It is written while the transaction stages, never derived from what the transaction folded:
  * merges and the change feed depend on the order of calls.
  *
  * ''Thread:'' the owner of the transaction.
  */
trait ChangelogWriter {
  def put(key: Array[Byte], value: Array[Byte]): Unit
  def delete(key: Array[Byte]): Unit
  def merge(key: Array[Byte], operand: Array[Byte]): Unit

  /** Deletes `[begin, end)`. */
  def deleteRange(begin: Array[Byte], end: Array[Byte]): Unit

  /** Makes the log durable, all of it or nothing; when this returns, it can be replayed.
    * @return the fingerprint of the log, and how long the commit took
    */
  def commit(): ChangelogCommit

  /** Drops the log. Idempotent; does nothing after `commit`. */
  def abort(): Unit
}

/** Result of the commit of a changelog.
  *
  * @param fingerprint tells the log from any other one of the same version, where a store needs that
  * @param ms how long it took, in milliseconds
  */
final case class ChangelogCommit(fingerprint: Option[Fingerprint], ms: Long)

object ChangelogCommit {

  /** Nothing was written. */
  val nothing: ChangelogCommit = ChangelogCommit(None, 0)
}

object ChangelogWriter {

  /** The writer of no changelog, for replays and for versions that exist as a snapshot only. */
  object None extends ChangelogWriter {
    override def put(key: Array[Byte], value: Array[Byte]): Unit = ()
    override def delete(key: Array[Byte]): Unit = ()
    override def merge(key: Array[Byte], operand: Array[Byte]): Unit = ()
    override def deleteRange(begin: Array[Byte], end: Array[Byte]): Unit = ()
    override def commit(): ChangelogCommit = ChangelogCommit.nothing
    override def abort(): Unit = ()
  }
}
