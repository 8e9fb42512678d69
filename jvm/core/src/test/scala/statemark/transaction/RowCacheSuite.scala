package statemark.transaction

import java.io.File
import java.util.{BitSet, TreeMap => JTreeMap}
import java.util.concurrent.atomic.AtomicBoolean
import org.scalatest.funsuite.AnyFunSuite
import scala.collection.mutable
import scala.jdk.CollectionConverters._
import scala.util.Random
import statemark.TestStores
import statemark.common.{Bytes, KeyHash}
import statemark.engine._

/** Rows that are kept in memory are those of the base, whatever was written, read, and dropped. */
class RowCacheSuite extends AnyFunSuite with TestStores {
  private val delimiter = bytes(",")

  /** A base in a map, which counts what it is asked. */
  private final class Base extends BaseRows {
    val rows = new JTreeMap[Array[Byte], Array[Byte]](Bytes.order)
    var asked = 0
    var open = 0
    override def get(key: Array[Byte]): Option[Array[Byte]] = {
      asked += 1
      Option(rows.get(key))
    }
    override def exist(keys: IndexedSeq[Array[Byte]], rowCount: Long): Array[Boolean] = {
      asked += keys.length
      keys.map(rows.containsKey(_)).toArray
    }
    override def scan(begin: Option[Array[Byte]], end: Option[Array[Byte]]): RowCursor = {
      asked += 1
      open += 1
      val found = rows.subMap(begin.get, true, end.get, false).entrySet.iterator
      new RowCursor {
        private var current = found.asScala.nextOption()
        override def keyOrEnd(): Option[Array[Byte]] = current.map(_.getKey)
        override def value: Array[Byte] = current.get.getValue
        override def next(): Unit = current = found.asScala.nextOption()
        override def close(): Unit = open -= 1
      }
    }
    override def rest(): Unit = ()
  }

  private sealed trait Change
  private case class Put(value: Array[Byte]) extends Change
  private case class Merge(operand: Array[Byte]) extends Change
  private case object Delete extends Change

  /** Writes one version to the base, and tells the cache.
    * @param isCounted whether it was asked which keys the base had
    */
  private def write(
      base: Base,
      cache: RowCache,
      changes: Map[String, Change],
      isCounted: Boolean = true
  ): Unit = {
    val sorted = changes.toSeq.map { case (k, change) => (bytes(k), change) }
      .sortBy(_._1)(Bytes.order)
    val before = new BitSet
    for (((key, _), i) <- sorted.zipWithIndex) before.set(i, base.rows.containsKey(key))
    val batch = HeapBatch.of(rowsBefore = Option.when(isCounted)(before)) { out =>
      sorted.foreach {
        case (key, Put(value)) => out.put(key, value)
        case (key, Merge(operand)) => out.merge(key, operand)
        case (key, Delete) => out.delete(key)
      }
    }
    sorted.foreach {
      case (key, Put(value)) => base.rows.put(key, value)
      case (key, Merge(operand)) =>
        val before = Option(base.rows.get(key))
        base.rows.put(key, before.fold(operand)(Bytes.concat(_, delimiter, operand)))
      case (key, Delete) => base.rows.remove(key)
    }
    cache.written(batch)
  }

  private def check(
      seed: Long,
      pages: RowPages,
      isEmpty: Boolean
  ): Unit = {
    val random = new Random(seed)
    val base = new Base
    if (!isEmpty) (0 until 300).foreach(i => base.rows.put(bytes(s"key $i"), bytes("old")))
    val cache = new RowCache(base, delimiter, pages, isEmpty)
    def key() = s"key ${random.nextInt(600)}" + (if (random.nextInt(200) == 0) "x" * 20000 else "")
    def value() = bytes("v" * (random.nextInt(8) match {
      case 0 => random.nextInt(40000)
      case 1 => 0
      case _ => 20 + random.nextInt(3)
    }))
    for (_ <- 0 until 120) {
      for (_ <- 0 until random.nextInt(300)) {
        val k = bytes(key())
        assert(cache.get(k).map(_.toSeq) == Option(base.rows.get(k)).map(_.toSeq))
      }
      val asked = Seq.fill(random.nextInt(100))(bytes(key())).distinctBy(text)
        .sorted(Bytes.order).toIndexedSeq
      assert(cache.exist(asked, 0).toSeq == asked.map(base.rows.containsKey(_)))
      if (random.nextInt(30) == 0) loseAll(cache)
      write(
        base,
        cache,
        Seq.fill(random.nextInt(150))(key()).map { k =>
          k -> (random.nextInt(4) match {
            case 0 => Delete
            case 1 if text(bytes(k)).length < 1000 => Merge(bytes("m"))
            case _ => Put(value())
          })
        }.toMap,
        isCounted = random.nextInt(200) > 0
      )
    }
    cache.close()
  }

