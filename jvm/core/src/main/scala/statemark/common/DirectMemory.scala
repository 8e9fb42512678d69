package statemark.common

import com.sun.management.HotSpotDiagnosticMXBean
import java.lang.management.ManagementFactory

/** Memory of this process for buffers outside the heap. ''Thread:'' any. */
private[statemark] object DirectMemory {

  /** Bytes of all direct buffers at most: `-XX:MaxDirectMemorySize`, without it the largest heap. */
  val mostBytes: Long = {
    val jvm = Option(ManagementFactory.getPlatformMXBean(classOf[HotSpotDiagnosticMXBean]))
    val set = jvm.fold(0L)(_.getVMOption("MaxDirectMemorySize").getValue.toLong)
    if (set > 0) set else Runtime.getRuntime.maxMemory
  }
}
