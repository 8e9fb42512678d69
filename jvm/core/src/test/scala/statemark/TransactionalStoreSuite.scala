package statemark

import java.io.File
import org.rocksdb.{Options, PerfLevel, RocksDB}
import org.scalatest.funsuite.AnyFunSuite
import scala.collection.immutable.ArraySeq
import scala.ref.WeakReference
import scala.util.Using
import statemark.changelog.{ChangelogCommit, ChangelogWriter}
import statemark.common.{
  Fingerprint,
  IllegalCallException,
  InvalidInputException,
  Position,
  StoreUnusableException
}
import statemark.engine._
import statemark.transaction._

class TransactionalStoreSuite extends AnyFunSuite with TestStores {

  test("a transaction reads its own writes over the base, in key order") {
    val store = newStore()
    commit(store) { t =>
      Seq("a", "b", "c", "d", "e").foreach(k => t.put(bytes(k), bytes(s"base $k")))
    }: Unit
    store.confirm()
    val t = begin(store)
    t.put(bytes("b"), bytes("new b"))
    t.remove(bytes("c"))
    t.merge(bytes("d"), bytes("more"))
    t.put(bytes("f"), bytes("new f"))
    t.deleteRange(bytes("e"), bytes("f"))
    assert(rows(t) == Seq(
      "a" -> "base a",
      "b" -> "new b",
      "d" -> "base d,more",
      "f" -> "new f"
    ))
    assert(t.get(bytes("d")).map(text).contains("base d,more"))
    assert(t.get(bytes("e")).isEmpty)
    val asked = Seq("a", "c", "d", "nothing").map(bytes)
    assert(t.getAll(asked).toSeq.map(_.map(text)) ==
      Seq(Some("base a"), None, Some("base d,more"), None))
    assert(drain(t.range(Some(bytes("b")), Some(bytes("e")))).map(_._1) == Seq("b", "d"))
  }

  test("I1: one open transaction, one prepared version") {
    val store = newStore()
    val open = begin(store)
    assert(intercept[IllegalCallException](begin(store)).getMessage.contains("open"))
    open.rollback()
    commit(store)(_.put(bytes("k"), bytes("v"))): Unit
    assert(intercept[IllegalCallException](begin(store)).getMessage.contains("prepared"))
    store.confirm()
    assert(store.base.version == 1 && store.prepared.isEmpty)
    store.confirm()
    assert(store.base.version == 1)
  }

  test("a transaction that has ended holds nothing that it staged, and still says how much it was") {
    for (isCommitted <- Seq(true, false)) {
      val store = newStore(s"store $isCommitted")
      val transaction = begin(store)
      val staged = stagedIn(transaction)
      val bytes = transaction.approximateNumUncommittedBytes
      assert(bytes > 1000)
      if (isCommitted) store.commit(transaction): Unit else transaction.rollback()
      assert((1 to 20).exists { _ => System.gc(); staged.get.isEmpty })
      assert(transaction.approximateNumUncommittedBytes == bytes)
    }
  }

