package statemark.transaction

import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.atomic.{AtomicInteger, AtomicLong}
import scala.jdk.CollectionConverters._

/** The heap that uncommitted and prepared writes of an executor's stores take together, and the limit on it: the
  * smallest that one of them brings. Over it a thread spills prepared versions of any store, the largest first, and
  * then the transaction that it owns; never one that another thread owns (I8).
  *
  * ''Thread:'' any.
  */
final class UncommittedMemory {
  private val members = ConcurrentHashMap.newKeySet[Member]()
  private val used = new AtomicLong
  private val remembered = new AtomicLong
  private val openTransactions = new AtomicInteger
  private val spills_ = new AtomicLong
  private val spilledBytes_ = new AtomicLong
  @volatile private var limit_ = Long.MaxValue

  /** Heap bytes that members hold. */
  def bytes: Long = used.get

  /** Heap bytes that they hold beside these, only to save reads. */
  private[statemark] def keptBytes: Long = remembered.get

  /** None where there are no members. */
  def limit: Option[Long] = Some(limit_).filter(_ < Long.MaxValue)

  /** Returns how often a store has spilled. */
  def spills: Long = spills_.get

  /** Returns bytes that were spilled. */
  def spilledBytes: Long = spilledBytes_.get

  /** Adds a store; it closes its membership when it closes. */
  def join(limit: Long, store: UncommittedMemory.Store): Member = {
    val member = new Member(limit, store)
    members.add(member): Unit
    setLimit()
    member
  }

  private def setLimit(): Unit = synchronized {
    limit_ = members.iterator.asScala.map(_.ownLimit).minOption.getOrElse(Long.MaxValue)
  }

  private def isOver: Boolean = used.get + remembered.get > limit_

  private def spillPrepared(): Unit = if (isOver) {
    val all = members.asScala.toSeq
    all.iterator.takeWhile(_ => isOver).filter(_.isKeeping).foreach(_.store.forget())
    // As they are at one moment: others change them meanwhile.
    all.map(member => (member, member.preparedBytes)).filter(_._2 > 0).sortBy(-_._2).iterator
      .takeWhile(_ => isOver)
      .foreach(_._1.store.spillPrepared())
  }

  /** The bytes that one store holds; none once it is closed. */
  final class Member private[UncommittedMemory] (
      val ownLimit: Long,
      private[UncommittedMemory] val store: UncommittedMemory.Store
  ) extends AutoCloseable {
    private var isClosed = false
    @volatile private var open = 0L
    @volatile private var prepared = 0L
    @volatile private var kept = 0L

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
    }

    /** Records how many bytes the prepared version holds. */
    def holdsPrepared(bytes: Long): Unit = synchronized {
      val next = if (isClosed) 0L else bytes
      used.addAndGet(next - prepared): Unit
      prepared = next
    }

    private[UncommittedMemory] def isKeeping: Boolean = kept > 0

    /** Returns how much the store should keep to save reads: an equal part of half of the limit. */
    def share: Long = limit_ / 2 / math.max(1, members.size)

    /** Reserves `bytes` for what the store keeps to save reads, in place of what it kept before. All stores together may
      * fill half of the limit with it, where the other half is free; returns false where there is no room: the store
      * keeps nothing then.
      */
    def keep(bytes: Long): Boolean = synchronized {
      forget()
      val all = remembered.get + bytes
      val hasRoom = !isClosed && all <= limit_ / 2 && used.get + all <= limit_
      if (hasRoom) {
        kept = bytes
        remembered.addAndGet(bytes): Unit
      }
      hasRoom
    }

    /** Records that the store has dropped what it kept to save reads. */
    def forget(): Unit = synchronized {
      remembered.addAndGet(-kept): Unit
      kept = 0
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
      forget()
      members.remove(this): Unit
      setLimit()
    }
  }
}

object UncommittedMemory {
  private val MaxStep = 64L * 1024

  /** The calls to a member that free memory for others. ''Thread:'' any. */
  trait Store {

    /** Drops what is only kept to save reads. */
    def forget(): Unit

    /** Moves the prepared version to disk. */
    def spillPrepared(): Unit
  }
}

/** @param bytes the limit that a store brings */
final case class UncommittedLimit(memory: UncommittedMemory, bytes: Long)
