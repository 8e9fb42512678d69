package statemark

import java.io.{File, RandomAccessFile}
import org.scalatest.funsuite.AnyFunSuite
import statemark.changelog.ChangelogWriter
import statemark.common.StoreUnusableException
import statemark.engine._
import statemark.transaction._

/** Goal: rows of the base that a commit asks about, or that a spilled transaction merges with, are never on the heap
  * together (I8). Method: 60 lists of 2 MB in a JVM whose heap is a part of that, and a byte more for each of them.
  */
class LongRowsSuite extends AnyFunSuite with TestStores {

  for (way <- LongRowsChild.ways.keys.toSeq.sorted)
    test(s"a byte is appended to each of 60 lists of 2 MB, $way, in a heap of 96 MB") {
      val child = new ProcessBuilder(
        new File(System.getProperty("java.home"), "bin/java").getPath,
        "-Xmx96m",
        "-cp",
        System.getProperty("java.class.path"),
        "statemark.LongRowsChild",
        new File(root, "child").getPath,
        way
      ).inheritIO().start()
      assert(child.waitFor() == 0)
    }

  test("a read of several keys fails by name where a block is damaged, as a read of one key does") {
    val store = newStore()
    commit(store)(t => (0 until 1000).foreach(i => t.put(bytes(s"k$i"), bytes("v" * 100)))): Unit
    store.confirm()
    store.flush()
    val directory = new File(root, "store")
    store.close()
    val file = directory.listFiles.filter(_.getName.endsWith(".sst")).maxBy(_.length)
    val content = new RandomAccessFile(file, "rw")
    try {
      content.seek(100)
      content.write(Array.fill[Byte](100)(1))
    } finally content.close()
    val engine = RocksEngine.reopen(directory, options)
    try {
      val state = StoreState.empty(1, RowCounts.untracked)
      val t = new Transaction(engine, state, bytes(","), () => ChangelogWriter.None)
      val keys = (0 until 1000).map(i => bytes(s"k$i"))
      intercept[StoreUnusableException](keys.foreach(t.get))
      intercept[StoreUnusableException](t.getAll(keys).foreach(identity))
    } finally engine.close()
  }
}

/** The child. */
object LongRowsChild {
  private val Lists = 60
  private val Short = 5000
  private val ListBytes = 2 * 1024 * 1024

  /** The ways to commit: the limit of uncommitted memory, and the row counts to begin with. */
  val ways: Map[String, (Option[Long], RowCounts)] = Map(
    "in memory" -> (None, RowCounts.zero),
    "spilled" -> (Some(4096L), RowCounts.zero),
    "spilled and not counted" -> (Some(4096L), RowCounts.untracked)
  )

  private def key(i: Int): Array[Byte] = f"list $i%05d".getBytes

  def main(args: Array[String]): Unit = {
    val memory = new UncommittedMemory
    val (limit, counts) = ways(args(1))
    val store = NewStore.create(
      new File(args(0)),
      TestStores.options,
      TestStores.identity,
      StoreState.empty(0, counts),
      usesFamilies = false,
      CommitObserver.none,
      limit = limit.map(UncommittedLimit(memory, _))
    )
    def commit(writes: Transaction => Unit): StoreState = {
      val transaction = store.newTransaction(() => ChangelogWriter.None)
      writes(transaction)
      val state = store.commit(transaction).state
      store.confirm()
      state
    }
    for (few <- (0 until Lists).grouped(5))
      commit(t => few.foreach(i => t.put(key(i), new Array[Byte](ListBytes)))): Unit
    // Most rows are short, and lie between the long ones.
    val all = commit { t =>
      for (i <- 0 until Short)
        t.put(s"list ${"%05d".format(i % Lists)} $i".getBytes, Array[Byte](1))
    }
    require(!all.counts.isTracked || all.counts.keys == Lists + Short, all.counts.toString)
    val appended = commit(t => (0 until Lists).foreach(i => t.merge(key(i), Array[Byte](1))))
    require(appended.counts == all.counts, appended.counts.toString)
    require(limit.isEmpty || memory.spills > 0, "nothing was spilled")
    val read = store.newTransaction(() => ChangelogWriter.None)
    val rows = read.getAll((0 until Lists).map(key)).iterator
    require(rows.forall(_.exists(_.length == ListBytes + 2)))
    read.rollback()
    store.close()
  }
}