  test("staged, prepared and remembered bytes are those of rows, with and without a limit") {
    for (limit <- Seq(Long.MaxValue, 64L << 20)) {
      val memory = new UncommittedMemory
      val store = newStore(s"bytes $limit", limit = Some(UncommittedLimit(memory, limit)))
      def figures = (memory.staged, memory.prepared, memory.remembered)
      val first = begin(store)
      assert(first.approximateNumUncommittedBytes == 0)
      val keys = (0 until 2000).map(i => bytes(f"key $i%06d"))
      val value = new Array[Byte](90)
      keys.foreach(first.put(_, value))
      keys.foreach(first.put(_, new Array[Byte](80)))
      keys.take(500).foreach(first.merge(_, new Array[Byte](9)))
      first.remove(keys(1000))
      assert(first.approximateNumUncommittedBytes == 2000 * 90 + 500 * 10 - 80)
      assert(first.rememberedBytes == 0)
      store.commit(first): Unit
      assert(memory.staged == 0 && memory.prepared > 2000 * 90 && memory.remembered == 0)
      store.confirm()
      assert(figures == ((0, 0, 0)))
      // A deduplication of what is there already: it writes nothing.
      val second = begin(store)
      keys.foreach(second.get)
      val absent = (0 until 20000).map(i => bytes(f"new $i%06d"))
      absent.foreach(second.get)
      assert(second.approximateNumUncommittedBytes == 0 && memory.staged == 0)
      val remembered = second.rememberedBytes
      assert(remembered >= 20000 * 10)
      assert(memory.remembered > 0 && memory.remembered <= remembered)
      // What is written is not only remembered any more.
      absent.take(5000).foreach(second.put(_, value))
      assert(second.rememberedBytes == remembered - 5000 * 10)
      assert(second.approximateNumUncommittedBytes == 5000 * 100)
      assert(memory.bytes > memory.staged + memory.remembered)
      second.rollback()
      assert(figures == ((0, 0, 0)) && memory.bytes == 0)
      assert(second.approximateNumUncommittedBytes == 5000 * 100)
      store.close()
    }
  }

  test("a store has the names of KIP-892's, for its changelog's offsets and the sources'") {
    val name = "kip"
    val store = newStore(name)
    def at(offset: Int) = Position.ofPlaces(Seq(Some(s"$offset"), None))
    val own = TestStores.identity.partitionId
    assert(store.managesOffsets && store.committedOffset(own).contains(0L))
    assert(store.committedOffset(own + 1).isEmpty, "the changelog of another partition")
    assert(store.position(IsolationLevel.ReadCommitted).isEmpty)
    val t = begin(store)
    assert(store.approximateNumUncommittedBytes == 0)
    t.get(bytes("k")): Unit
    assert(store.approximateNumUncommittedBytes == 0, "a read is no write")
    t.put(bytes("k"), bytes("value"))
    assert(store.approximateNumUncommittedBytes == 6)
    store.commit(t, ChangelogOffsets(position = Some(at(7)))): Unit
    assert(store.approximateNumUncommittedBytes == 0 && store.committedOffset(own).contains(0L))
    store.confirm()
    assert(store.committedOffset(own).contains(1L))
    assert(store.position(IsolationLevel.ReadCommitted).contains(at(7)))
    assert(!store.hasBegun(1))
    val next = begin(store)
    next.put(bytes("l"), bytes("value"))
    assert(store.hasBegun(1) && !store.hasBegun(2) && store.hasBegun(0))
    val seen = store.position(IsolationLevel.ReadUncommitted)
    assert(seen.contains(at(7).copy(andMore = true)))
    next.rollback()
    assert(!store.hasBegun(1))
    // What was loaded without its offsets has them from whoever knows them, also when it is opened again.
    store.recordPosition(at(8))
    assert(store.position(IsolationLevel.ReadUncommitted).contains(at(8)))
    store.flush()
    store.close()
    val again = reopened(new File(root, name))
    try assert(again.position(IsolationLevel.ReadCommitted).contains(at(8)))
    finally again.close()
  }

  test("a store of format 4 goes on, in the format of today, and its position does not count") {
    val directory = new File(root, "older")
    val store = newStore("older")
    store.commit(begin(store), ChangelogOffsets(position = Some(Position.ofPlaces(Seq(Some("7"))))))
    store.confirm()
    store.flush()
    store.close()
    val engine = RocksEngine.reopen(directory, options)
    val asOf4 = Array[Byte](0, 0, 0, 1, 1, 0, 0, 0, 1, '7')
    engine.note(Seq(
      OffsetsColumnFamily.FormatKey -> OffsetsColumnFamily.encodeFormat(FormatVersion.V4),
      OffsetsColumnFamily.PositionKey -> asOf4
    ))
    engine.flush()
    engine.close()
    assert(ReopenedStore.inspect(directory, options).format == FormatVersion.V4)
    val again = reopened(directory)
    try {
      assert(again.base.version == 1 && again.position(IsolationLevel.ReadCommitted).isEmpty)
      again.flush()
    } finally again.close()
    val now = ReopenedStore.inspect(directory, options)
    assert(now.format == FormatVersion.current && now.state.position.isEmpty)
  }

