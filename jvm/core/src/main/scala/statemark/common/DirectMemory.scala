package statemark.common

import com.sun.management.HotSpotDiagnosticMXBean
import java.lang.management.ManagementFactory
import java.nio.ByteBuffer

/** Memory outside the heap for one purpose, with a bound. It is taken when it is needed, and never given back to the
  * system.
  *
  * ''Thread:'' any.
  *
  * @param part the most that it is of what the JVM has for buffers, as one in so many: others need some, too
  * @param bytes the bound
  */
private[statemark] final class DirectMemory(part: Int, bytes: Long) {
  private var most = bounded(bytes)
  // More than this the JVM has refused.
  private var refusedAt = Long.MaxValue
  private var taken = 0L

  private def bounded(bytes: Long) = math.min(bytes, DirectMemory.mostBytes / part)

  /** Sets the bound. Where more is taken already, no more is. */
  def bound(bytes: Long): Unit = synchronized { most = math.min(bounded(bytes), refusedAt) }

  def limitBytes: Long = synchronized(most)

  /** Bytes that were taken from the system. */
  def takenBytes: Long = synchronized(taken)

  /** Returns a buffer of so many pieces, or of as many as there is room for; None where that is none. */
  def take(pieceBytes: Int, pieces: Int): Option[ByteBuffer] = synchronized {
    val size = math.min(pieces.toLong, (most - taken) / pieceBytes).toInt * pieceBytes
    try
      Option.when(size > 0) {
        val buffer = ByteBuffer.allocateDirect(size)
        taken += size
        buffer
      }
    catch {
      // The JVM has less for buffers (-XX:MaxDirectMemorySize): there is what there is.
      case _: OutOfMemoryError =>
        refusedAt = taken
        most = taken
        None
    }
  }

  /** Records that a buffer is garbage. */
  def lost(bytes: Int): Unit = synchronized(taken -= bytes)
}

private[statemark] object DirectMemory {

  /** Bytes of all direct buffers at most: `-XX:MaxDirectMemorySize`, without it the largest heap. */
  private val mostBytes: Long = {
    val jvm = Option(ManagementFactory.getPlatformMXBean(classOf[HotSpotDiagnosticMXBean]))
    val set = jvm.fold(0L)(_.getVMOption("MaxDirectMemorySize").getValue.toLong)
    if (set > 0) set else Runtime.getRuntime.maxMemory
  }
}
