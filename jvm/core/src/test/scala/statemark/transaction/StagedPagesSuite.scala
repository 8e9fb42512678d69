package statemark.transaction

import java.lang.management.ManagementFactory
import java.util.concurrent.{Callable, Executors}
import org.scalatest.funsuite.AnyFunSuite
import scala.collection.immutable.SortedMap
import scala.collection.mutable
import scala.util.Random
import statemark.common.{ArrayPool, Bytes, KeyHash}
import statemark.staging._

/** Goal: staged rows live in arrays that go from one transaction to the next, and nobody reads what is another's. Method:
  * a pool that overwrites what is given back.
  */
class StagedPagesSuite extends AnyFunSuite {
  private def newPool(bytes: Long = 64L * 1024 * 1024) = new ArrayPool(bytes, overwrites = true)
  private def newBuffer(pool: ArrayPool) = new TransactionBuffer(",".getBytes, pool)
  private def key(i: Int): Array[Byte] = f"key $i%08d".getBytes
  private def fill(buffer: TransactionBuffer, rows: Int, value: String): Unit =
    for (i <- 0 until rows) buffer.put(key(i), s"$value $i".getBytes)
  private def keysOf(buffer: TransactionBuffer): Seq[String] =
    buffer.sorted.iterator.map(buffer.entries.key).map(new String(_)).toSeq
  private def text(lookup: StagedLookup): String = lookup match {
    case StagedLookup.Value(bytes) => new String(bytes)
    case other => other.toString
  }
  private def allocated(work: => Unit): Long = {
    val threads = ManagementFactory.getPlatformMXBean(classOf[com.sun.management.ThreadMXBean])
    val id = Thread.currentThread.getId
    val before = threads.getThreadAllocatedBytes(id)
    work
    threads.getThreadAllocatedBytes(id) - before
  }

  for (outside <- Seq(0L, 4L << 20, 64L << 20))
    test(
      s"a second transaction of as many rows takes the pages of the first: $outside bytes outside"
    ) {
      val pool = newPool()
      pool.outside.bound(outside)
      val rows = (0 until 100000).map(i => (key(i), new Array[Byte](50)))
      def stage(): Unit = {
        val buffer = newBuffer(pool)
        rows.foreach { case (k, v) => buffer.put(k, v) }
        assert(buffer.sorted.length == rows.length)
        buffer.close()
      }
      stage()
      val free = pool.heldBytes
      assert(free + pool.outside.takenBytes > rows.length * 100)
      assert(pool.outside.takenBytes <= outside && (pool.outside.takenBytes > 0) == outside > 0)
      val second = allocated(stage())
      assert(second < rows.length * 10)
      assert(pool.heldBytes == free && pool.bufferBytes == 0)
    }

  test("a hundred transactions of ten rows are small") {
    val pool = newPool()
    val rows = (0 until 10).map(i => (key(i), new Array[Byte](50)))
    val all = allocated((1 to 100).foreach { _ =>
      val buffer = newBuffer(pool)
      rows.foreach { case (k, v) => buffer.put(k, v) }
    })
    assert(all < 100 * 16 * 1024)
  }

  test("a pool holds what it may and no more") {
    val pool = newPool(bytes = 512 * 1024)
    (1 to 3).map { _ =>
      val buffer = newBuffer(pool)
      fill(buffer, 5000, "v")
      buffer
    }.foreach(_.close())
    assert(pool.heldBytes > 256 * 1024 && pool.heldBytes <= 512 * 1024)
  }

  test("what a reader on another thread may see goes to no other transaction") {
    val pool = newPool()
    val (read, unread) = (newBuffer(pool), newBuffer(pool))
    Seq(read, unread).foreach(fill(_, 1000, "before"))
    assert(read.share() && read.share())
    val rows = new OpenRows(read)
    Seq(read, unread).foreach(_.close())
    assert(pool.heldBytes > 0 && read.share() && !unread.share())
    fill(newBuffer(pool), 5000, "after")
    for (i <- 0 until 1000) assert(text(rows.lookup(key(i))) == s"before $i")
    val scan = rows.scan(Some(key(10)), Some(key(20)))
    for (i <- 10 until 20) {
      assert(
        scan.head.map { case (k, w) => new String(k) + text(w) }.contains(f"key $i%08dbefore $i")
      )
      scan.advance()
    }
    assert(scan.head.isEmpty)
  }

  test("what was handed out stays as it was") {
    val pool = newPool()
    val buffer = newBuffer(pool)
    fill(buffer, 100, "v")
    val found = buffer.lookup(key(7))
    val scan = buffer.scan(Some(key(8)), None)
    val (name, write) = scan.head.get
    buffer.put(key(7), "w".getBytes)
    scan.close()
    buffer.close()
    fill(newBuffer(pool), 100, "x")
    assert(text(found) == "v 7" && text(write) == "v 8" && new String(name) == "key 00000008")
  }

  test("rows of any length, shorter and longer than a page, agree with a map") {
    val pool = newPool()
    for (seed <- 1 to 8) withClue(s"seed $seed: ") {
      val random = new Random(seed)
      val buffer = newBuffer(pool)
      val model = mutable.TreeMap.empty[Array[Byte], String](Bytes.order)
      def length() = random.nextInt(6) match {
        case 0 => random.nextInt(600000)
        case 1 => 32 * 1024 - 2 + random.nextInt(4)
        case 2 => random.nextInt(5000)
        case _ => random.nextInt(50)
      }
      def value() = random.alphanumeric.head.toString * length()
      for (_ <- 1 to 150) {
        val k =
          (s"${random.nextInt(12)}" + "k" * (if (random.nextInt(9) == 0) 40000 else 0)).getBytes
        val v = value()
        if (random.nextInt(3) == 0 && model.contains(k)) {
          buffer.merge(k, v.getBytes)
          model(k) = model(k) + "," + v
        } else {
          buffer.put(k, v.getBytes)
          model(k) = v
        }
      }
      for ((k, v) <- model) assert(text(buffer.lookup(k)) == v)
      val scan = buffer.scan(None, None)
      for ((k, v) <- model) {
        assert(scan.head.exists { case (at, w) => at.sameElements(k) && text(w) == v })
        scan.advance()
      }
      assert(scan.head.isEmpty)
      scan.close()
      buffer.close()
    }
  }