  test("it has what the base has: random reads, puts, merges, deletes, and drops") {
    for (seed <- 1 to 2; isEmpty <- Seq(true, false)) check(seed.toLong, roomy, isEmpty)
  }

  /** A range delete of nothing makes a cache forget all. */
  private def loseAll(cache: RowCache): Unit =
    cache.written(HeapBatch.of()(_.deleteRange(bytes("~"), bytes("~~"))))

  test("it has what the base has where memory is short") {
    for ((count, seed) <- Seq(0, 1, 2, 9).zipWithIndex; isEmpty <- Seq(true, false)) {
      val pages = new RowPages(count.toLong * RowPages.PageBytes)
      check(seed.toLong, pages, isEmpty)
      assert(pages.usedBytes == 0)
    }
  }

  test("it has what the base has while others take its memory") {
    val pages = new RowPages(8L * RowPages.PageBytes)
    val ends = new AtomicBoolean
    val other = pages.join(_ => 0)
    val thief = new Thread(() =>
      while (!ends.get) {
        val page = other.take()
        page.foreach { p =>
          for (i <- 0 until RowPages.PageBytes) p.put(i, 0x9b.toByte)
          other.give(p)
        }
      }
    )
    thief.start()
    try for (seed <- 7 to 8) check(seed.toLong, pages, isEmpty = true)
    finally ends.set(true)
    thief.join()
    other.close()
  }

  private def roomy = new RowPages(64L << 20)

  private def puts(keys: Range, value: String = "v"): Map[String, Change] =
    keys.map(i => s"key $i" -> Put(bytes(value))).toMap

  test(
    "the base is not asked for what was written or read before, nor for what a whole cache does not have"
  ) {
    val base = new Base
    val cache = new RowCache(base, delimiter, roomy, isEmpty = true)
    write(base, cache, puts(0 until 1000))
    for (i <- 0 until 2000) assert(cache.get(bytes(s"key $i")).isDefined == i < 1000)
    write(base, cache, puts(0 until 500, "other") ++ puts(500 until 600).keys.map(_ -> Delete))
    assert(cache.get(bytes("key 7")).map(text).contains("other"))
    assert(cache.get(bytes("key 550")).isEmpty)
    assert(cache.exist(IndexedSeq(bytes("key 1"), bytes("key 550")), 0).toSeq == Seq(true, false))
    assert(base.asked == 0)
    loseAll(cache)
    assert(cache.get(bytes("key 7")).isDefined && base.asked == 1)
    write(base, cache, puts(0 until 10))
    (0 until 10).foreach(i => cache.get(bytes(s"key $i")))
    assert(base.asked == 1)
    assert(cache.get(bytes("key 900")).isDefined && cache.get(bytes("key 900")).isDefined)
    assert(cache.get(bytes("no key")).isEmpty && base.asked == 3)
  }

  test("where it is full, rows that were used last stay") {
    val base = new Base
    val pages = new RowPages(16L * RowPages.PageBytes)
    val cache = new RowCache(base, delimiter, pages, isEmpty = true)
    for (version <- 0 until 100) {
      write(base, cache, puts(version * 100 until (version + 1) * 100, "v" * 100))
      (0 until 60).foreach(i => cache.get(bytes(s"key $i")))
    }
    assert(base.asked == 0 && pages.usedBytes == pages.memory.limitBytes)
    cache.get(bytes("key 200"))
    assert(base.asked == 1, "these are not there any more")
  }

  test("keys without a row are known beside rows that memory has no room for") {
    val base = new Base
    val pages = new RowPages(64L * RowPages.PageBytes)
    val cache = new RowCache(base, delimiter, pages, isEmpty = true)
    def absent(from: Int) = (from until from + 5000).foreach { i =>
      assert(cache.get(bytes(s"key $i")).isEmpty)
    }
    for (version <- 0 until 12) {
      val new_ = version * 4000 until (version + 1) * 4000
      absent(new_.start)
      write(base, cache, puts(new_, "v" * 50))
    }
    assert(base.asked < 10, "fingerprints are of 32 bits")
    assert(cache.get(bytes("key 1")).isDefined && base.asked > 0, "it was dropped")
    // Rows that are gone are known to be gone.
    write(base, cache, (0 until 20000).map(i => s"key $i" -> Delete).toMap)
    base.asked = 0
    absent(0)
    assert(base.asked < 10)
    // Somebody did not count.
    write(base, cache, puts(0 until 10), isCounted = false)
    assert(cache.get(bytes("key 100")).isEmpty && base.asked > 0)
  }

