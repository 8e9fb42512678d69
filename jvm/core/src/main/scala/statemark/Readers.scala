package statemark

import java.util.{LinkedHashMap => JLinkedHashMap, UUID}
import java.util.concurrent.TimeUnit
import scala.jdk.CollectionConverters._

/** The reads of a store that go on beside its owner. They decide which versions the store goes on keeping: RocksDB
  * pays for each of them with every flush, compaction and scan.
  *
  * ''Thread:'' any.
  */
final class Readers private[statemark] (retention: ReadRetention) {
  private final class Pin(val version: Long, until: Long) {
    def isOver(now: Long): Boolean = until - now < 0
  }

  private val pending = new JLinkedHashMap[UUID, Pin]()
  private val ended = new JLinkedHashMap[UUID, Pin]()
  @volatile private var lastRead = Option.empty[Long]

  /** Pins `version` for a planned read: the store keeps the version for a time, also once the base has moved on. */
  def planned(read: UUID, version: Long): Unit = synchronized {
    came()
    val now = retention.clock.nanos()
    // An idle query's store leaves no version, and so does not ask what is kept. All have the same time, the oldest
    // stand first.
    val oldest = pending.values.iterator
    while (oldest.hasNext && oldest.next().isOver(now)) oldest.remove()
    pending.put(read, new Pin(version, now + TimeUnit.MILLISECONDS.toNanos(retention.ms))): Unit
  }

  /** Records that a planned read has been here and is over. The read may come again, as a task that is tried again,
    * or a table that is read again. Its version is kept as if the read had yet to come, until [[Readers.EndedKept]]
    * other reads are over as well.
    */
  def ended(read: UUID): Unit = synchronized {
    Option(pending.remove(read)).orElse(Option(ended.remove(read))).foreach(ended.put(read, _))
    if (ended.size > Readers.EndedKept) ended.remove(ended.keySet.iterator.next()): Unit
  }

  /** Removes the pin of a planned read that does not need this store. */
  def spared(read: UUID): Unit = synchronized(pending.remove(read): Unit)

  /** Records that a read happens now. */
  private[statemark] def came(): Unit = lastRead = Some(retention.clock.nanos())

  /** Returns how many planned reads are not over. */
  private[statemark] def pendingReads: Int = synchronized(pending.size)

  /** Returns how many of the last versions the store keeps after it has left them, and which older ones. */
  private[statemark] def kept(): (Int, Set[Long]) = synchronized {
    val now = retention.clock.nanos()
    val pinned = Seq(pending, ended).flatMap { pins =>
      pins.values.removeIf(_.isOver(now))
      pins.values.asScala.map(_.version)
    }
    (if (lastRead.exists(retention.hasReaders(_, now))) retention.versions else 0, pinned.toSet)
  }
}

object Readers {

  /** The number of reads whose versions are kept after they have ended. */
  val EndedKept = 2
}