  test(
    "scans go on where they are while entries come into the order, one by one and many at once"
  ) {
    val pool = newPool()
    for (seed <- 1 to 2) withClue(s"seed $seed: ") {
      val random = new Random(seed)
      val buffer = newBuffer(pool)
      var model = SortedMap.empty[Int, String]
      var open = Vector.empty[(StagedCursor, Iterator[(Int, String)])]
      def step(scan: StagedCursor, expected: Iterator[(Int, String)]): Boolean = {
        val wanted = expected.nextOption()
        assert(scan.head.map { case (k, w) => (new String(k), text(w)) } ==
          wanted.map { case (i, v) => (new String(key(i)), v) })
        scan.advance()
        wanted.isDefined
      }
      // Seldom many writes between two scans.
      def writes() = if (random.nextInt(50) == 0) 1000 else random.nextInt(4)
      for (round <- 1 to 1500) {
        for (_ <- 1 to writes()) {
          val i = random.nextInt(20000)
          buffer.put(key(i), s"$round".getBytes)
          model += i -> s"$round"
        }
        val from = random.nextInt(20000)
        val until = from + random.nextInt(if (random.nextInt(20) == 0) 20000 else 20)
        val scan = buffer.scan(Some(key(from)), Some(key(until)))
        open :+= ((scan, model.range(from, until).iterator))
        for ((scan, expected) <- open if random.nextInt(4) == 0) step(scan, expected): Unit
        if (open.length > 10) {
          val (scan, expected) = open(random.nextInt(open.length))
          while (step(scan, expected)) ()
          scan.close()
          open = open.filterNot(_._1 eq scan)
        }
      }
      for ((scan, expected) <- open) while (step(scan, expected)) ()
      assert(keysOf(buffer) == model.keys.toSeq.map(i => new String(key(i))))
      buffer.close()
    }
  }

  test(
    "a copy beside the owner has each entry once, whether the table grows or is cleared meanwhile"
  ) {
    for (clears <- Seq(false, true); step <- 1 to 9) withClue(s"step $step: ") {
      val table = new StagedTable(newPool())
      def add(keys: Range): Unit = keys.foreach { i =>
        val entry = table.add(KeyHash.of(key(i)), key(i))
        table.write(entry, StagedTable.Put, seq = 1, Bytes.empty)
      }
      add(0 until 1000)
      var reads = 0
      val beside = new StagedTable.Beside {
        override def apply[A](read: => A): A = {
          reads += 1
          if (reads == step) {
            if (clears) table.clear()
            add(1000 until 9000)
          }
          read
        }
      }
      val found = (0 until PagedTable.Tables).flatMap(
        table.copyBeside(_, beside)(entry => new String(table.key(entry)))
      )
      assert(found.sorted == ((if (clears) 1000 else 0) until 9000).map(i => new String(key(i))))
    }
  }

  test("readers beside the owner see whole rows while arrays change hands") {
    val pool = newPool()
    val (hot, keys) = (10, 20000)
    // Every value names its key and its length, and has one letter alone.
    def value(i: Int, n: Int) = {
      val length = if (i < hot) n % 5000 else n % 50
      s"$i $length ${('a' + n % 26).toChar.toString * length}"
    }
    def isWhole(k: Array[Byte], v: String) = v == "Deleted" || (v.split(" ", 3) match {
      case Array(i, length, letters) =>
        i.toInt == new String(k).drop(4).toInt && length.toInt == letters.length &&
        letters.forall(_ == letters(0))
      case _ => false
    })
    val thread = Executors.newSingleThreadExecutor()
    try
      for (round <- 1 to 2) {
        val shared = newBuffer(pool)
        assert(shared.share())
        val rows = new OpenRows(shared)
        val owner = thread.submit(new Callable[Unit] {
          override def call(): Unit = {
            val random = new Random(round.toLong)
            for (n <- 1 to 2 * keys) {
              val i = if (n % 2 == 0) random.nextInt(hot) else n / 2
              if (n % 10 == 0) shared.remove(key(i)) else shared.put(key(i), value(i, n).getBytes)
              // Another transaction takes what this one has outgrown, and gives back what it has written.
              if (n % 500 == 0) {
                val other = newBuffer(pool)
                fill(other, 3000, "other")
                other.close()
              }
            }
          }
        })
        var reads = 0
        val random = new Random(round.toLong)
        while (!owner.isDone || reads == 0) {
          for (_ <- 1 to 500) {
            val k = key(if (random.nextBoolean()) random.nextInt(hot) else random.nextInt(keys))
            val found = text(rows.lookup(k))
            assert(found == "NotStaged" || isWhole(k, found))
          }
          val scan = rows.scan(None, None)
          var before = Bytes.empty
          while (scan.head.isDefined) {
            val (k, w) = scan.head.get
            assert(Bytes.order.lt(before, k) && isWhole(k, text(w)))
            before = k
            scan.advance()
          }
          reads += 1
        }
        owner.get()
        shared.close()
      }
    finally thread.shutdownNow(): Unit
  }
}
