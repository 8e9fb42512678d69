package statemark

import java.io.File
import java.util.concurrent.CountDownLatch
import scala.collection.immutable.SortedMap
import scala.util.Random
import statemark.changelog.ChangelogWriter
import statemark.engine._
import statemark.transaction._

/** The child: confirms version 1, flushes it, and stands still in the middle of version 2. */
object SpillCrash {
  private val Limit = 256L * 1024

  def main(args: Array[String]): Unit = {
    var isSecond = false
    var part = 0
    val store = NewStore.create(
      new File(args(0)),
      // Memtables are small: a part of a version is on disk long before its end.
      TestStores.options.copy(writeBufferBytes = 128 * 1024),
      TestStores.identity,
      StoreState.empty(0, RowCounts.zero),
      usesFamilies = false,
      phase =>
        if (isSecond && phase == CommitPhase.PartApplied) {
          part += 1
          if (part == args(1).toInt) {
            Console.out.println(s"part $part")
            new CountDownLatch(1).await()
          }
        },
      limit = Some(UncommittedLimit(new UncommittedMemory, Limit))
    )
    for (version <- 1 to 2) {
      val transaction = store.newTransaction(() => ChangelogWriter.None)
      write(transaction, version)
      store.commit(transaction): Unit
      isSecond = version == 2
      store.confirm()
      store.flush()
    }
  }

  private def key(i: Int) = f"key $i%06d"
  private def value(version: Int, i: Int) =
    s"$version-${new Random(i).alphanumeric.take(300).mkString}"

  private def write(t: Transaction, version: Int): Unit =
    if (version == 1) for (i <- 0 until 3000) t.put(key(i).getBytes, value(1, i).getBytes)
    else {
      t.deleteRange(key(500).getBytes, key(900).getBytes)
      for (i <- 0 until 12000 by 2) t.put(key(i).getBytes, value(2, i).getBytes)
      for (i <- 0 until 12000 by 31) t.merge(key(i).getBytes, s"m$i".getBytes)
    }

  /** The rows of a version, without a store. */
  def rowsOf(version: Long): Seq[(String, String)] = {
    var rows = SortedMap.empty[String, String]
    if (version >= 1) for (i <- 0 until 3000) rows += key(i) -> value(1, i)
    if (version == 2) {
      rows --= rows.range(key(500), key(900)).keys
      for (i <- 0 until 12000 by 2) rows += key(i) -> value(2, i)
      for (i <- 0 until 12000 by 31)
        rows += key(i) -> rows.get(key(i)).fold(s"m$i")(_ + s",m$i")
    }
    rows.toSeq
  }
}
