package statemark

import java.util.{LinkedHashMap => JLinkedHashMap, UUID}
import java.util.concurrent.TimeUnit
import scala.jdk.CollectionConverters._

/** Who reads a store beside its owner, and so which versions the store goes on keeping: RocksDB pays for each of
  * them with every flush, compaction and scan.
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

  /** A read of `version` has been planned: the store keeps the version for a time, also when it leaves it. */
  def planned(read: UUID, version: Long): Unit = synchronized {
    came()
    val now = retention.clock.nanos()
    // An idle query's store leaves no version, and so does not ask what is kept. All have the same time, the oldest
    // stand first.
    val oldest = pending.values.iterator
    while (oldest.hasNext && oldest.next().isOver(now)) oldest.remove()
    pending.put(read, new Pin(version, now + TimeUnit.MILLISECONDS.toNanos(retention.ms))): Unit
  }

  /** A planned read has come and gone. It may come again: a task that is tried again, a table that is read again.
    * What it read is kept as if it had yet to come, until [[Readers.EndedKept]] others have come and gone as well.
    */
  def ended(read: UUID): Unit = synchronized {
    Option(pending.remove(read)).orElse(Option(ended.remove(read))).foreach(ended.put(read, _))
    if (ended.size > Readers.EndedKept) ended.remove(ended.keySet.iterator.next()): Unit
  }

  /** A planned read does not come here. */
  def spared(read: UUID): Unit = synchronized(pending.remove(read): Unit)

  /** Somebody reads. */
  private[statemark] def came(): Unit = lastRead = Some(retention.clock.nanos())

  /** Reads that have been planned and have not come to their end. */
  private[statemark] def pendingReads: Int = synchronized(pending.size)

  /** How many of the versions that the store has left it keeps, and which ones besides. */
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

  /** Of reads that have come and gone, versions of so many are kept. */
  val EndedKept = 2
}
