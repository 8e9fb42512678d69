package statemark

import java.nio.file.Files
import java.util.UUID
import java.util.concurrent.atomic.{AtomicBoolean, AtomicLong}
import org.scalatest.funsuite.AnyFunSuite
import scala.collection.immutable.TreeMap
import scala.concurrent.{Await, Future}
import scala.concurrent.ExecutionContext.Implicits.global
import scala.concurrent.duration.Duration
import scala.util.Random
import statemark.common.{Clock, ViewClosedException}
import statemark.engine.VersionId
import statemark.transaction.Transaction

/** Views of a store beside its owner, against a sorted map. */
class ReadViewSuite extends AnyFunSuite with TestStores {
  private type Rows = TreeMap[String, String]

  private val clock = new SetClock

  private final class SetClock extends Clock {
    var now = 0L
    override def nanos(): Long = now
    override def epochMs(): Long = now / 1000000
  }

  private def at(version: Long) = VersionId(version, None)

  /** A store that has been read. */
  private def keeping(versions: Int, ms: Long) = {
    val store = newStore(retention = ReadRetention(versions, ms, clock))
    store.readOnly(IsolationLevel.ReadCommitted).close()
    store
  }

  private def put(version: Int)(t: Transaction): Unit = t.put(bytes("k"), bytes(s"v$version"))

  /** Commits and confirms a version in which `k` is `v<version>`. */
  private def advance(store: TransactionalStore, version: Int): Unit = {
    clock.now += 1
    store.confirm()
    commit(store)(put(version)): Unit
  }

  private def planned(store: TransactionalStore, version: Long): UUID = {
    val read = UUID.randomUUID()
    store.readers.planned(read, version)
    read
  }

  private def read(view: ReadView): Option[String] =
    try view.get(bytes("k")).map(text)
    finally view.close()

  private def at(store: TransactionalStore, version: Long): Option[String] =
    store.readAt(at(version)).flatMap(read)

  test("what each level sees of an open, a prepared, a dropped and a confirmed version") {
    val store = newStore()
    def seen = IsolationLevel.all.map(level => read(store.readOnly(level)))
    val transaction = begin(store)
    assert(seen == Seq(None, None))
    put(1)(transaction)
    assert(seen == Seq(None, Some("v1")))
    store.commit(transaction): Unit
    assert(seen == Seq(None, Some("v1")))
    store.dropPrepared(): Unit
    assert(seen == Seq(None, None))
    commit(store)(put(1)): Unit
    store.confirm()
    assert(seen == Seq(Some("v1"), Some("v1")))
    val aborted = begin(store)
    put(2)(aborted)
    val dirty = store.readOnly(IsolationLevel.ReadUncommitted)
    aborted.rollback()
    assert(seen == Seq(Some("v1"), Some("v1")))
    // It was opened on what was staged then: the anomaly that this level allows.
    assert(read(dirty).contains("v2"))
  }

  test("families that a transaction has created are those that its readers ask for by name") {
    val store = newStore(usesFamilies = true)
    val owner = begin(store)
    def created(name: String) = owner.createColumnFamily(name, isInternal = false)
    def seen(level: IsolationLevel) = {
      val view = store.readOnly(level)
      try view.families.byName.map { case (name, family) => name -> family.id }
      finally view.close()
    }
    val families = Seq("b", "a").map(name => name -> created(name)).toMap
    assert(seen(IsolationLevel.ReadUncommitted) == families)
    assert(seen(IsolationLevel.ReadCommitted).isEmpty)
    store.commit(owner): Unit
    assert(seen(IsolationLevel.ReadUncommitted) == families)
    store.confirm()
    assert(seen(IsolationLevel.ReadCommitted) == families)
  }

  test("a version is the base, the prepared one, or one that was left a short time ago") {
    val store = keeping(versions = 3, ms = 0)
    (1 to 6).foreach(advance(store, _))
    // Version 6 is prepared, 5 the base, and 4, 3 and 2 were left.
    assert((0 to 7).map(v => at(store, v.toLong)) ==
      Seq(None, None, Some("v2"), Some("v3"), Some("v4"), Some("v5"), Some("v6"), None))
    assert(store.readAt(VersionId(4, Some("another"))).isEmpty)
  }

  test("versions are kept while there are readers") {
    val store = newStore(retention = ReadRetention(versions = 3, ms = 0, clock))
    (1 to 6).foreach(advance(store, _))
    def there(versions: Range) = versions.filter(v => at(store, v.toLong).isDefined)
    assert(there(1 to 6) == Seq(5, 6))
    (7 to 9).foreach(advance(store, _))
    assert(there(1 to 9) == Seq(5, 6, 7, 8, 9))
    clock.now += ReadRetention.ReadersStayNanos
    advance(store, 10)
    assert(there(1 to 10) == Seq(9, 10))
    clock.now += ReadRetention.ReadersStayNanos
    planned(store, 9): Unit
    (11 to 12).foreach(advance(store, _))
    assert(there(1 to 12) == Seq(9, 10, 11, 12))
  }

