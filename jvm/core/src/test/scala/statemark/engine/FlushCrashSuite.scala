package statemark.engine

import java.io.File
import org.rocksdb._
import org.scalatest.funsuite.AnyFunSuite
import scala.io.Source
import scala.jdk.CollectionConverters._
import statemark.{NewStore, ReopenedStore, TestStores, TransactionalStore}
import statemark.changelog.ChangelogWriter

/** Goal: what a killed process leaves on disk is one version, rows and offsets alike (I2). Method: a
  * child process confirms and flushes versions, each of which writes its number as a row, and is
  * killed (SIGKILL) at a moment of this process's choice.
  */
class FlushCrashSuite extends AnyFunSuite with TestStores {

  test("I2: after SIGKILL the row and the offsets name the same version, which was flushed") {
    for (round <- 1 to 6) {
      val dir = new File(root, s"killed-$round")
      val lastFlushed = runAndKill(FlushCrash.Both, dir, lines = 3 + 5 * round)
      val (state, row) = FlushCrash.read(dir)
      assert(row == state.version, s"round $round")
      assert(state.version >= lastFlushed, s"round $round")
    }
  }

  test("a flush of the rows alone leaves them ahead of their offsets: the test above can fail") {
    val dir = new File(root, "rows-only")
    runAndKill(FlushCrash.RowsOnly, dir, lines = 10): Unit
    val (state, row) = FlushCrash.read(dir)
    assert(row > state.version)
  }

  /** Kills the child after it has printed `lines` flushed versions; the last of them. */
  private def runAndKill(mode: String, dir: File, lines: Int): Long = {
    val child = new ProcessBuilder(
      new File(System.getProperty("java.home"), "bin/java").getPath,
      "-cp",
      System.getProperty("java.class.path"),
      "statemark.engine.FlushCrash",
      mode,
      dir.getPath
    )
      .redirectError(ProcessBuilder.Redirect.INHERIT).start()
    try {
      val out = Source.fromInputStream(child.getInputStream).getLines()
      out.take(lines).map(_.toLong).toVector.last
    } finally
      child.destroyForcibly().waitFor(): Unit
  }
}

/** The child: confirms versions for ever and prints each that it has flushed. */
object FlushCrash {
  val Both = "both"
  val RowsOnly = "rows-only"

  def main(args: Array[String]): Unit = {
    val directory = new File(args(1))
    if (args(0) == Both) flushBoth(directory) else flushRowsOnly(directory)
  }

  private def flushBoth(directory: File): Unit = {
    val store = newStore(directory)
    Iterator.from(1).foreach { version =>
      val t = store.newTransaction(() => ChangelogWriter.None)
      t.put("version".getBytes, version.toString.getBytes)
      (1 to 200).foreach(i => t.put(s"k$i".getBytes, new Array[Byte](100)))
      store.commit(t): Unit
      store.confirm()
      if (version % 3 == 0) {
        store.flush()
        Console.out.println(version)
      }
    }
  }

  private def newStore(directory: File): TransactionalStore = NewStore.create(
    directory,
    TestStores.options,
    TestStores.identity,
    StoreState.empty(0, RowCounts.zero),
    usesFamilies = false,
    statemark.transaction.CommitObserver.none
  )

  /** What the engine must not do: the same writes, with a flush that names one family. */
  private def flushRowsOnly(directory: File): Unit = {
    val store = newStore(directory)
    store.flush()
    store.close()
    val handles = new java.util.ArrayList[ColumnFamilyHandle]()
    val db = RocksDB.open(
      new DBOptions().setAtomicFlush(true),
      directory.getPath,
      Seq(RocksDB.DEFAULT_COLUMN_FAMILY, OffsetsColumnFamily.Name.getBytes)
        .map(new ColumnFamilyDescriptor(_)).asJava,
      handles
    )
    val write = new WriteOptions().setDisableWAL(true)
    db.flush(new FlushOptions().setWaitForFlush(true), handles)
    Iterator.from(1).foreach { version =>
      val batch = new WriteBatch()
      batch.put("version".getBytes, version.toString.getBytes)
      val state = StoreState.empty(version.toLong, RowCounts.zero)
      batch.put(
        handles.get(1),
        OffsetsColumnFamily.StateKey,
        OffsetsColumnFamily.encodeState(state)
      )
      batch.put(
        handles.get(1),
        OffsetsColumnFamily.FamiliesKey,
        OffsetsColumnFamily.encodeFamilies(ColumnFamilies.none)
      )
      db.write(write, batch)
      db.flush(new FlushOptions().setWaitForFlush(true), handles.get(0))
      Console.out.println(version)
    }
  }

  /** The state in the offsets family and the version in the row. */
  def read(directory: File): (StoreState, Long) = {
    val state = ReopenedStore.inspect(directory, TestStores.options).state
    val engine = RocksEngine.open(directory, TestStores.options)
    try (state, engine.get("version".getBytes).fold(0L)(v => new String(v).toLong))
    finally engine.close()
  }
}
