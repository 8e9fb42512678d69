package statemark.transaction

import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.atomic.{AtomicInteger, AtomicLong}
import scala.jdk.CollectionConverters._

/** The memory that uncommitted and prepared writes of an executor's stores take together, and the limit on it: the
  * smallest that one of them brings. Over it a thread spills prepared versions of any store, the largest first, and
  * then the transaction that it owns; never one that another thread owns (I8).
  *
  * ''Thread:'' any.
  */
final class UncommittedMemory {
  private val members = ConcurrentHashMap.newKeySet[Member]()
  private val used = new AtomicLong
  private val openTransactions = new AtomicInteger
  private val spills_ = new AtomicLong
  private val spilledBytes_ = new AtomicLong
  @volatile private var limit_ = Long.MaxValue

  /** Bytes that members hold, in memory: what the limit counts, whole pages of open transactions among it. */
  def bytes: Long = used.get

  /** Returns bytes of the writes of open transactions, in memory and spilled; as of the last step of each. */
  def staged: Long = sum(_.stagedBytes)

  /** Returns bytes of the keys that open transactions have read and remember; as of the last step of each. */
  def remembered: Long = sum(_.rememberedBytes)

  /** Returns bytes of prepared versions, in memory. */
  def prepared: Long = sum(_.preparedBytes)

  private def sum(bytes: Member => Long): Long = members.iterator.asScala.map(bytes).sum

  /** None where there are no members. */
  def limit: Option[Long] = Some(limit_).filter(_ < Long.MaxValue)

  /** Returns how often a store has spilled. */
  def spills: Long = spills_.get

  /** Returns bytes that were spilled. */
  def spilledBytes: Long = spilledBytes_.get

  /** Adds a store; it closes its membership when it closes.
    * @param spill moves its prepared version to disk, on any thread
    */
  def join(limit: Long, spill: () => Unit): Member = {
    val member = new Member(limit, spill)
    members.add(member): Unit
    setLimit()
    member
  }

  private def setLimit(): Unit = synchronized {
    limit_ = members.iterator.asScala.map(_.ownLimit).minOption.getOrElse(Long.MaxValue)
  }

  private def isOver: Boolean = used.get > limit_

  private def spillPrepared(): Unit = if (isOver) {
    // As they are at one moment: others change them meanwhile.
    val all = members.asScala.toSeq.map(member => (member, member.preparedBytes))
    all.filter(_._2 > 0).sortBy(-_._2).iterator.takeWhile(_ => isOver).foreach(_._1.spill())
  }

  /** The bytes that one store holds; none once it is closed. */
  final class Member private[UncommittedMemory] (
      val ownLimit: Long,
      private[UncommittedMemory] val spill: () => Unit
  ) extends AutoCloseable {
    private var isClosed = false
    @volatile private var open = 0L
    @volatile private var prepared = 0L
    @volatile private var staged = 0L
    @volatile private var remembered = 0L

    /** Returns bytes of the writes of the open transaction, in memory and spilled; as of its last step. */
    def stagedBytes: Long = staged

    /** Returns bytes of the keys that the open transaction has read and remembers; as of its last step. */
    def rememberedBytes: Long = remembered
    private[UncommittedMemory] def preparedBytes: Long = prepared

    /** Returns by how many bytes a transaction may grow before it reports them. */
    def step: Long = math.min(limit_ / 64, UncommittedMemory.MaxStep)

    /** Records how many bytes the open transaction holds; returns whether its owner has to spill it now. Small ones
      * need not as long as large ones are there: they would spill at every write.
      */
    def holdsOpen(bytes: Long): Boolean = {
      setOpen(bytes)
      if (bytes > 0) UncommittedMemory.this.spillPrepared()
      isOver && bytes * 16 * openTransactions.get >= limit_
    }

    // A store may be closed by another thread than the one that owns its transaction.
    private def setOpen(bytes: Long): Unit = synchronized {
      val next = if (isClosed) 0L else bytes
      if (next > 0 && open == 0) openTransactions.incrementAndGet(): Unit
      if (next == 0 && open > 0) openTransactions.decrementAndGet(): Unit
      used.addAndGet(next - open): Unit
      open = next
      if (next == 0) holdsRows(0, 0)
    }

    /** Records how many bytes the rows of the open transaction have, until it holds nothing: the limit does not ask for
      * them.
      */
    def holdsRows(stagedBytes: Long, rememberedBytes: Long): Unit = {
      staged = stagedBytes
      remembered = rememberedBytes
    }

    /** Records how many bytes the prepared version holds. */
    def holdsPrepared(bytes: Long): Unit = synchronized {
      val next = if (isClosed) 0L else bytes
      used.addAndGet(next - prepared): Unit
      prepared = next
    }

    /** Spills prepared versions where the limit asks for it. */
    def checkPrepared(): Unit = UncommittedMemory.this.spillPrepared()

    def spilled(bytes: Long): Unit = {
      spills_.incrementAndGet(): Unit
      spilledBytes_.addAndGet(bytes): Unit
    }

    override def close(): Unit = {
      synchronized { isClosed = true }
      setOpen(0)
      holdsPrepared(0)
      members.remove(this): Unit
      setLimit()
    }
  }
}

object UncommittedMemory {
  private val MaxStep = 64L * 1024
}

/** @param bytes the limit that a store brings; the largest Long for none */
final case class UncommittedLimit(memory: UncommittedMemory, bytes: Long)
