package statemark.staging

import java.util.{Arrays, Comparator}

/** Puts entries in key order: a radix sort by the eight bytes after what all keys share, as encoded rows begin
  * with bytes that are the same in every key. Keys that agree in those as well are sorted among themselves.
  */
private[statemark] object EntrySort {
  // Below, comparing is faster than counting.
  private val MinForRadix = 64
  private val PrefixBytes = 8
  // Chosen keys, of which one ends after each eight bytes, would take a step for each key, and the stack with them.
  private val MostSteps = 32

  private val byKey: Comparator[StagedEntry] = (a, b) => Arrays.compareUnsigned(a.key, b.key)

  def sort(entries: Array[StagedEntry]): Unit =
    sort(entries, 0, entries.length, minShared = 0, steps = 0)

  /** @param minShared the number of leading bytes that are known to be the same, where no key ends before them
    * @param steps how often the entries were sorted by eight bytes already
    */
  private def sort(
      entries: Array[StagedEntry],
      from: Int,
      until: Int,
      minShared: Int,
      steps: Int
  ): Unit =
    if (until - from < MinForRadix || steps == MostSteps) Arrays.sort(entries, from, until, byKey)
    else {
      val shared = sharedBytes(entries, from, until)
      // Some key ends, and others go on with zeros: nothing would be gained again.
      if (shared < minShared) Arrays.sort(entries, from, until, byKey)
      else {
        val prefixes = Array.tabulate(until - from)(i => prefix(entries(from + i).key, shared))
        val sorted = byPrefix(prefixes, Arrays.copyOfRange(entries, from, until))
        System.arraycopy(sorted.entries, 0, entries, from, until - from)
        forRuns(sorted.prefixes) { (first, end) =>
          sort(entries, from + first, from + end, shared + PrefixBytes, steps + 1)
        }
      }
    }

  private def forRuns(prefixes: Array[Long])(run: (Int, Int) => Unit): Unit = {
    var first = 0
    var i = 1
    while (i <= prefixes.length) {
      if (i == prefixes.length || prefixes(i) != prefixes(first)) {
        if (i - first > 1) run(first, i)
        first = i
      }
      i += 1
    }
  }

  private final case class Sorted(prefixes: Array[Long], entries: Array[StagedEntry])

  /** Byte by byte, the lowest first; bytes that are the same in all prefixes are passed over. */
  private def byPrefix(prefixes: Array[Long], entries: Array[StagedEntry]): Sorted = {
    val n = prefixes.length
    var varying = 0L
    var i = 0
    while (i < n) {
      varying |= prefixes(i) ^ prefixes(0)
      i += 1
    }
    var from = Sorted(prefixes, entries)
    var to = Sorted(new Array[Long](n), new Array[StagedEntry](n))
    var shift = 0
    while (shift < java.lang.Long.SIZE) {
      if (((varying >>> shift) & 0xff) != 0) {
        move(from, to, shift)
        val moved = to
        to = from
        from = moved
      }
      shift += java.lang.Byte.SIZE
    }
    from
  }

  private def move(from: Sorted, to: Sorted, shift: Int): Unit = {
    val places = new Array[Int](257)
    var i = 0
    while (i < from.prefixes.length) {
      places(((from.prefixes(i) >>> shift) & 0xff).toInt + 1) += 1
      i += 1
    }
    i = 1
    while (i < places.length) {
      places(i) += places(i - 1)
      i += 1
    }
    i = 0
    while (i < from.prefixes.length) {
      val digit = ((from.prefixes(i) >>> shift) & 0xff).toInt
      val place = places(digit)
      places(digit) = place + 1
      to.prefixes(place) = from.prefixes(i)
      to.entries(place) = from.entries(i)
      i += 1
    }
  }

  private def sharedBytes(entries: Array[StagedEntry], from: Int, until: Int): Int = {
    val first = entries(from).key
    var shared = first.length
    var i = from + 1
    while (i < until && shared > 0) {
      val key = entries(i).key
      val differs = Arrays.mismatch(first, 0, shared, key, 0, math.min(shared, key.length))
      if (differs >= 0) shared = differs
      i += 1
    }
    shared
  }

  private def prefix(key: Array[Byte], from: Int): Long = {
    var result = 0L
    var i = 0
    while (i < PrefixBytes) {
      val byte = if (from + i < key.length) key(from + i) & 0xffL else 0L
      result = (result << 8) | byte
      i += 1
    }
    result
  }
}
