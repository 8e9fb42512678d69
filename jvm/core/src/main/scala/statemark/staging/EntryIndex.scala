package statemark.staging

import java.util.Arrays
import statemark.common.{ArrayPool, Bytes}

/** The entries that have a write, in key order. What is new is put aside until somebody asks for the order. Who asks
  * behind all of them, as an operator does that sorts its input, needs none. Much of what is new is sorted, and merged
  * with what is in order already; little is put into a small list beside that, one by one.
  *
  * ''Thread:'' the owner of the transaction.
  */
private[statemark] final class EntryIndex(table: StagedTable, pool: ArrayPool) {
  import EntryIndex._

  private var large = new LongList(pool)
  private val small = new LongList(pool)
  private var unordered = new LongList(pool)
  // The last key of all, but for those that are new since somebody asked; empty where there is none.
  private var greatest = Bytes.empty
  private var compared = 0
  // How often the lists have changed.
  private var changes = 0L

  def length: Int = large.length + small.length + unordered.length

  /** Makes sure of memory for another entry. */
  def reserve(): Unit = unordered.reserve()

  /** Adds an entry that it does not have. */
  def +=(entry: Long): Unit = unordered += entry

  /** Returns all entries in key order, in a list that stays as it is until the next call. */
  def all(): LongList = {
    merge()
    large
  }

  /** Tells whether `key` lies behind all entries. */
  def isBehindAll(key: Array[Byte]): Boolean = {
    compareNew()
    Arrays.compareUnsigned(greatest, key) < 0
  }

  private def compareNew(): Unit =
    while (compared < unordered.length) {
      val entry = unordered(compared)
      if (table.compareKey(entry, greatest) > 0) greatest = table.key(entry)
      compared += 1
    }

  /** Opens a cursor at the first entry from `begin` on. What is added meanwhile it may show or not. */
  def from(begin: Option[Array[Byte]]): Cursor = {
    if (small.length + unordered.length > MinSmall + 4 * math.sqrt(large.length.toDouble).toInt)
      merge()
    else if (unordered.length > 0) place()
    new Cursor(begin)
  }

  /** Puts what is new in its place, one by one. Where there is no memory for one of them, it and the rest stay. */
  private def place(): Unit = {
    changes += 1
    compareNew()
    var done = 0
    try
      while (done < unordered.length) {
        val entry = unordered(done)
        small.insert(firstFrom(small)(table.compare(_, entry)), entry)
        done += 1
      }
    finally {
      for (i <- done until unordered.length) unordered(i - done) = unordered(i)
      unordered.resize(unordered.length - done)
      compared = unordered.length
    }
  }

  private def merge(): Unit = if (small.length + unordered.length > 0) {
    changes += 1
    compared = 0
    val before = unordered.length
    unordered.resize(before + small.length)
    for (i <- 0 until small.length) unordered(before + i) = small(i)
    small.resize(0)
    new EntrySort(table, pool).sort(unordered)
    val isLastInLarge = large.length > 0 && table.compare(last(large), last(unordered)) > 0
    val lastKey = table.key(if (isLastInLarge) last(large) else last(unordered))
    large = if (large.length == 0) unordered else merged(unordered)
    unordered = new LongList(pool)
    greatest = lastKey
  }

  private def last(list: LongList): Long = list(list.length - 1)

  /** Returns both what is in order already and `added`, which are used no more. */
  private def merged(added: LongList): LongList = {
    val result = new LongList(pool)
    result.resize(large.length + added.length)
    val step = math.max(1, large.length / added.length)
    var i = 0
    for (j <- 0 until added.length) {
      val entry = added(j)
      val until = firstFrom(large, i, step)(table.compare(_, entry))
      i = copied(i, until, result, j)
      result(i + j) = entry
    }
    copied(i, large.length, result, added.length): Unit
    large.clear()
    added.clear()
    result
  }

  /** Copies entries that were in order, `later` places further, and returns the end. */
  private def copied(from: Int, until: Int, to: LongList, later: Int): Int = {
    var i = from
    while (i < until) {
      to(i + later) = large(i)
      i += 1
    }
    until
  }

  def clear(): Unit = {
    Seq(large, small, unordered).foreach(_.clear())
    greatest = Bytes.empty
    compared = 0
    changes += 1
  }

  private def firstFrom(list: LongList)(compare: Long => Int): Int =
    firstFrom(list, 0, list.length)(compare)

  /** Returns the place of the first entry, from `from` on, for which `compare` is not negative.
    * @param step about how far away it is
    */
  private def firstFrom(list: LongList, from: Int, step: Int)(compare: Long => Int): Int = {
    var low = from
    var high = math.min(from + step, list.length)
    while (high < list.length && compare(list(high - 1)) < 0) {
      val next = math.min(high + 2L * (high - low), list.length.toLong).toInt
      low = high
      high = next
    }
    while (low < high) {
      val middle = (low + high) >>> 1
      if (compare(list(middle)) < 0) low = middle + 1 else high = middle
    }
    low
  }

  /** Entries in key order. It goes on where it was when the lists have changed. */
  final class Cursor private[EntryIndex] (begin: Option[Array[Byte]]) {
    private var inLarge = placeOf(large)
    private var inSmall = placeOf(small)
    private var known = changes
    private var entry = smaller

    private def placeOf(list: LongList): Int =
      begin.fold(0)(key => firstFrom(list)(table.compareKey(_, key)))

    /** Returns the entry that it stands at, NoEntry at the end. */
    def current: Long = entry

    def advance(): Unit = if (entry != PagedTable.NoEntry) {
      if (known == changes) if (isInSmall) inSmall += 1 else inLarge += 1
      else {
        known = changes
        val passed = (other: Long) => if (table.compare(other, entry) <= 0) -1 else 1
        inLarge = firstFrom(large)(passed)
        inSmall = firstFrom(small)(passed)
      }
      entry = smaller
    }

    private def isInSmall = inSmall < small.length && small(inSmall) == entry

    private def smaller: Long =
      if (inSmall == small.length)
        if (inLarge == large.length) PagedTable.NoEntry else large(inLarge)
      else if (inLarge == large.length || table.compare(small(inSmall), large(inLarge)) < 0)
        small(inSmall)
      else large(inLarge)
  }
}

private object EntryIndex {

  /** So many entries are put in order one by one, and some more where many are in order: to find the place of one costs
    * a little, to merge costs all of them.
    */
  private val MinSmall = 64
}