  test("a filter goes where no key is without a row, and where it takes half of the pages") {
    val base = new Base
    val pages = new RowPages(16L * RowPages.PageBytes)
    val cache = new RowCache(base, delimiter, pages, isEmpty = true)
    for (version <- 0 until 20)
      write(base, cache, puts(version * 4000 until (version + 1) * 4000, "v"))
    assert(cache.get(bytes("no key")).isEmpty && base.asked == 1)
    cache.close()
    val other = new RowCache(base, delimiter, pages, isEmpty = true)
    base.rows.clear()
    for (_ <- 0 until 3) {
      write(base, other, puts(0 until 12000, "v" * 20))
      (0 until 12000).foreach(i => assert(other.get(bytes(s"key $i")).isDefined))
    }
    base.asked = 0
    assert(other.get(bytes("no key")).isEmpty && base.asked == 1)
    other.close()
    assert(pages.usedBytes == 0)
  }

  test(
    "a version larger than the memory leaves its last rows, and a store without any finds some"
  ) {
    val base = new Base
    val pages = new RowPages(32L * RowPages.PageBytes)
    val cache = new RowCache(base, delimiter, pages, isEmpty = true)
    write(base, cache, puts(0 until 40000, "v" * 50))
    assert(pages.usedBytes == pages.memory.limitBytes)
    val asked = base.asked
    assert(cache.get(bytes("key 9999")).isDefined && base.asked == asked, "the last in key order")
    // Others have an equal part when they need it.
    val others = Seq.fill(3)(pages.join(_ => 0))
    val taken = Iterator.continually(others.head.take()).takeWhile(_.isDefined).flatten.toVector
    assert(taken.length >= 8)
    for (value <- Seq("v" * 51, "w")) {
      write(base, cache, puts(0 until 40000, value))
      for (i <- 0 until 40000 by 7)
        assert(cache.get(bytes(s"key $i")).map(text).contains(value))
    }
    taken.foreach(others.head.give)
    cache.close()
    assert(pages.usedBytes == 0)
  }

  test("a store without memory asks nobody who is busy, and goes on without") {
    val base = new Base
    val pages = new RowPages(4L * RowPages.PageBytes)
    val other = pages.join(_ => 0)
    val taken = Iterator.continually(other.take()).takeWhile(_.isDefined).flatten.toVector
    val cache = new RowCache(base, delimiter, pages, isEmpty = true)
    write(base, cache, puts(0 until 10))
    assert(cache.get(bytes("key 7")).isDefined && cache.get(bytes("key 11")).isEmpty)
    assert(base.asked == 2)
    taken.foreach(other.give)
    assert(cache.get(bytes("key 7")).isDefined && cache.get(bytes("key 7")).isDefined)
    assert(base.asked == 3)
  }

  test("a range that was deleted, or a batch on disk, leaves nothing") {
    val base = new Base
    val cache = new RowCache(base, delimiter, roomy, isEmpty = true)
    write(base, cache, puts(0 until 10))
    base.rows.clear()
    cache.written(HeapBatch.of()(_.deleteRange(bytes("a"), bytes("z"))))
    assert(cache.get(bytes("key 1")).isEmpty && base.asked == 1)
    write(base, cache, puts(0 until 10))
    assert(cache.get(bytes("key 1")).isDefined && base.asked == 1)
    base.rows.clear()
    cache.written(FileBatch.write(
      new File(root, "batch"),
      1024,
      Vector.empty
    )(_.delete(bytes("key 1"))))
    assert(cache.get(bytes("key 1")).isEmpty && base.asked == 2)
  }

