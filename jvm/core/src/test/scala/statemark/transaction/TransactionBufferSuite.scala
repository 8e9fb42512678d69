package statemark.transaction

import java.nio.{ByteBuffer, ByteOrder}
import org.scalatest.funsuite.AnyFunSuite
import scala.collection.immutable.SortedMap
import scala.collection.mutable
import scala.util.Random
import statemark.common.{ArrayPool, Bytes, KeyHash}
import statemark.staging.StagedLookup._
import statemark.staging._

class TransactionBufferSuite extends AnyFunSuite {
  private def key(s: String): Array[Byte] = s.getBytes
  // What is given back and still read shows.
  private val pool = new ArrayPool(64L * 1024 * 1024, overwrites = true)
  private def newBuffer = new TransactionBuffer(key(","), pool)
  private def keysOf(buffer: TransactionBuffer): Seq[Array[Byte]] =
    buffer.sorted.iterator.map(buffer.entries.key).toSeq
  private def sorted(keys: Seq[Array[Byte]]): Seq[Array[Byte]] = {
    val table = new StagedTable(pool)
    val list = new LongList(pool)
    keys.foreach(k => list += table.add(KeyHash.of(k), k))
    new EntrySort(table, pool).sort(list)
    val result = list.iterator.map(table.key).toVector
    list.clear()
    table.clear()
    result
  }
  private def shown(lookup: StagedLookup): String = lookup match {
    case Value(bytes) => s"=${new String(bytes)}"
    case Operands(bytes) => s"+${new String(bytes)}"
    case other => other.toString
  }
  private def look(buffer: TransactionBuffer, k: String): String = shown(buffer.lookup(key(k)))
  private def steps(writes: (TransactionBuffer => Unit)*): Seq[TransactionBuffer => Unit] = writes
  private def scan(buffer: TransactionBuffer): Seq[String] = rest(buffer.scan(None, None))
  private def rest(scan: StagedCursor): Seq[String] = {
    val all = Seq.newBuilder[String]
    while (scan.head.isDefined) {
      scan.head.foreach { case (k, w) => all += new String(k) + shown(w) }
      scan.advance()
    }
    scan.close()
    all.result()
  }

  test("a write replaces the write before it, a merge appends to it") {
    val cases = Seq(
      steps(_.put(key("k"), key("1"))) -> "=1",
      steps(_.put(key("k"), key("1")), _.put(key("k"), key("2"))) -> "=2",
      steps(_.put(key("k"), key("1")), _.remove(key("k"))) -> "Deleted",
      steps(_.remove(key("k"))) -> "Deleted",
      steps(_.merge(key("k"), key("a"))) -> "+a",
      steps(_.merge(key("k"), key("a")), _.merge(key("k"), key("b"))) -> "+a,b",
      steps(_.put(key("k"), key("1")), _.merge(key("k"), key("a"))) -> "=1,a",
      steps(_.remove(key("k")), _.merge(key("k"), key("a"))) -> "=a",
      steps(_.merge(key("k"), key("a")), _.remove(key("k")), _.merge(key("k"), key("b"))) -> "=b",
      steps(_.merge(key("k"), key("a")), _.put(key("k"), key("1"))) -> "=1",
      steps(_.deleteRange(key("a"), key("z"))) -> "Deleted",
      steps(_.put(key("k"), key("1")), _.deleteRange(key("a"), key("z"))) -> "Deleted",
      steps(_.deleteRange(key("a"), key("z")), _.put(key("k"), key("1"))) -> "=1",
      steps(_.deleteRange(key("a"), key("z")), _.merge(key("k"), key("a"))) -> "=a",
      steps(
        _.merge(key("k"), key("a")),
        _.deleteRange(key("a"), key("z")),
        _.merge(key("k"), key("b"))
      )
        -> "=b",
      steps(_.deleteRange(key("a"), key("k"))) -> "NotStaged",
      steps(_.deleteRange(key("k"), key("k"))) -> "NotStaged",
      steps(_.deleteRange(key("z"), key("a"))) -> "NotStaged"
    )
    for (((writes, expected), i) <- cases.zipWithIndex) withClue(s"case $i: ") {
      for (isIndexed <- Seq(false, true)) {
        val buffer = newBuffer
        if (isIndexed) assert(scan(buffer).isEmpty)
        writes.foreach(_(buffer))
        assert(look(buffer, "k") == expected)
      }
    }
  }

