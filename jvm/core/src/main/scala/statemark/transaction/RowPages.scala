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
  * It is taken in chunks when it is needed, and never given back to the system. It is a quarter of
  * what the JVM has for buffers at most: others need some, too.
  *
  * ''Thread:'' any.
  *
  * @param bytes the bound
  */
private[statemark] final class RowPages(bytes: Long) {
  import RowPages._

  private val members = ConcurrentHashMap.newKeySet[Member]()
  private val free = new ArrayDeque[ByteBuffer]
  private var mostPages = pagesOf(bytes)
  // More than this the JVM has refused.
  private var refusedAt = Long.MaxValue
  private var pages = 0L

  /** Sets the bound. Where more is taken already, no more is. */
  def resize(bytes: Long): Unit = synchronized { mostPages = math.min(pagesOf(bytes), refusedAt) }

  def limitBytes: Long = synchronized(mostPages) * PageBytes

  /** Bytes that stores have. */
  def usedBytes: Long = synchronized(pages - free.size) * PageBytes

  /** Bytes that were taken from the system. */
  def takenBytes: Long = synchronized(pages) * PageBytes

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
    if (free.isEmpty && pages < mostPages) allocate()
    Option(free.pollFirst)
  }

  private def allocate(): Unit = {
    val count = math.min(ChunkPages, mostPages - pages).toInt
    val chunk =
      try Some(ByteBuffer.allocateDirect(count * PageBytes))
      catch {
        // The JVM has less for buffers (-XX:MaxDirectMemorySize): rows have what there is.
        case _: OutOfMemoryError => None
      }
    if (chunk.isEmpty) {
      refusedAt = pages
      mostPages = pages
    }
    for (c <- chunk; i <- 0 until count) {
      free.addLast(c.slice(i * PageBytes, PageBytes))
      pages += 1
    }
  }

  private def giveFree(page: ByteBuffer): Unit = synchronized(free.addFirst(page))

  /** The pages of one store. */
  final class Member private[RowPages] (private[RowPages] val giveBack: Int => Int)
      extends AutoCloseable {
    private val held = new AtomicInteger
    // How often not to ask others, as nobody had any for it.
    private var patience = 0

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
      val share = (limitBytes / PageBytes / math.max(1, members.size)).toInt
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
  private val ChunkPages = 64L
  private val ReclaimedPages = 16
  private val Patience = 1000

  private def pagesOf(bytes: Long): Long =
    math.min(bytes, DirectMemory.mostBytes / 4) / PageBytes

  /** Memory that all stores of this process share. The first one says how large it is. */
  val shared: RowPages = new RowPages(64L * 1024 * 1024)
}