  test("versions that reads were pinned to are kept for a time, and no others") {
    val store = keeping(versions = 1, ms = 30000)
    (1 to 4).foreach(advance(store, _))
    Seq(3L, 4L).foreach(planned(store, _)) // the base, and the prepared version
    (5 to 9).foreach(advance(store, _))
    def there = (1 to 9).filter(v => at(store, v.toLong).isDefined)
    assert(there == Seq(3, 4, 7, 8, 9))
    clock.now += 20L * 1000 * 1000 * 1000
    planned(store, 4): Unit
    clock.now += 20L * 1000 * 1000 * 1000
    advance(store, 10)
    assert(there.filter(_ < 7) == Seq(4))
    clock.now += 20L * 1000 * 1000 * 1000
    advance(store, 11)
    assert(!there.exists(_ < 9))
  }

  test(
    "of reads that have come and gone the versions of the last two are kept; of those that spare it, none"
  ) {
    val store = keeping(versions = 1, ms = 30000)
    def there = (1 to 12).filter(v => at(store, v.toLong).isDefined)
    (1 to 2).foreach(advance(store, _))
    val reads = (3 to 8).map { version =>
      advance(store, version)
      planned(store, version.toLong)
    }
    val shared = planned(store, 4)
    reads.take(4).foreach(store.readers.ended) // 3 to 6
    store.readers.ended(reads(2)) // 5 was read again
    store.readers.spared(reads(4)) // 7
    store.readers.ended(UUID.randomUUID()) // which nobody has planned
    (9 to 12).foreach(advance(store, _))
    assert(there == Seq(4, 5, 6, 8, 10, 11, 12))
    store.readers.spared(shared)
    clock.now += 31L * 1000 * 1000 * 1000
    advance(store, 13)
    assert(!there.exists(_ < 11))
  }

  test("planned reads of a store that does not advance are forgotten when their time is over") {
    val store = keeping(versions = 1, ms = 30000)
    for (_ <- 1 to 1000) {
      planned(store, 0): Unit
      clock.now += 1000L * 1000 * 1000
    }
    assert(store.readers.pendingReads == 31, "one a second, for 30 seconds")
    advance(store, 1)
    advance(store, 2)
    val kept = store.readAt(at(0))
    assert(kept.isDefined, "what the newest of them are pinned to")
    kept.foreach(_.close())
  }

  test("a view stays what it was while the store goes on") {
    val store = keeping(versions = 1, ms = 0)
    advance(store, 1)
    val prepared = store.readAt(at(1)).get
    advance(store, 2)
    val left = store.readAt(at(1)).get
    val scan = prepared.range(None, None)
    (3 to 6).foreach(advance(store, _))
    store.compact()
    assert(store.readAt(at(1)).isEmpty)
    assert(drain(scan) == Seq("k" -> "v1"))
    assert(read(prepared).contains("v1") && read(left).contains("v1"))
  }

  test("a view that is closed twice takes nothing from others") {
    val store = keeping(versions = 3, ms = 0)
    (1 to 4).foreach(advance(store, _))
    for (version <- 2L to 4L) {
      val view = store.readAt(at(version)).get
      val other = store.readAt(at(version)).get
      (1 to 3).foreach(_ => view.close())
      assert(at(store, version).contains(s"v$version"))
      assert(read(other).contains(s"v$version"))
    }
  }

  test("the newest version is found while the owner leaves one after the other and keeps none") {
    val store = newStore()
    val isDone = new AtomicBoolean
    val seen = new AtomicLong
    val reader = Future {
      while (!isDone.get) {
        val view = store.readOnly(IsolationLevel.ReadCommitted)
        val row = view.get(bytes("k")).map(text)
        assert(row == Option.when(view.state.version > 0)(s"v${view.state.version}"))
        view.close()
        seen.set(view.state.version)
      }
    }
    var version = 0
    // The reader has seen versions come and go, and not only the first and the last.
    while (version < 3000 || (seen.get == 0 && !reader.isCompleted)) {
      version += 1
      advance(store, version)
    }
    isDone.set(true)
    Await.result(reader, Duration.Inf)
  }

  test("a store that is closed ends its views by name, in the middle of a scan as well") {
    val store = keeping(versions = 3, ms = 0)
    (1 to 3).foreach(advance(store, _))
    val views = Seq(1L, 2L, 3L).map(v => store.readAt(at(v)).get)
    val scans = views.map(_.range(None, None))
    store.close()
    // The prepared version is in memory; what lies under it is not.
    views.foreach(view => intercept[ViewClosedException](view.get(bytes("other"))))
    views.foreach(view => intercept[ViewClosedException](view.range(None, None)))
    scans.foreach(scan => intercept[ViewClosedException](while (scan.next()) ()))
    intercept[ViewClosedException](store.readOnly(IsolationLevel.ReadCommitted))
    scans.foreach(_.close())
    views.foreach(_.close())
  }

