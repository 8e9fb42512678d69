package statemark.transaction

import java.io.File
import java.util.{TreeMap => JTreeMap}
import org.scalatest.funsuite.AnyFunSuite
import scala.collection.mutable
import scala.jdk.CollectionConverters._
import scala.util.Random
import statemark.TestStores
import statemark.common.{Bytes, KeyHash}
import statemark.engine._
import statemark.staging.PagedTable

/** Rows that are kept on the heap are those of the base, whatever was written, read, and dropped. */
class RowCacheSuite extends AnyFunSuite with TestStores {
  private val delimiter = bytes(",")

  /** A base in a map, which counts what it is asked. */
  private final class Base extends BaseRows {
    val rows = new JTreeMap[Array[Byte], Array[Byte]](Bytes.order)
    var asked = 0
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
      val found = rows.subMap(begin.get, true, end.get, false).entrySet.iterator
      new RowCursor {
        private var current = found.asScala.nextOption()
        override def keyOrEnd(): Option[Array[Byte]] = current.map(_.getKey)
        override def value: Array[Byte] = current.get.getValue
        override def next(): Unit = current = found.asScala.nextOption()
        override def close(): Unit = ()
      }
    }
    override def rest(): Unit = ()
  }

  private sealed trait Change
  private case class Put(value: Array[Byte]) extends Change
  private case class Merge(operand: Array[Byte]) extends Change
  private case object Delete extends Change

  /** Writes one version to the base, and tells the cache. */
  private def write(base: Base, cache: RowCache, changes: Map[String, Change]): Unit = {
    val sorted = changes.toSeq.map { case (k, change) => (bytes(k), change) }
      .sortBy(_._1)(Bytes.order)
    val batch = HeapBatch.of() { out =>
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
      memory: UncommittedMemory#Member,
      isEmpty: Boolean
  ): Unit = {
    val random = new Random(seed)
    val base = new Base
    if (!isEmpty) (0 until 300).foreach(i => base.rows.put(bytes(s"key $i"), bytes("old")))
    val cache = new RowCache(base, delimiter, memory, isEmpty)
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
      if (random.nextInt(30) == 0) cache.forget()
      write(
        base,
        cache,
        Seq.fill(random.nextInt(150))(key()).map { k =>
          k -> (random.nextInt(4) match {
            case 0 => Delete
            case 1 if text(bytes(k)).length < 1000 => Merge(bytes("m"))
            case _ => Put(value())
          })
        }.toMap
      )
    }
  }

  test("it has what the base has: random reads, puts, merges, deletes, and drops") {
    for (seed <- 1 to 2; isEmpty <- Seq(true, false)) check(seed.toLong, roomy, isEmpty)
  }

  test("it has what the base has where memory is short") {
    for (seed <- 5 to 6; isEmpty <- Seq(true, false); limit <- Seq(64L << 10, 1L << 20)) {
      val memory = new UncommittedMemory
      val member = memory.join(limit, idle)
      check(seed.toLong, member, isEmpty)
      assert(memory.keptBytes <= limit / 2)
      member.close()
      assert(memory.keptBytes == 0)
    }
  }

  private def roomy = new UncommittedMemory().join(1L << 30, idle)

  private val idle = new UncommittedMemory.Store {
    override def forget(): Unit = ()
    override def spillPrepared(): Unit = ()
  }

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
    cache.forget()
    assert(cache.get(bytes("key 7")).isDefined && base.asked == 1)
    write(base, cache, puts(0 until 10))
    (0 until 10).foreach(i => cache.get(bytes(s"key $i")))
    assert(base.asked == 1)
    assert(cache.get(bytes("key 900")).isDefined && cache.get(bytes("key 900")).isDefined)
    assert(cache.get(bytes("no key")).isEmpty && base.asked == 3)
  }

  test("where it is full, rows that were used last stay") {
    val base = new Base
    val memory = new UncommittedMemory
    val cache = new RowCache(base, delimiter, memory.join(1L << 20, idle), isEmpty = true)
    for (version <- 0 until 100) {
      write(base, cache, puts(version * 100 until (version + 1) * 100, "v" * 100))
      (0 until 100).foreach(i => cache.get(bytes(s"key $i")))
    }
    assert(base.asked == 0 && memory.keptBytes > 200000)
    cache.get(bytes("key 200"))
    assert(base.asked == 1, "these are not there any more")
  }

  test("a version larger than the share leaves its last rows, and no more than the share") {
    val base = new Base
    val memory = new UncommittedMemory
    val others = Seq.fill(3)(memory.join(4L << 20, idle))
    val member = memory.join(4L << 20, idle)
    val cache = new RowCache(base, delimiter, member, isEmpty = true)
    write(base, cache, puts(0 until 40000, "v" * 50))
    assert(memory.keptBytes > 0 && memory.keptBytes <= member.share + (512L << 10))
    val asked = base.asked
    assert(cache.get(bytes("key 9999")).isDefined && base.asked == asked, "the last in key order")
    // Where the memory is used, nothing stays.
    others.head.holdsOpen(4L << 20): Unit
    write(base, cache, puts(0 until 40000, "v" * 51))
    assert(memory.keptBytes == 0)
    assert((0 until 40000 by 97).forall(i => cache.get(bytes(s"key $i")).isDefined))
    write(base, cache, puts(0 until 10, "w"))
    assert(cache.get(bytes("key 7")).map(text).contains("w"))
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
    val memory = new UncommittedMemory
    val cache =
      new RowCache(base, delimiter, memory.join(8L << 20, idle), isEmpty = false)
    def version(write: Range, read: Range): Boolean = {
      read.foreach(i => cache.get(bytes(s"key $i")))
      this.write(base, cache, puts(write))
      memory.keptBytes > 0
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
        assert(base.asked == asked || expected.length > 15, "it is remembered")
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
    // One that is left before its end tells nothing, nor does one behind which another began.
    write(base, cache, puts(0 until 9))
    def open(prefix: String) = cache.scan(Some(bytes(prefix)), Bytes.prefixEnd(bytes(prefix)))
    open("key").close()
    assert(rowsOf("key").length >= 9)
    val (first, second) = (open("a"), open("b"))
    for (scan <- Seq(second, first)) while (scan.keyOrEnd().isDefined) scan.next()
    val asked = base.asked
    assert(rowsOf("b").nonEmpty && base.asked == asked)
    assert(rowsOf("a").nonEmpty && base.asked == asked + 1)
  }

  test("the table: as a map, with few tags to search by, and with what grows and shrinks") {
    for (seed <- 1 to 3) {
      val random = new Random(seed.toLong)
      var table = new RowTable
      val expected = mutable.Map.empty[String, String]
      // Hashes that collide in every part that is looked at.
      def hash(key: String): Long = {
        val full = KeyHash.of(bytes(key))
        if (seed == 1) full else (full & 0x0700000000000003L)
      }
      for (step <- 0 until 20000) {
        val key = s"k${random.nextInt(if (seed == 1) 3000 else 200)}"
        if (random.nextInt(3) > 0) {
          val value = "v" * random.nextInt(60)
          val (k, v) = (bytes(key), bytes(value))
          assert(table.put(hash(key), k, 0, k.length, v, 0, v.length))
          expected(key) = value
        } else {
          val name = bytes("  " + key)
          table.remove(hash(key), name, 2, name.length - 2)
          expected -= key
        }
        if (step % 5000 == 4999) table = table.compacted()
      }
      assert(expected.size > 100)
      for (i <- 0 until 3000) {
        val place = table.find(hash(s"k$i"), bytes(s"k$i"))
        val found = Option.when(place != PagedTable.NoEntry)(text(table.value(place)))
        assert(found == expected.get(s"k$i"))
      }
    }
  }
}
