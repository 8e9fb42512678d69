package statemark.spark

import com.sun.management.UnixOperatingSystemMXBean
import java.lang.management.ManagementFactory
import java.nio.file.{Files, Path}
import org.scalatest.funsuite.AnyFunSuite
import scala.jdk.CollectionConverters._

/** Threads, handles and heap of a process stay as they are, however many batches its stores have seen.
  * `STATEMARK_BATCHES=500 STATEMARK_PARTITIONS=50` is the full size: 200 stores.
  */
class ManyBatchesSuite extends AnyFunSuite with LocalStores {
  private val batches = sizeOf("STATEMARK_BATCHES", 60)
  private val partitions = sizeOf("STATEMARK_PARTITIONS", 4)

  /** The stores of a stream-stream join. */
  private val names =
    for (side <- Seq("left", "right"); kind <- Seq("keyToNumValues", "keyWithIndexToValue"))
      yield s"$side-$kind"

  private def sizeOf(name: String, default: Int): Int = sys.env.get(name).fold(default)(_.toInt)

  private def figures(batch: Int): Figures = {
    // Twice: what is reached by a cleaner alone goes with the second.
    (1 to 2).foreach(_ => System.gc())
    val system = ManagementFactory.getOperatingSystemMXBean match {
      case unix: UnixOperatingSystemMXBean => unix
      case other => cancel(s"$other counts no handles")
    }
    val found = Figures(
      batch,
      ManagementFactory.getThreadMXBean.getThreadCount,
      system.getOpenFileDescriptorCount,
      ManagementFactory.getMemoryMXBean.getHeapMemoryUsage.getUsed,
      filesBelow(local)
    )
    info(found.toString)
    found
  }

  /** Tables, and the dozen files that each home has. */
  private val MaxFiles = 40

  private def filesBelow(directory: Path): Int = {
    val walk = Files.walk(directory)
    try walk.iterator.asScala.count(Files.isRegularFile(_))
    finally walk.close()
  }

  for ((format, extra) <- Seq("v1" -> Map.empty[String, String], "v2" -> Providers.v2))
    test(s"threads, handles and heap stay as they are ($format)") {
      // The counting file system keeps what it counts. All keys are there by the middle, as rows are kept.
      location = s"file://${queryDir.resolve("state")}"
      val stores = for (p <- 0 until partitions; name <- names)
        yield open(extra, partition = p, name = name)
      var ids = stores.map(_ => Option.empty[String])
      val measured = for (batch <- 0 until batches) yield {
        ids = stores.zip(ids).map { case (store, id) =>
          commit(store, batch, Map(s"k${batch % 20}" -> batch), id).stateStoreCkptId
        }
        if (batch % 10 == 9) stores.foreach(_.doMaintenance())
        // All that a process makes once is there by the middle.
        val isMeasured = batch + 1 >= batches / 2 && (batch + 1) % (batches / 6) == 0
        Option.when(isMeasured)(figures(batch))
      }
      val (middle, end) = (measured.flatten.head, measured.flatten.last)
      val versions = (batches - middle.batch - 1) * stores.length
      // One for each version of a store would be as many more as these.
      assert(end.threads - middle.threads < versions / 10)
      // Files come with flushes and go with compactions; those of homes may be open.
      assert(end.files < stores.length * MaxFiles)
      assert((end.handles - end.files) - (middle.handles - middle.files) < versions / 10)
      // What versions leave behind is more after each part of them; a table that grows, in one part.
      val parts = measured.flatten.map(_.heap).sliding(2).map(pair => pair(1) - pair(0)).toSeq
      assert(parts.min < versions / parts.length * 1000L, s"heap grew by $parts bytes")
      val store = stores.last.getStore(batches.toLong, ids.last)
      try assert(rows(store) == (0 until batches).map(b => s"k${b % 20}" -> b).toMap)
      finally store.abort()
    }
}

private final case class Figures(batch: Int, threads: Int, handles: Long, heap: Long, files: Int) {
  override def toString: String =
    s"batch $batch: $threads threads, $handles handles, ${heap >> 10} KiB of heap, $files files of homes"
}
