package statemark.staging

import java.util.Arrays
import statemark.common.ArrayPool

/** Puts entries in key order: a radix sort by the eight bytes after what all keys share, as encoded rows begin
  * with bytes that are the same in every key. Keys that agree in those as well are sorted among themselves. What comes
  * nearly in order, as from an operator that sorts its input, is looked at once.
  */
private[statemark] final class EntrySort(table: StagedTable, pool: ArrayPool) {
  import EntrySort._

  def sort(entries: LongList): Unit =
    if (!isPutInPlace(entries)) sort(entries, 0, entries.length, minShared = 0, steps = 0)

  /** Moves each entry before those that come after it; false where that are too many, with some moved. */
  private def isPutInPlace(entries: LongList): Boolean = {
    var moves = 0
    var areFew = true
    var i = 1
    while (i < entries.length && areFew) {
      val entry = entries(i)
      var at = i
      while (at > 0 && areFew && table.compare(entries(at - 1), entry) > 0) {
        entries(at) = entries(at - 1)
        at -= 1
        moves += 1
        areFew = moves <= FewMoves + i
      }
      entries(at) = entry
      i += 1
    }
    areFew
  }

  /** @param minShared the number of leading bytes that are known to be the same, where no key ends before them
    * @param steps how often the entries were sorted by eight bytes already
    */
  private def sort(
      entries: LongList,
      from: Int,
      until: Int,
      minShared: Int,
      steps: Int
  ): Unit =
    if (until - from < MinForRadix) insert(entries, from, until)
    else if (steps == MostSteps) compare(entries, from, until)
    else {
      val shared = sharedBytes(entries, from, until)
      // Some key ends, and others go on with zeros: nothing would be gained again.
      if (shared < minShared) compare(entries, from, until)
      else {
        val prefixes = byPrefix(entries, from, until, shared)
        var first = 0
        var i = 1
        while (i <= prefixes.length) {
          if (i == prefixes.length || prefixes(i) != prefixes(first)) {
            if (i - first > 1)
              sort(entries, from + first, from + i, shared + PrefixBytes, steps + 1)
            first = i
          }
          i += 1
        }
        prefixes.clear()
      }
    }

  /** Sorts a few entries. */
  private def insert(entries: LongList, from: Int, until: Int): Unit = {
    var i = from + 1
    while (i < until) {
      val entry = entries(i)
      var low = from
      var high = i
      while (low < high) {
        val middle = (low + high) >>> 1
        if (table.compare(entries(middle), entry) < 0) low = middle + 1 else high = middle
      }
      var at = i
      while (at > low) {
        entries(at) = entries(at - 1)
        at -= 1
      }
      entries(low) = entry
      i += 1
    }
  }

  private def compare(entries: LongList, from: Int, until: Int): Unit = {
    val boxed = Array.tabulate[java.lang.Long](until - from)(i => entries(from + i))
    Arrays.sort(boxed, (a: java.lang.Long, b: java.lang.Long) => table.compare(a, b))
    for (i <- boxed.indices) entries(from + i) = boxed(i)
  }

  /** Sorts by the eight bytes from `shared` on, byte by byte, the lowest first; bytes that are the same in all keys are
    * passed over. Returns the eight bytes of each entry, in their order; the caller clears the list.
    */
  private def byPrefix(entries: LongList, from: Int, until: Int, shared: Int): LongList = {
    val n = until - from
    val prefixes = new LongList(pool)
    prefixes.resize(n)
    var varying = 0L
    var i = 0
    while (i < n) {
      prefixes(i) = table.prefix(entries(from + i), shared)
      varying |= prefixes(i) ^ prefixes(0)
      i += 1
    }
    var now = Part(prefixes, entries, from)
    var next = Part(new LongList(pool), new LongList(pool), 0)
    next.prefixes.resize(n)
    next.entries.resize(n)
    var shift = 0
    while (shift < java.lang.Long.SIZE) {
      if (((varying >>> shift) & 0xff) != 0) {
        move(now, next, shift)
        val moved = next
        next = now
        now = moved
      }
      shift += java.lang.Byte.SIZE
    }
    if (now.entries ne entries) {
      i = 0
      while (i < n) {
        entries(from + i) = now.entries(i)
        i += 1
      }
      now.entries.clear()
    } else next.entries.clear()
    next.prefixes.clear()
    now.prefixes
  }

  private def move(from: Part, to: Part, shift: Int): Unit = {
    val n = from.prefixes.length
    val places = new Array[Int](257)
    var i = 0
    while (i < n) {
      places(((from.prefixes(i) >>> shift) & 0xff).toInt + 1) += 1
      i += 1
    }
    i = 1
    while (i < places.length) {
      places(i) += places(i - 1)
      i += 1
    }
    i = 0
    while (i < n) {
      val prefix = from.prefixes(i)
      val digit = ((prefix >>> shift) & 0xff).toInt
      val place = places(digit)
      places(digit) = place + 1
      to.prefixes(place) = prefix
      to.entries(to.from + place) = from.entries(from.from + i)
      i += 1
    }
  }

  private def sharedBytes(entries: LongList, from: Int, until: Int): Int = {
    var shared = Int.MaxValue
    var i = from + 1
    while (i < until && shared > 0) {
      shared = table.sharedBytes(entries(from), entries(i), shared)
      i += 1
    }
    shared
  }
}

private object EntrySort {
  // Below, comparing is faster than counting.
  private val MinForRadix = 64
  private val PrefixBytes = 8
  // So many moves, and one for each entry, cost less than counting.
  private val FewMoves = 16
  // Chosen keys, of which one ends after each eight bytes, would take a step for each key, and the stack with them.
  private val MostSteps = 32

  /** Entries from `from` on, with eight bytes of each. */
  private final case class Part(prefixes: LongList, entries: LongList, from: Int)
}
