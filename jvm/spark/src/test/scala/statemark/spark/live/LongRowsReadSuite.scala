package statemark.spark.live

import java.io.File
import java.nio.file.Files
import java.util.UUID
import org.rocksdb.{CompressionType, LRUCache, RocksDB}
import org.scalatest.funsuite.AnyFunSuite
import statemark.changelog.ChangelogWriter
import statemark.engine._
import statemark.spark.checkpoint.StoreAddress
import statemark.spark.reads._
import statemark.{NewStore, ReadRetention, TransactionalStore}
import statemark.transaction.{CommitObserver, Transaction}

/** Goal: a read of many keys holds a page of rows, in the JVM that has the store and in the one that asks. Method: 60
  * rows of 2 MB, read in a JVM whose heap is a part of that.
  */
class LongRowsReadSuite extends AnyFunSuite {
  for (from <- LongRowsReadChild.ways.keys.toSeq.sorted)
    test(s"60 rows of 2 MB are read by key, from $from, in a heap of 96 MB") {
      val child = new ProcessBuilder(
        new File(System.getProperty("java.home"), "bin/java").getPath,
        "-Xmx96m",
        "-cp",
        System.getProperty("java.class.path"),
        "statemark.spark.live.LongRowsReadChild",
        from
      ).inheritIO().start()
      assert(child.waitFor() == 0)
    }
}

/** The child. */
object LongRowsReadChild {
  private val Rows = 60
  private val RowBytes = 2 * 1024 * 1024
  private val address = StoreAddress(UUID.randomUUID(), 0, 0, "default")
  private val at = VersionId(Rows / 5, None)

  private def ask(request: ReadRequest): ReadReply =
    ReadService.decode[ReadReply](ReadService.answer(ReadService.encode(request)))

  /** The JVM that has the store open, as the reader sees it. */
  val ways: Map[String, TransactionalStore => statemark.transaction.Rows] = Map(
    "another JVM" -> { _ => RemoteRows.open(address, at, "READ_COMMITTED", ask).get },
    "the same JVM" -> { store => store.readAt(at).get }
  )

  private def key(i: Int): Array[Byte] = f"k$i%05d".getBytes

  def main(args: Array[String]): Unit = {
    RocksDB.loadLibrary()
    val directory = Files.createTempDirectory("statemark-long-rows-").toFile
    val store = NewStore.create(
      directory,
      EngineOptions(
        new LRUCache(8 * 1024 * 1024),
        None,
        isMemoryBounded = false,
        blockSizeBytes = 4096,
        writeBufferBytes = 0,
        maxWriteBuffers = 0,
        CompressionType.LZ4_COMPRESSION,
        tableFormatVersion = 5,
        mergeDelimiter = ",",
        maxOpenFiles = -1,
        allowFallocate = true
      ),
      StoreIdentity("query", 0, 0, "default", 1),
      StoreState.empty(0, RowCounts.zero),
      usesFamilies = false,
      CommitObserver.none,
      ReadRetention.none
    )
    def commit(writes: Transaction => Unit): Unit = {
      val transaction = store.newTransaction(() => ChangelogWriter.None)
      writes(transaction)
      store.commit(transaction): Unit
      store.confirm()
    }
    for (few <- (0 until Rows).grouped(5))
      commit(t => few.foreach(i => t.put(key(i), new Array[Byte](RowBytes))))
    ReadableStores.add(address, store, _ => true)
    val rows = ways(args(0))(store)
    val asked = (0 until 2 * Rows).map(key)
    val lengths = rows.getAll(asked).iterator.map(_.fold(0)(_.length)).toVector
    require(lengths == Vector.fill(Rows)(RowBytes) ++ Vector.fill(Rows)(0), lengths.toString)
    val scan = new PointScan(rows, asked)
    require(Iterator.continually(scan.next()).takeWhile(identity).forall { _ =>
      scan.value.length == RowBytes
    })
    store.close()
  }
}