  test("a scan sees what stood when it was opened, whatever is written while it is read") {
    val buffer = newBuffer
    buffer.put(key("a"), key("1"))
    buffer.merge(key("b"), key("x"))
    buffer.put(key("d"), key("4"))
    val first = buffer.scan(None, None)
    buffer.put(key("a"), key("2"))
    buffer.merge(key("b"), key("y"))
    buffer.put(key("c"), key("3"))
    buffer.remove(key("d"))
    val second = buffer.scan(None, None)
    buffer.deleteRange(key("a"), key("c"))
    buffer.merge(key("b"), key("z"))
    assert(rest(first) == Seq("a=1", "b+x", "d=4"))
    assert(rest(second) == Seq("a=2", "b+x,y", "c=3", "dDeleted"))
    assert(scan(buffer) == Seq("aDeleted", "b=z", "c=3", "dDeleted"))
  }

  test("a merge never changes the bytes that an older scan or the caller holds") {
    val buffer = newBuffer
    val value = key("0123456789")
    buffer.put(key("k"), value)
    buffer.merge(key("k"), key("a"))
    val before = buffer.scan(None, None)
    (1 to 50).foreach(i => buffer.merge(key("k"), key(s"$i")))
    assert(rest(before) == Seq("k=0123456789,a"))
    assert(value.sameElements(key("0123456789")))
  }

  test("what a read found in the base is remembered and is no write") {
    val buffer = newBuffer
    buffer.rememberBase(key("present"), exists = true)
    buffer.rememberBase(key("absent"), exists = false)
    assert(look(buffer, "present") == "NotStaged")
    assert(look(buffer, "absent") == "KnownAbsent")
    assert(buffer.isEmpty && keysOf(buffer).isEmpty && scan(buffer).isEmpty)
    buffer.put(key("absent"), key("1"))
    assert(buffer.sorted.iterator.map(buffer.entries.inBase).toSeq == Seq(StagedTable.Absent))
  }

  test("writes come out in unsigned byte order, with and without an index") {
    val random = new Random(7)
    for (round <- 1 to 50; isIndexed <- Seq(false, true)) {
      val buffer = newBuffer
      val shared = Array.fill(random.nextInt(12))(random.nextInt(256).toByte)
      val keys = Seq.fill(random.nextInt(300))(
        shared ++ Array.fill(random.nextInt(10))((random.nextInt(3) * 127).toByte)
      )
      if (isIndexed) assert(scan(buffer).isEmpty)
      // The index lacks few keys, many, or all of them when they are asked for.
      val lastScan = random.nextInt(keys.length + 1)
      for ((k, i) <- keys.zipWithIndex) {
        if (isIndexed && i == lastScan) scan(buffer): Unit
        buffer.put(k, k)
      }
      val expected = keys.sorted(Bytes.order).map(_.toSeq).distinct
      assert(keysOf(buffer).map(_.toSeq) == expected, s"round $round")
    }
  }

  test("many keys of any shape are sorted as bytes are") {
    val random = new Random(11)
    def bytes(n: Int, of: Int) = Array.fill(n)(random.nextInt(of).toByte)
    val shapes = Seq[() => Array[Byte]](
      () => bytes(8, 256),
      () => Bytes.concat(Array.fill[Byte](11)(0), bytes(1 + random.nextInt(12), 256), Bytes.empty),
      () =>
        bytes(random.nextInt(40), 2), // long runs of the same eight bytes, keys that end in them
      () => Array.fill[Byte](random.nextInt(3000))(0), // each begins the next
      () => Bytes.concat(bytes(2, 2), Array.fill[Byte](30)(7), bytes(4, 256)),
      () => Array.fill[Byte](8 * random.nextInt(300))(-1)
    )
    for (shape <- shapes; count <- Seq(1, 63, 64, 65, 5000)) {
      val keys = Seq.fill(count)(shape()).distinctBy(_.toSeq)
      val expected = keys.sorted(Bytes.order)
      // Nearly in order: some a few places away, some anywhere.
      val (some, most) = expected.partition(_ => random.nextInt(count) < 9)
      val nearly = most.grouped(1 + random.nextInt(4)).flatMap(Random.shuffle(_)).toSeq ++ some
      for (input <- Seq(Random.shuffle(keys), nearly, expected))
        assert(sorted(input).map(_.toSeq) == expected.map(_.toSeq))
    }
  }