  test("views of all kinds read as a sorted map does") {
    val store = keeping(versions = 2, ms = 0)
    val random = new Random(6)
    var versions = Map(0L -> TreeMap.empty[String, String])
    for (v <- 1L to 60L) {
      store.confirm()
      val transaction = begin(store)
      var rows = versions(v - 1)
      for (_ <- 0 until random.nextInt(40)) rows = step(transaction, rows, random)
      val open = store.readOnly(IsolationLevel.ReadUncommitted)
      check(open, rows, random)
      open.close()
      store.commit(transaction): Unit
      versions += v -> rows
      for (older <- math.max(v - 3, 0) to v) {
        val view = store.readAt(at(older)).getOrElse(fail(s"version $older is not there at $v"))
        check(view, versions(older), random)
        assert(view.state.version == older)
        view.close()
      }
    }
  }

  test("a long scan has every row once, whatever their size") {
    val store = newStore()
    val rows = (0 until 1000).map(i => f"k$i%04d" -> "v" * (if (i % 100 == 7) 100000 else i % 50))
    commit(store)(t => rows.foreach { case (k, v) => t.put(bytes(k), bytes(v)) }): Unit
    store.confirm()
    val view = store.readOnly(IsolationLevel.ReadCommitted)
    try {
      assert(drain(view.range(None, None)) == rows)
      assert(drain(view.range(Some(bytes("k0100")), Some(bytes("k0900")))) == rows.slice(100, 900))
    } finally view.close()
  }

  test("the end of a view closes scans that its reader has left open") {
    val store = newStore()
    commit(store)(t => (0 until 300).foreach(i => t.put(bytes(f"k$i%03d"), bytes("v")))): Unit
    store.confirm()
    begin(store).put(bytes("l"), bytes("v"))
    for (level <- IsolationLevel.all) {
      val view = store.readOnly(level)
      val left = view.range(None, None)
      assert(left.next())
      view.close()
      intercept[statemark.common.IllegalCallException](left.next())
      intercept[statemark.common.IllegalCallException](view.range(None, None).next())
    }
  }

  test("a batch in several segments reads as one") {
    val store = newStore()
    val value = "x" * 100
    val expected = (0 until 1000).map(i => f"k$i%04d" -> value)
    val transaction = begin(store)
    Random.shuffle(expected).foreach { case (k, v) => transaction.put(bytes(k), bytes(v)) }
    store.commit(transaction): Unit
    val whole = store.prepared.get.batch.segments(1 << 20).toVector
      .map(bytes => engine.BatchSegment(bytes, bytes.length))
    val split = engine.BatchWriter.collect(segmentBytes = 5000) { writer =>
      expected.foreach { case (k, v) => writer.put(bytes(k), bytes(v)) }
    }
    assert(split.length > 10 && whole.length == 1)
    for (segments <- Seq(whole, split)) {
      val reader = new engine.BatchReader(segments)
      assert((0 until reader.length).map(i => text(reader.key(i))) == expected.map(_._1))
      for (i <- 0 until 1000 by 7) assert(reader.find(bytes(f"k$i%04d")).contains(i))
      assert(reader.find(bytes("k00005")).isEmpty && reader.firstFrom(bytes("z")) == 1000)
    }
    assert(Files.exists(root.toPath))
  }

  private def step(t: Transaction, rows: Rows, random: Random): Rows = {
    def key() = f"k${random.nextInt(30)}%02d"
    val (k, v) = (key(), random.nextInt(1000).toString)
    random.nextInt(10) match {
      case 0 | 1 =>
        t.remove(bytes(k))
        rows - k
      case 2 =>
        val (from, to) = ordered(k, key())
        t.deleteRange(bytes(from), bytes(to))
        rows.filterNot { case (r, _) => r >= from && r < to }
      case 3 | 4 =>
        t.merge(bytes(k), bytes(v))
        rows.updated(k, rows.get(k).fold(v)(old => s"$old,$v"))
      case _ =>
        t.put(bytes(k), bytes(v))
        rows.updated(k, v)
    }
  }

  private def ordered(a: String, b: String) = if (a < b) (a, b) else (b, a)

  private def check(view: ReadView, rows: Rows, random: Random): Unit = {
    assert(drain(view.range(None, None)) == rows.toSeq)
    val (from, to) = ordered(f"k${random.nextInt(30)}%02d", f"k${random.nextInt(30)}%02d")
    assert(drain(view.range(Some(bytes(from)), Some(bytes(to)))) == rows.range(from, to).toSeq)
    assert(drain(view.prefix(bytes("k1"))) == rows.filter(_._1.startsWith("k1")).toSeq)
    for (i <- 0 until 30) assert(view.get(bytes(f"k$i%02d")).map(text) == rows.get(f"k$i%02d"))
  }
}