  private def stagedIn(transaction: Transaction) = {
    val value = new Array[Byte](1000)
    transaction.put(bytes("k"), value)
    new WeakReference(value)
  }

  test("I2: rows and offsets of a reopened store are of the same version") {
    val store = newStore()
    for (v <- 1 to 3) {
      commit(store)(_.put(bytes("version"), bytes(v.toString))): Unit
      store.confirm()
    }
    store.flush()
    store.close()
    val found = ReopenedStore.inspect(new File(root, "store"), options)
    assert(found.identity == TestStores.identity)
    assert(found.state.version == 3 && found.state.counts == RowCounts(1, 0))
  }

  test("a fingerprint goes with its version from the commit to the disk, whoever flushes") {
    def seen(n: Int) = Fingerprint(7, ArraySeq.fill(n)(n.toByte))
    def write(store: TransactionalStore, n: Int) = {
      val transaction = store.newTransaction(() => new FingerprintedChangelog(seen(n)))
      transaction.put(bytes("k"), bytes(n.toString))
      store.commit(transaction): Unit
    }
    val store = newStore()
    // What is on disk now, which compactions change as long as the store is open.
    def onDisk: StoreState = {
      val copy = new File(root, s"copy-${root.list().length}")
      assert(store.copyTo(copy) && store.flushed == store.base.version)
      ReopenedStore.inspect(copy, options).state
    }
    write(store, 1)
    assert(store.prepared.flatMap(_.state.fingerprint).contains(seen(1)))
    store.confirm()
    write(store, 2)
    // Version 2 is prepared only: what is on disk tells of version 1.
    assert(onDisk.version == 1 && onDisk.fingerprint.contains(seen(1)))
    store.confirm()
    assert(onDisk.version == 2 && onDisk.fingerprint.contains(seen(2)))
    store.replay(None) { t => t.put(bytes("k"), bytes("3")); Some(seen(3)) }
    assert(onDisk.version == 3 && onDisk.fingerprint.contains(seen(3)))
    // Nobody tells what brought version 4; what is said of version 3 is not said of it.
    commit(store)(_.put(bytes("k"), bytes("4"))): Unit
    store.confirm()
    assert(onDisk.version == 4 && onDisk.fingerprint.isEmpty)
    store.close()
  }

  test("I3: a changelog that cannot be made durable leaves nothing prepared") {
    val store = newStore()
    val failing = new FailingChangelog
    val t = store.newTransaction(() => failing)
    t.put(bytes("k"), bytes("v"))
    intercept[java.io.IOException](store.commit(t))
    assert(store.prepared.isEmpty && t.isOpen)
    t.rollback()
    assert(failing.aborts == 1)
    assert(baseRows(store).isEmpty)
  }