  test("keys of which one ends after each eight bytes are sorted on a small stack") {
    val keys = (0 until 1500).map { i =>
      val bytes = new Array[Byte](8 * i + 1)
      bytes(8 * i) = 1
      bytes
    }
    val mixed = new Random(3).shuffle(keys)
    var found = Seq.empty[Array[Byte]]
    var failure = Option.empty[Throwable]
    val small = new Thread(
      null,
      () =>
        try found = sorted(mixed)
        catch { case e: StackOverflowError => failure = Some(e) },
      "small stack",
      256L * 1024
    )
    small.start()
    small.join()
    assert(failure.isEmpty && found.map(_.toSeq) == keys.reverse.map(_.toSeq))
  }

  test("staged bytes are those of keys, values and a constant for each entry") {
    val buffer = newBuffer
    assert(buffer.bytes == 0)
    buffer.put(key("key"), new Array[Byte](1000))
    val one = buffer.bytes
    assert(one >= 1003 && one < 1003 + 256)
    // The value keeps its room, for the next one.
    buffer.put(key("key"), new Array[Byte](10))
    buffer.remove(key("key"))
    buffer.put(key("key"), new Array[Byte](1000))
    assert(buffer.bytes == one)
    // What a longer one leaves behind is counted, and a long one leaves nothing.
    buffer.put(key("key"), new Array[Byte](1001))
    assert(buffer.bytes == one + 2000)
    buffer.put(key("key"), new Array[Byte](100000))
    buffer.put(key("key"), new Array[Byte](100001))
    assert(buffer.bytes == one + 2000 + 100001)
  }

  test("range tombstones cover just the union of what was added") {
    val random = new Random(11)
    for (_ <- 1 to 200) {
      val ranges = Seq.fill(random.nextInt(8))((random.nextInt(40), random.nextInt(40)))
      def at(i: Int): Array[Byte] = Array(i.toByte)
      val tombstones =
        ranges.foldLeft(RangeTombstones.none) { case (t, (b, e)) => t.added(at(b), at(e)) }
      for (i <- 0 until 40) {
        val expected = ranges.exists { case (b, e) => b <= i && i < e }
        assert(tombstones.covers(at(i)) == expected, s"$i in $ranges")
      }
      val flat = tombstones.ranges.flatMap { case (b, e) => Seq(b(0), e(0)) }
      assert(flat == flat.sorted && flat.distinct == flat)
    }
  }

  test("a range among n ranges is added, and a key looked up in them, with some log n compares") {
    val n = 20000
    var compares = 0L
    val counted: Ordering[Array[Byte]] = (a, b) => {
      compares += 1
      Bytes.order.compare(a, b)
    }
    def at(i: Int): Array[Byte] = ByteBuffer.allocate(4).putInt(i).array
    val apart = new Random(5).shuffle((0 until n).toVector)
    var tombstones = RangeTombstones.noneBy(counted)
    for ((i, done) <- apart.zipWithIndex) {
      tombstones = tombstones.added(at(4 * i), at(4 * i + 2))
      assert(tombstones.covers(at(4 * i + 1)) && !tombstones.covers(at(4 * i + 2)))
      assert(compares <= (done + 1) * 200L, s"after $done ranges")
    }
    assert(tombstones.ranges.length == n && tombstones.bytes > n * 8)
    // One after the other swallows what it overlaps, and the last of them all.
    compares = 0
    for (i <- 0 until n by 2) tombstones = tombstones.added(at(4 * i), at(4 * i + 5))
    assert(compares <= n * 100L && tombstones.ranges.length == n / 2)
    compares = 0
    tombstones = tombstones.added(at(0), at(4 * n))
    assert(compares <= n * 100L && tombstones.ranges.length == 1)
    val one = RangeTombstones.none.added(at(0), at(4 * n))
    assert(tombstones.bytes == one.bytes)
  }