  test("rows are not kept where no one reads them, nor where others are read each time") {
    val base = new Base
    val pages = new RowPages(8L << 20)
    val cache = new RowCache(base, delimiter, pages, isEmpty = false)
    def version(write: Range, read: Range): Boolean = {
      read.foreach(i => cache.get(bytes(s"key $i")))
      this.write(base, cache, puts(write))
      pages.usedBytes > 0
    }
    val unread = (1 to 20).map(_ => version(0 until 100, 0 until 0))
    assert(unread.head && !unread.last)
    assert(version(0 until 100, 0 until 100), "they are read again")
    val others = (1 to 60).map(i => version(i * 100 until (i + 1) * 100, 0 until 0))
    assert(!others.last)
    val never = (1 to 60).map(i => version(0 until 100, -100 * (i + 1) until -100 * i))
    assert(never.count(identity) > 5 && never.count(!_) > 25)
  }

  test("scans that found few rows are not asked again until the base changes") {
    val base = new Base
    val cache = new RowCache(base, delimiter, roomy, isEmpty = true)
    def rowsOf(prefix: String): Seq[(String, String)] = {
      val begin = bytes(prefix)
      val rows = cache.scan(Some(begin), Bytes.prefixEnd(begin))
      val found = Iterator.unfold(()) { _ =>
        rows.keyOrEnd().map { key =>
          val row = (text(key), text(rows.value))
          rows.next()
          (row, ())
        }
      }.toSeq
      rows.close()
      found
    }
    val random = new Random(11)
    for (version <- 1 to 40) {
      for (_ <- 1 to 200) {
        val prefix = s"key ${random.nextInt(12)}"
        val expected = base.rows.asScala.toSeq
          .map { case (k, v) => (text(k), text(v)) }.filter(_._1.startsWith(prefix))
        assert(rowsOf(prefix) == expected)
        val asked = base.asked
        assert(rowsOf(prefix) == expected)
        assert(base.asked == asked || expected.length > 8, "it is remembered")
      }
      write(
        base,
        cache,
        Seq.fill(random.nextInt(9))(random.nextInt(300)).map { i =>
          s"key $i" -> (if (random.nextBoolean()) Delete else Put(bytes(s"v$version")))
        }.toMap
      )
    }
    def isRemembered(prefix: String): Boolean = {
      rowsOf(prefix)
      val asked = base.asked
      rowsOf(prefix)
      base.asked == asked
    }
    write(
      base,
      cache,
      Seq("a" -> 8000, "b" -> 8000, "c" -> 20000).map { case (prefix, length) =>
        s"$prefix 1" -> Put(bytes("v" * length))
      }.toMap
    )
    assert(isRemembered("a") && isRemembered("b") && !isRemembered("c"), "one is too long")
    val prefix = "p" * 10000
    write(base, cache, Map(s"${prefix}1" -> Put(bytes("v"))))
    assert(rowsOf(prefix) == Seq(s"${prefix}1" -> "v"))
    // One that is not read is remembered as well, and holds nothing of the base; a long one does until it is closed.
    def open(prefix: String) = cache.scan(Some(bytes(prefix)), Bytes.prefixEnd(bytes(prefix)))
    val (first, second) = (open("a"), open("b"))
    assert(isRemembered("a") && isRemembered("b") && base.open == 0)
    for (scan <- Seq(second, first)) assert(scan.keyOrEnd().isDefined)
    for (begin <- Seq("key", "c", prefix)) {
      val long = open(begin)
      assert(!isRemembered(begin) && base.open == 1)
      long.close()
      assert(base.open == 0)
    }
  }

  test("a scan of few rows is closed where it cannot be read") {
    var isOpen = true
    val failing = new BaseRows {
      override def get(key: Array[Byte]): Option[Array[Byte]] = None
      override def exist(keys: IndexedSeq[Array[Byte]], rowCount: Long): Array[Boolean] =
        keys.map(_ => false).toArray
      override def rest(): Unit = ()
      override def scan(begin: Option[Array[Byte]], end: Option[Array[Byte]]): RowCursor =
        new RowCursor {
          override def keyOrEnd(): Option[Array[Byte]] = Some(begin.get)
          override def value: Array[Byte] = throw new IllegalStateException("no such block")
          override def next(): Unit = ()
          override def close(): Unit = isOpen = false
        }
    }
    val cache = new RowCache(failing, delimiter, roomy, isEmpty = false)
    intercept[IllegalStateException](cache.scan(Some(bytes("a")), Some(bytes("b"))))
    assert(!isOpen)
  }