  test("I2: an error between two pieces of a version leaves a store that is used no more") {
    for (isError <- Seq(true, false)) withClue(s"an error: $isError: ") {
      var parts = 0
      val store = newStore(
        name = s"store-$isError",
        observer = { phase =>
          if (phase == CommitPhase.PartApplied) {
            parts += 1
            if (parts == 2) throw (if (isError) new OutOfMemoryError("test")
                                   else new IllegalStateException("test"))
          }
        }
      )
      commit(store)(_.put(bytes("k"), bytes("1"))): Unit
      store.confirm()
      val view = store.readOnly(IsolationLevel.ReadCommitted)
      val large = "x" * 100000
      commit(store) { t =>
        t.merge(bytes("k"), bytes("2"))
        (0 until 20).foreach(i => t.put(bytes(s"l$i"), bytes(large)))
      }: Unit
      if (isError) intercept[OutOfMemoryError](store.confirm())
      else intercept[StoreUnusableException](store.confirm())
      assert(parts == 2 && store.isDamaged)
      // Neither version is there whole, and to write the second again would merge twice.
      for (call <- Seq(() => store.confirm(), () => { store.dropPrepared(); begin(store) })) {
        val e = intercept[StoreUnusableException](call(): Unit)
        assert(e.getMessage.contains("version 2"))
      }
      assert(store.snapshot(store.base.at, new File(root, "image")).isEmpty)
      assert(!store.copyTo(new File(root, "copy")))
      assert(view.get(bytes("k")).map(text).contains("1"))
      view.close()
    }
  }

  test("I4: rollback and dropped versions leave the base store byte-identical") {
    val store = newStore()
    commit(store)(_.put(bytes("k"), bytes("v"))): Unit
    store.confirm()
    store.flush()
    val before = TestStores.contents(new File(root, "store"))
    val t = begin(store)
    (1 to 1000).foreach(i => t.put(bytes(s"k$i"), bytes("x")))
    t.deleteRange(bytes("a"), bytes("z"))
    t.rollback()
    t.rollback()
    commit(store)(_.remove(bytes("k"))): Unit
    assert(store.dropPrepared() && !store.dropPrepared())
    assert(TestStores.contents(new File(root, "store")) == before)
    assert(baseRows(store) == Seq("k" -> "v"))
  }

  test("I7: a scan is blind to later writes of its transaction") {
    val store = newStore()
    commit(store)(t => Seq("a", "b").foreach(k => t.put(bytes(k), bytes("0")))): Unit
    store.confirm()
    val t = begin(store)
    t.put(bytes("c"), bytes("1"))
    val scan = t.range(None, None)
    assert(scan.next())
    t.remove(bytes("b"))
    t.put(bytes("c"), bytes("2"))
    t.put(bytes("d"), bytes("2"))
    t.deleteRange(bytes("a"), bytes("z"))
    assert(("a" -> text(scan.value)) +: drain(scan) == Seq("a" -> "0", "b" -> "0", "c" -> "1"))
    assert(rows(t).isEmpty)
  }

  test("a scan that was closed says so, one that is at its end stays there") {
    val store = newStore()
    commit(store)(_.put(bytes("k"), bytes("v"))): Unit
    store.confirm()
    val t = begin(store)
    val ended = t.range(None, None)
    assert(ended.next() && !ended.next() && !ended.next())
    val closed = t.range(None, None)
    closed.close()
    closed.close()
    assert(intercept[IllegalCallException](closed.next()).getMessage.contains("closed"))
    val orphan = t.range(None, None)
    t.rollback()
    assert(intercept[IllegalCallException](orphan.next()).getMessage.contains("rolled back"))
    intercept[IllegalCallException](t.get(bytes("k")))
  }

  test("rows are counted without a read for each write") {
    val store = newStore()
    commit(store)(t => (0 until 100).foreach(i => t.put(bytes(f"k$i%03d"), bytes("v")))): Unit
    assert(store.prepared.get.state.counts == RowCounts(100, 0))
    store.confirm()
    val next = commit(store) { t =>
      t.put(bytes("k000"), bytes("again"))
      t.put(bytes("new"), bytes("v"))
      t.remove(bytes("k001"))
      t.remove(bytes("never there"))
      t.get(bytes("k002")): Unit
      t.remove(bytes("k002"))
      t.get(bytes("new too")): Unit
      t.merge(bytes("new too"), bytes("m"))
      t.deleteRange(bytes("k010"), bytes("k020"))
      t.put(bytes("k015"), bytes("back"))
      t.put(bytes("k016"), bytes("back"))
      t.remove(bytes("k016"))
    }
    store.confirm()
    assert(next.state.counts.keys == baseRows(store).size)
    assert(next.state.counts == RowCounts(100 + 1 - 1 - 1 + 1 - 10 + 1, 0))
  }

