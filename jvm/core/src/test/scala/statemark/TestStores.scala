package statemark

import java.io.File
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Path}
import java.util.Comparator
import org.rocksdb.{Transaction => _, _}
import org.scalatest.{BeforeAndAfterEach, Suite}
import scala.jdk.CollectionConverters._
import statemark.changelog.ChangelogWriter
import statemark.engine._
import statemark.transaction._

/** Stores in temporary directories, with keys and values as text. */
trait TestStores extends BeforeAndAfterEach { this: Suite =>
  private var opened = List.empty[AutoCloseable]
  protected var root: File = new File(".")

  override protected def beforeEach(): Unit = {
    super.beforeEach()
    root = Files.createTempDirectory("statemark-core-").toFile
  }

  override protected def afterEach(): Unit = {
    opened.foreach(_.close())
    opened = Nil
    val walk = Files.walk(root.toPath)
    try walk.sorted(Comparator.reverseOrder[Path]()).forEach(p => Files.delete(p))
    finally walk.close()
    super.afterEach()
  }

  protected def options: EngineOptions = TestStores.options

  protected def newStore(
      name: String = "store",
      state: StoreState = StoreState.empty(0, RowCounts.zero),
      usesFamilies: Boolean = false,
      observer: CommitObserver = CommitObserver.none,
      retention: ReadRetention = ReadRetention.none,
      limit: Option[UncommittedLimit] = None
  ): TransactionalStore = {
    val store = NewStore.create(
      new File(root, name),
      options,
      TestStores.identity,
      state,
      usesFamilies,
      observer,
      retention,
      limit
    )
    opened = store :: opened
    store
  }

  /** Opens again what lies in a directory, as a later process does. */
  protected def reopened(
      directory: File,
      observer: CommitObserver = CommitObserver.none,
      limit: Option[UncommittedLimit] = None
  ): TransactionalStore = ReopenedStore.open(
    directory,
    options,
    TestStores.identity,
    usesFamilies = false,
    countsRows = true,
    observer,
    limit = limit
  ).store

  protected def begin(store: TransactionalStore): Transaction =
    store.newTransaction(() => ChangelogWriter.None)

  /** Commits what `writes` stages; the new version stays prepared. */
  protected def commit(store: TransactionalStore)(writes: Transaction => Unit)
      : PreparedTransaction = {
    val transaction = begin(store)
    writes(transaction)
    store.commit(transaction)
  }

  protected def rows(transaction: Transaction): Seq[(String, String)] =
    drain(transaction.range(None, None))

  /** Rows of the base, read through a transaction of its own. */
  protected def baseRows(store: TransactionalStore): Seq[(String, String)] = {
    val transaction = begin(store)
    try rows(transaction)
    finally transaction.rollback()
  }

  protected def drain(scan: RowScan): Seq[(String, String)] = {
    val result = Seq.newBuilder[(String, String)]
    while (scan.next()) result += ((text(scan.key), text(scan.value)))
    result.result()
  }

  protected def bytes(text: String): Array[Byte] = text.getBytes(UTF_8)

  protected def text(bytes: Array[Byte]): String = new String(bytes, UTF_8)
}

object TestStores {
  RocksDB.loadLibrary()

  val identity: StoreIdentity = StoreIdentity("query", 3, 1, "default", 4)

  val options: EngineOptions = EngineOptions(
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
  )

  /** All rows of a directory, opened as Spark's provider opens one: the default family only. */
  def plainRows(directory: File): Seq[(String, String)] = {
    val plain = new Options().setMergeOperator(new StringAppendOperator(","))
    val db = RocksDB.openReadOnly(plain, directory.getPath)
    val iterator = db.newIterator()
    try {
      iterator.seekToFirst()
      Iterator.continually(iterator).takeWhile(_.isValid).map { i =>
        val row = (new String(i.key(), UTF_8), new String(i.value(), UTF_8))
        i.next()
        row
      }.toVector
    } finally {
      iterator.close()
      db.close()
      plain.close()
    }
  }

  /** Contents of every file below, to tell whether anything changed. */
  def contents(directory: File): Map[String, Seq[Byte]] = {
    val walk = Files.walk(directory.toPath)
    try
      walk.iterator.asScala.filter(Files.isRegularFile(_))
        .map(p => directory.toPath.relativize(p).toString -> Files.readAllBytes(p).toSeq).toMap
    finally walk.close()
  }
}