  test("no sender of keys makes calls compare with many others") {
    def texts(n: Int) = Iterator.tabulate(n) { i =>
      key((0 until 16).map(bit => if ((i >> bit & 1) == 0) "Aa" else "BB").mkString)
    }
    def longs(n: Int, order: ByteOrder) =
      Iterator.tabulate(n)(i => ByteBuffer.allocate(8).order(order).putLong(i.toLong).array)
    val shapes = Seq(
      "texts of one hashCode" -> texts(60000),
      "longs, big endian" -> longs(400000, ByteOrder.BIG_ENDIAN),
      "longs, little endian" -> longs(400000, ByteOrder.LITTLE_ENDIAN)
    )
    for ((shape, keys) <- shapes) withClue(s"$shape: ") {
      val buffer = newBuffer
      val seen = mutable.ArrayBuffer.empty[Array[Byte]]
      var compares = 0L
      keys.foreach { k =>
        compares += buffer.compares(k)
        buffer.put(k, Bytes.empty)
        seen += k
        assert(compares <= 4L * seen.length + 100, s"by put ${seen.length}")
      }
      val found = seen.iterator.map(k => buffer.compares(k).toLong).sum
      assert(found >= seen.length && found <= 4L * seen.length)
    }
  }

  test("random writes and open scans agree with a sorted map") {
    for (seed <- 1 to 500) {
      val random = new Random(seed)
      val buffer = newBuffer
      // What a store with base rows b=base.. would show; None where deleted.
      var model = SortedMap.empty[String, String]
      var open = Seq.empty[(StagedCursor, SortedMap[String, String])]
      def k() = s"k${random.nextInt(20)}"
      for (_ <- 1 to 120) random.nextInt(12) match {
        case 0 | 1 | 2 | 3 =>
          val (at, v) = (k(), s"v${random.nextInt(100)}")
          buffer.put(key(at), key(v))
          model += at -> s"=$v"
        case 4 | 5 =>
          val at = k()
          buffer.remove(key(at))
          model += at -> "Deleted"
        case 6 | 7 | 8 =>
          val (at, v) = (k(), s"m${random.nextInt(100)}")
          buffer.merge(key(at), key(v))
          model += at -> (model.get(at) match {
            case None => s"+$v"
            case Some("Deleted") => s"=$v"
            case Some(stood) => s"$stood,$v"
          })
        case 9 =>
          val ends = Seq(k(), k())
          val (b, e) = (ends.min, ends.max)
          val covered = model.rangeFrom(b).rangeUntil(e).map { case (at, _) => at -> "Deleted" }
          // An untouched key under the tombstone cannot be told from the map: touch all of them.
          (0 until 20).map(i => s"k$i").filter(x => x >= b && x < e).foreach { x =>
            buffer.put(key(x), key(""))
            model += x -> "Deleted"
          }
          buffer.deleteRange(key(b), key(e))
          model ++= covered
        case 10 => open = open :+ ((buffer.scan(None, None), model))
        case _ =>
          open.headOption.foreach { case (scan, expected) =>
            assert(rest(scan) == expected.map { case (a, w) => a + w }.toSeq, s"seed $seed")
            open = open.tail
          }
      }
      open.foreach { case (scan, expected) =>
        assert(rest(scan) == expected.map { case (a, w) => a + w }.toSeq, s"seed $seed")
      }
      assert(scan(buffer) == model.map { case (a, w) => a + w }.toSeq, s"seed $seed")
    }
  }