  test("keys that were written before are counted without a read") {
    import org.rocksdb.TickerType.{
      NUMBER_DB_NEXT,
      NUMBER_DB_SEEK,
      NUMBER_KEYS_READ,
      NUMBER_MULTIGET_KEYS_READ
    }
    val store = newStore()
    def reads = Seq(NUMBER_DB_NEXT, NUMBER_DB_SEEK, NUMBER_KEYS_READ, NUMBER_MULTIGET_KEYS_READ)
      .map(store.count).sum
    def version(keys: Range, removes: Range = 0 until 0): Long = {
      val next = commit(store) { t =>
        keys.foreach(i => t.put(bytes(f"k$i%03d"), bytes("v")))
        removes.foreach(i => t.remove(bytes(f"k$i%03d")))
      }
      store.confirm()
      next.state.counts.keys
    }
    assert(version(0 until 100) == 100)
    val before = reads
    assert(version(0 until 50, removes = 50 until 100) == 50)
    assert(version(0 until 75, removes = 75 until 100) == 75)
    assert(reads == before)
    // Of these, 60 to 74 were not in the version before.
    assert(version(0 until 60) == 75)
    assert(version(50 until 75, removes = 0 until 10) == 65)
    assert(reads == before)
  }

  test("rows of internal column families are counted apart") {
    val store = newStore(usesFamilies = true)
    def in(family: Short, k: String) = RocksEngine.familyPrefix(family) ++ bytes(k)
    commit(store) { t =>
      val user = t.createColumnFamily("user", isInternal = false)
      val index = t.createColumnFamily("$index", isInternal = true)
      assert((user, index) == ((1: Short, 2: Short)))
      Seq("a", "b", "c").foreach(k => t.put(in(user, k), bytes("v")))
      Seq("x", "y").foreach(k => t.put(in(index, k), bytes("v")))
    }: Unit
    store.confirm()
    assert(store.base.counts == RowCounts(3, 2))
    val t = begin(store)
    assert(t.dropColumnFamily("$index") && !t.dropColumnFamily("$index"))
    assert(t.createColumnFamily("third", isInternal = false) == 3)
    store.commit(t): Unit
    assert(store.prepared.get.state.counts == RowCounts(3, 0))
  }

  test("column families of an aborted transaction are gone, their ids are given again") {
    val store = newStore(usesFamilies = true)
    val t = begin(store)
    assert(t.createColumnFamily("first", isInternal = false) == 1)
    t.rollback()
    val again = begin(store)
    assert(again.families.byName.isEmpty)
    assert(again.createColumnFamily("other", isInternal = false) == 1)
  }

  test("a snapshot of base or prepared opens as a plain RocksDB with every row") {
    val store = newStore()
    commit(store)(t => (0 until 500).foreach(i => t.put(bytes(f"k$i%03d"), bytes("v")))): Unit
    store.confirm()
    commit(store) { t =>
      t.remove(bytes("k000"))
      t.merge(bytes("k001"), bytes("m"))
    }: Unit
    val base = new File(root, "base")
    val prepared = new File(root, "prepared")
    val (baseState, baseLinked) = store.snapshot(VersionId(1, None), base).get
    val (preparedState, linked) = store.snapshot(VersionId(2, None), prepared).get
    assert(baseState.version == 1 && preparedState.version == 2)
    assert(TestStores.plainRows(base) == (0 until 500).map(i => f"k$i%03d" -> "v"))
    assert(TestStores.plainRows(prepared) ==
      ("k001" -> "v,m") +: (2 until 500).map(i => f"k$i%03d" -> "v"))
    assert(store.snapshot(VersionId(7, None), new File(root, "none")).isEmpty)
    for (dir <- Seq(base, prepared)) {
      val odd = dir.list.filterNot(n =>
        n.endsWith(".sst") || n == "CURRENT" || n.startsWith("MANIFEST-")
      )
      assert(odd.isEmpty, odd.mkString(" "))
    }
    // What was born in the copy has a name that the base may give to another file.
    val all = prepared.list.filter(_.endsWith(".sst")).toSet
    assert(baseLinked.nonEmpty && linked == baseLinked && (all -- linked).size == 1)
    // The base is still where it was.
    assert(store.base.version == 1 && store.dropPrepared())
    assert(baseRows(store).head == "k000" -> "v")
  }

