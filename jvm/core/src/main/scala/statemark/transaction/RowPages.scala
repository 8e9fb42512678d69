package statemark.transaction

import java.nio.ByteBuffer
import java.util.ArrayDeque
import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.atomic.AtomicInteger
import scala.jdk.CollectionConverters._
import statemark.common.DirectMemory

/** Memory outside the heap for rows that were used last, in pages, with one bound for all stores of a process. What
  * stays on the heap makes the process larger by two to three times as much (ADR 32).
  *
  * ''Thread:'' any.
  *
  * @param bytes the bound
  */
private[statemark] final class RowPages(bytes: Long) {
  import RowPages._

  private val members = ConcurrentHashMap.newKeySet[Member]()
  private val free = new ArrayDeque[ByteBuffer]

  /** Memory of the pages, free ones included. */
  val memory: DirectMemory = new DirectMemory(part = 4, bytes)

  /** Bytes that stores have. */
  def usedBytes: Long = synchronized(memory.takenBytes - free.size * PageBytes.toLong)

  /** Adds a store.
    * @param giveBack gives back so many pages, or as many as it can, and returns how many: none where the store is busy,
    *   as it does not wait
    */
  def join(giveBack: Int => Int): Member = {
    val member = new Member(giveBack)
    members.add(member): Unit
    member
  }

  private def takeFree(): Option[ByteBuffer] = synchronized {
    if (free.isEmpty)
      for (chunk <- memory.take(PageBytes, ChunkPages); at <- 0 until chunk.capacity by PageBytes)
        free.addLast(chunk.slice(at, PageBytes))
    Option(free.pollFirst)
  }

  private def giveFree(page: ByteBuffer): Unit = synchronized(free.addFirst(page))

  /** The pages of one store. */
  final class Member private[RowPages] (private[RowPages] val giveBack: Int => Int)
      extends AutoCloseable {
    private val held = new AtomicInteger
    // How often not to ask others, as nobody had any for it.
    private var patience = 0

    /** The number of pages that the store has. */
    def pages: Int = held.get

    /** Returns a page with any bytes; None where all are in use, and the store has at least an equal part of them. */
    def take(): Option[ByteBuffer] = {
      val page = takeFree().orElse {
        reclaim()
        takeFree()
      }
      if (page.isDefined) held.incrementAndGet(): Unit
      page
    }

    def give(page: ByteBuffer): Unit = {
      held.decrementAndGet(): Unit
      giveFree(page)
    }

    /** Has a store that has more than an equal part give some of that back, the largest first, where this one has less. */
    private def reclaim(): Unit = {
      val share = (memory.limitBytes / PageBytes / math.max(1, members.size)).toInt
      if (held.get < share)
        if (patience > 0) patience -= 1
        else {
          val others = members.asScala.toSeq.map(member => (member, member.held.get - share))
          val isFreed = others.filter(_._2 > 0).sortBy(-_._2).iterator.exists {
            case (member, surplus) => member.giveBack(math.min(surplus, ReclaimedPages)) > 0
          }
          if (!isFreed) patience = Patience
        }
    }

    /** The store has given back its pages. */
    override def close(): Unit = members.remove(this): Unit
  }
}

private[statemark] object RowPages {
  final val PageBytes: Int = 16 * 1024
  private val ChunkPages = 64
  private val ReclaimedPages = 16
  private val Patience = 1000

  /** Memory that all stores of this process share. The first one says how large it is. */
  val shared: RowPages = new RowPages(64L * 1024 * 1024)
}