  test("a scan of few rows tells which keys of its range are there, until the base changes") {
    val base = new Base
    val cache = new RowCache(base, delimiter, roomy, isEmpty = false)
    write(base, cache, puts(12 until 20))
    def told(key: String): Option[Boolean] = cache.scanned(bytes(key))
    assert(told("key 11").isEmpty)
    cache.scan(Some(bytes("key 1")), Bytes.prefixEnd(bytes("key 1"))).close()
    val expected = Seq("key 12" -> true, "key 19" -> true, "key 190" -> false, "key 1" -> false)
    for ((key, isThere) <- expected) assert(told(key).contains(isThere), key)
    assert(told("key 2").isEmpty && told("key 09").isEmpty && told("key ").isEmpty)
    write(base, cache, puts(11 until 12))
    assert(told("key 11").isEmpty)
  }

  test("no rows are kept where ranges are read and no keys") {
    val base = new Base
    val pages = new RowPages(8L << 20)
    val cache = new RowCache(base, delimiter, pages, isEmpty = true)
    cache.scan(Some(bytes("a")), Some(bytes("b"))).close()
    write(base, cache, puts(0 until 100))
    assert(pages.usedBytes == 0)
    cache.exist(IndexedSeq(bytes("key 1")), 0): Unit
    cache.scan(Some(bytes("a")), Some(bytes("b"))).close()
    write(base, cache, puts(0 until 100))
    assert(pages.usedBytes == 0, "rows are counted, and not read")
    cache.get(bytes("key 1"))
    write(base, cache, puts(0 until 100))
    assert(pages.usedBytes > 0)
  }

  test("a version that evicts by a scan and reads nothing else leaves rows, and what is absent") {
    val base = new Base
    val cache = new RowCache(base, delimiter, roomy, isEmpty = true)
    cache.get(bytes("key 1"))
    write(base, cache, puts(0 until 100))
    cache.scan(Some(bytes("key")), Some(bytes("key 2"))).close()
    write(base, cache, puts(0 until 10).map { case (key, _) => key -> Delete })
    base.asked = 0
    for (i <- 0 until 200)
      assert(cache.get(bytes(s"key $i")).isDefined == (10 until 100).contains(i))
    assert(base.asked == 0)
  }

  test("the table: as a map, with few tags to search by, and with what grows and shrinks") {
    // Many keys to split slots, hashes that collide in every part that is looked at, and little memory.
    for (
      (keys, mask, pageCount) <-
        Seq((9000, -1L, 4096), (200, 0x0700000000000003L, 64), (9000, -1L, 20))
    ) {
      val random = new Random(keys.toLong)
      val pages = new RowPages(pageCount.toLong * RowPages.PageBytes)
      def hashOf(key: Array[Byte], from: Int, length: Int) = KeyHash.of(key, from, length) & mask
      def hash(key: String) = hashOf(bytes(key), 0, key.length)
      val table = new RowTable(pages.join(_ => 0), hasAll = true, hashOf)
      val expected = mutable.Map.empty[String, String]
      for (_ <- 0 until 60000) {
        val key = s"k${random.nextInt(keys)}"
        if (random.nextInt(3) > 0) {
          val value = "v" * random.nextInt(60)
          table.put(hash(key), bytes(key), bytes(value))
          expected(key) = value
        } else {
          val name = bytes("  " + key)
          table.remove(hash(key), name, 2, name.length - 2)
          expected -= key
        }
      }
      val hasAll = pageCount > 20
      assert(table.isWhole == hasAll)
      val found = (0 until keys).map(i => table.get(hash(s"k$i"), bytes(s"k$i")).map(text))
      for (i <- 0 until keys; value <- if (hasAll) Some(found(i)) else found(i).map(Some(_)))
        assert(value == expected.get(s"k$i"))
      assert(found.flatten.length > (if (hasAll) 100 else 1000))
      // What was replaced takes no more than what is there, and a little.
      if (hasAll) assert(pages.usedBytes < 16 * RowPages.PageBytes + 4 * expected.size * 70L)
      val freed = table.giveBack(5)
      assert(if (keys > 1000) freed == 5 else freed < 5)
      val fewer = (0 until keys).flatMap(i => table.get(hash(s"k$i"), bytes(s"k$i")).map(i -> _))
      assert(fewer.forall { case (i, value) => expected.get(s"k$i").contains(text(value)) })
      // The page that is being filled stays.
      if (keys > 1000) assert(!table.isWhole && fewer.length < found.flatten.length)
      table.close()
      assert(pages.usedBytes == 0 && table.get(hash("k1"), bytes("k1")).isEmpty)
      table.put(hash("k1"), bytes("k1"), bytes("v"))
      assert(pages.usedBytes == 0 && !table.has(hash("k1"), bytes("k1")))
    }
  }
}