  test("a snapshot shortens the lineage, and only of versions that build on it") {
    val store = newStore()
    for (v <- 1 to 4) {
      val t = begin(store)
      store.commit(t, ChangelogOffsets(Some(s"id$v"))): Unit
      store.confirm()
    }
    val t = begin(store)
    store.commit(t, ChangelogOffsets(Some("id5"))): Unit
    store.markSnapshot(VersionId(3, Some("id3")))
    assert(store.base.lineage.map(_.version) == Seq(3, 4))
    assert(store.prepared.get.state.lineage.map(_.version) == Seq(3, 4, 5))
    store.markSnapshot(VersionId(5, Some("id5")))
    assert(store.prepared.get.state.lineage.map(_.version) == Seq(5))
    assert(store.base.lastSnapshot.version == 3)
    assert(store.dropPrepared() && store.base.lineage.map(_.version) == Seq(3, 4))
  }

  test("phases of commit and confirm pass in the order of the list") {
    var passed = Seq.empty[CommitPhase]
    val observer: CommitObserver = phase => passed = passed :+ phase
    val store = newStore(observer = observer)
    val t = begin(store)
    store.commit(t, uploadSnapshot = Some(_ => ())): Unit
    store.confirm()
    // The report is the caller's.
    assert(passed == CommitPhase.all.filterNot(_ == CommitPhase.CommitReported))
  }

  test("RocksDB counts nothing for the thread that begins a transaction") {
    Using.resources(new Options().setCreateIfMissing(true), newStore()) { (options, store) =>
      Using.resource(RocksDB.open(options, new File(root, "counts").getPath)) { db =>
        db.setPerfLevel(PerfLevel.ENABLE_COUNT)
        begin(store).rollback()
        assert(db.getPerfLevel == PerfLevel.DISABLE)
      }
    }
  }

  test("an isolation level is found by its name in either case") {
    assert(IsolationLevel.of("read_committed") == IsolationLevel.ReadCommitted)
    assert(IsolationLevel.of("READ_UNCOMMITTED") == IsolationLevel.ReadUncommitted)
    val message = intercept[InvalidInputException](IsolationLevel.of("serializable")).getMessage
    assert(message.contains("serializable") && message.contains("READ_COMMITTED"))
  }

  private final class FingerprintedChangelog(seen: Fingerprint) extends ChangelogWriter {
    override def put(key: Array[Byte], value: Array[Byte]): Unit = ()
    override def delete(key: Array[Byte]): Unit = ()
    override def merge(key: Array[Byte], operand: Array[Byte]): Unit = ()
    override def deleteRange(begin: Array[Byte], end: Array[Byte]): Unit = ()
    override def commit(): ChangelogCommit = ChangelogCommit(Some(seen), 0)
    override def abort(): Unit = ()
  }

  private final class FailingChangelog extends ChangelogWriter {
    var aborts = 0
    override def put(key: Array[Byte], value: Array[Byte]): Unit = ()
    override def delete(key: Array[Byte]): Unit = ()
    override def merge(key: Array[Byte], operand: Array[Byte]): Unit = ()
    override def deleteRange(begin: Array[Byte], end: Array[Byte]): Unit = ()
    override def commit(): ChangelogCommit = throw new java.io.IOException("disk full")
    override def abort(): Unit = aborts += 1
  }
}