  test("groups written nearly in order, each after it was scanned, agree with a sorted map") {
    for (seed <- 1 to 20) withClue(s"seed $seed: ") {
      val random = new Random(seed)
      val buffer = newBuffer
      var model = SortedMap.empty[String, String]
      var open = Vector.empty[(StagedCursor, SortedMap[String, String])]
      def within(begin: String, end: String) = model.rangeFrom(begin).rangeUntil(end)
      def shownIn(model: SortedMap[String, String]) = model.map { case (k, w) => k + w }.toSeq
      for (next <- 0 until 1500) {
        // Most come behind all others, some a little before, few anywhere.
        val group = random.nextInt(20) match {
          case 0 => random.nextInt(next + 1)
          case 1 | 2 => math.max(0, next - random.nextInt(30))
          case _ => next
        }
        val (begin, end) = (f"g$group%05d", f"g${group + 1}%05d")
        val scan = buffer.scan(Some(key(begin)), Some(key(end)))
        val expected = within(begin, end)
        // What is written now it does not see.
        for (_ <- 0 to random.nextInt(3)) {
          val at = begin + random.nextInt(4)
          if (random.nextInt(4) == 0) {
            buffer.remove(key(at))
            model += at -> "Deleted"
          } else {
            buffer.put(key(at), key(s"$next"))
            model += at -> s"=$next"
          }
        }
        if (random.nextInt(50) == 0) open :+= ((scan, expected))
        else assert(rest(scan) == shownIn(expected))
        if (random.nextInt(100) == 0) {
          val ends = Seq.fill(2)(f"g${random.nextInt(next + 1)}%05d").sorted
          val found = buffer.scan(Some(key(ends.head)), Some(key(ends.last)))
          assert(rest(found) == shownIn(within(ends.head, ends.last)))
        }
      }
      open.foreach { case (scan, expected) => assert(rest(scan) == shownIn(expected)) }
      assert(scan(buffer) == shownIn(model))
      assert(keysOf(buffer).map(new String(_)) == model.keys.toSeq)
    }
  }

  test("what is kept for open scans is what they see, and is counted") {
    var (most, counted) = (0, 0L)
    for (seed <- 1 to 40) withClue(s"seed $seed: ") {
      val random = new Random(seed)
      val (buffer, plain) = (newBuffer, newBuffer)
      var model = SortedMap.empty[String, String]
      var open = Vector.empty[(StagedCursor, SortedMap[String, String])]
      var needed = 0
      def shownIn(model: SortedMap[String, String]) = model.map { case (k, w) => k + w }.toSeq
      def both(write: TransactionBuffer => Unit): Unit = Seq(buffer, plain).foreach(write)
      for (step <- 1 to 300) {
        val (at, v) = (s"k${random.nextInt(5)}", s"$step" + "v" * random.nextInt(4000))
        random.nextInt(20) match {
          case 0 | 1 | 2 | 3 | 4 | 5 =>
            both(_.put(key(at), key(v)))
            model += at -> s"=$v"
          case 6 | 7 | 8 | 9 =>
            both(_.merge(key(at), key(v.take(200))))
            val add = v.take(200)
            model += at -> (model.get(at) match {
              case None => s"+$add"
              case Some("Deleted") => s"=$add"
              case Some(stood) => s"$stood,$add"
            })
          case 10 | 11 =>
            both(_.remove(key(at)))
            model += at -> "Deleted"
          case 12 | 13 | 14 | 15 => open :+= ((buffer.scan(None, None), model))
          case _ if open.nonEmpty =>
            val i = random.nextInt(open.length)
            val (scan, expected) = open(i)
            if (random.nextBoolean()) assert(rest(scan) == shownIn(expected)) else scan.close()
            open = open.patch(i, Nil, 1)
          case _ => ()
        }
        needed = math.max(needed, open.flatMap(_._2).distinct.map(_._2.length + 200).sum)
        counted = math.max(counted, buffer.bytes - plain.bytes)
        // Arrays to which values are appended are twice as long as these, at most.
        assert(buffer.bytes <= plain.bytes + 2 * 2 * needed + 100 * 1024, s"step $step")
      }
      most = math.max(most, needed)
      open.foreach { case (scan, expected) => assert(rest(scan) == shownIn(expected)) }
      assert(scan(buffer) == scan(plain))
      assert(buffer.bytes == plain.bytes)
    }
    assert(most > 20 * 1024 && counted > 20 * 1024)
  }
}
