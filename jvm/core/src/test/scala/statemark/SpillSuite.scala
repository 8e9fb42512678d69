package statemark

import java.io.File
import java.nio.file.Files
import org.rocksdb.{Transaction => _, _}
import org.scalatest.funsuite.AnyFunSuite
import scala.collection.immutable.SortedMap
import scala.collection.mutable
import scala.io.Source
import scala.jdk.CollectionConverters._
import scala.util.Random
import statemark.common._
import statemark.engine._
import statemark.transaction._

/** Goal: a batch that memory has no room for is the same batch (I8): reads, scans, merges, range deletes and row
  * counts see what is spilled and what is not alike, a crash keeps all of it or nothing. Method: random histories
  * against a sorted map, and processes that "die" at named moments: their files are copied.
  */
class SpillSuite extends AnyFunSuite with TestStores {
  private val Histories = 30
  private val Steps = 250

  private def limited(bytes: Long) = Some(UncommittedLimit(new UncommittedMemory, bytes))

  for (limit <- Seq(1024L, 4096L))
    test(s"random histories under a limit of $limit bytes agree with a sorted map") {
      var spills = 0L
      for (seed <- 1 to Histories) withClue(s"seed $seed: ") {
        val memory = new UncommittedMemory
        val store = newStore(s"s$limit-$seed", limit = Some(UncommittedLimit(memory, limit)))
        new History(store, new Random(seed)).run()
        spills += memory.spills
        store.close()
        assert(memory.bytes == 0 && memory.limit.isEmpty)
        assert(staged(s"s$limit-$seed").isEmpty, "files are left")
      }
      assert(spills > Histories)
    }

  /** Batches on one store and what they make of a map. */
  private final class History(store: TransactionalStore, random: Random) {
    private var committed = SortedMap.empty[String, String]

    def run(): Unit = for (batch <- 1 to 4) {
      val rewinds = random.nextInt(4) == 0
      val (transaction, next) = staged()
      if (random.nextInt(4) == 0) transaction.rollback()
      else {
        store.commit(transaction)
        if (rewinds) assert(store.dropPrepared())
        else {
          seen(store.readOnly(IsolationLevel.ReadUncommitted), next)
          seen(store.readOnly(IsolationLevel.ReadCommitted), committed)
          store.confirm()
          committed = next
        }
      }
      assert(baseRows(store) == committed.toSeq, s"batch $batch")
      assert(store.base.counts.keys == committed.size, s"batch $batch")
    }

    private def seen(view: ReadView, wanted: SortedMap[String, String]): Unit = {
      assert(drain(view.range(None, None)) == wanted.toSeq)
      wanted.foreach { case (k, v) => assert(view.get(bytes(k)).map(text).contains(v)) }
      view.close()
    }

    private def staged(): (Transaction, SortedMap[String, String]) = {
      val t = begin(store)
      var now = committed
      // Scans that were opened on the way, and what they must see.
      var scans =
        List.empty[(RowScan, Seq[(String, String)], mutable.Buffer[(String, String)])]
      def key = f"k${random.nextInt(120)}%03d"
      for (step <- 1 to Steps) random.nextInt(14) match {
        case 0 | 1 | 2 | 3 | 4 =>
          val (k, v) = (key, "v" * random.nextInt(40) + step)
          t.put(bytes(k), bytes(v))
          now += k -> v
        case 5 | 6 =>
          val k = key
          t.remove(bytes(k))
          now -= k
        case 7 | 8 =>
          val k = key
          t.merge(bytes(k), bytes(s"m$step"))
          now += k -> now.get(k).fold(s"m$step")(_ + s",m$step")
        case 9 if random.nextInt(4) == 0 =>
          val (from, to) = ordered(key, key)
          t.deleteRange(bytes(from), bytes(to))
          now --= now.range(from, to).keys
        case 10 if random.nextInt(3) == 0 =>
          val (from, to) = ordered(key, key)
          val scan = t.range(Some(bytes(from)), Some(bytes(to)))
          scans ::= ((scan, now.range(from, to).toSeq, mutable.Buffer.empty))
        case 11 =>
          scans.foreach { case (scan, _, found) =>
            if (random.nextBoolean() && scan.next()) found += ((text(scan.key), text(scan.value)))
          }
        case 12 =>
          val view = store.readOnly(IsolationLevel.ReadUncommitted)
          val k = key
          assert(view.get(bytes(k)).map(text) == now.get(k), "beside")
          if (random.nextInt(5) == 0) assert(drain(view.range(None, None)) == now.toSeq, "beside")
          view.close()
        case _ =>
          val k = key
          assert(t.get(bytes(k)).map(text) == now.get(k), k)
          assert(t.getAll(Seq(bytes(k), bytes("none"))).toSeq.map(_.map(text)) == Seq(
            now.get(k),
            None
          ))
      }
      scans.foreach { case (scan, wanted, found) =>
        found ++= drain(scan)
        assert(found == wanted, "a scan")
      }
      assert(rows(t) == now.toSeq)
      (t, now)
    }
  }

  test("I8: heap stays under the limit and a tenth while fifty times as much is staged") {
    val limit = 1024L * 1024
    for (stores <- Seq(1, 200)) {
      val memory = new UncommittedMemory
      val all = (1 to stores).map(i =>
        newStore(s"$stores-$i", limit = Some(UncommittedLimit(memory, limit)))
      )
      val random = new Random(1)
      var most = 0L
      val rowsEach = 50 * limit.toInt / stores / 1000
      all.foreach { store =>
        val transaction = begin(store)
        for (i <- 0 until rowsEach) {
          transaction.put(bytes(f"key $i%08d"), random.nextBytes(900))
          most = math.max(most, memory.bytes)
        }
        store.commit(transaction)
        most = math.max(most, memory.bytes)
      }
      assert(most <= limit * 11 / 10, s"$stores stores")
      assert(memory.spilledBytes >= 40 * limit)
      all.foreach { store =>
        store.confirm()
        assert(store.base.counts.keys == rowsEach)
        store.close()
      }
      assert(memory.bytes == 0)
    }
  }

  test("I2: a process is killed while a version is applied, the next one applies it to the end") {
    val versions = Seq(1, 4, 12, 22, 32).map { part =>
      val directory = killed(part)
      var isRedone = false
      val found = reopened(directory, phase => isRedone |= phase == CommitPhase.RedoStarted)
      val version = found.base.version
      val wanted = SpillCrash.rowsOf(version)
      assert(baseRows(found) == wanted)
      assert(found.base.counts.keys == wanted.length)
      assert(isRedone == (version == 2))
      found.close()
      assert(Option(new File(directory, "staged").list).forall(_.isEmpty))
      version
    }
    assert(versions.contains(2L), "no part was on disk when the process died")
  }

  test(
    "a process is killed while a version is applied, its file is damaged: the base is not used"
  ) {
    val directory = killed(part = 32)
    val file = new File(directory, "staged").listFiles.filter(_.getName.startsWith("2-")).head
    val content = Files.readAllBytes(file.toPath)
    content(content.length / 2) = (content(content.length / 2) + 1).toByte
    Files.write(file.toPath, content)
    val e = intercept[LocalRejectedException](reopened(directory))
    assert(e.reason == RejectReason.Unfinished && e.getMessage.contains("checksum"))
  }

  /** What a process leaves that stands in the middle of version 2 and is killed (SIGKILL). */
  private def killed(part: Int): File = {
    val directory = new File(root, s"killed-$part")
    val child = new ProcessBuilder(
      new File(System.getProperty("java.home"), "bin/java").getPath,
      "-cp",
      System.getProperty("java.class.path"),
      "statemark.SpillCrash",
      directory.getPath,
      part.toString
    ).redirectError(ProcessBuilder.Redirect.INHERIT).start()
    try assert(Source.fromInputStream(child.getInputStream).getLines().contains(s"part $part"))
    finally child.destroyForcibly().waitFor(): Unit
    directory
  }

  test("what is spilled goes with a rollback, a dropped version and the store") {
    val store = newStore(limit = limited(4096))
    def fill(t: Transaction) = (0 until 500).foreach(i => t.put(bytes(s"k$i"), new Array[Byte](50)))
    val rolledBack = begin(store)
    fill(rolledBack)
    assert(rolledBack.spills > 3 && staged("store").nonEmpty)
    rolledBack.rollback()
    assert(staged("store").isEmpty)
    commit(store)(fill): Unit
    assert(staged("store").map(_.getName.takeWhile(_ != '-')) == Seq("1"))
    assert(store.dropPrepared() && staged("store").isEmpty)
    commit(store)(fill): Unit
    store.confirm()
    assert(staged("store").isEmpty, "of a version that nobody reads")
    assert(baseRows(store).length == 500)
    fill(begin(store))
    store.close()
    assert(staged("store").isEmpty)
  }

  test("a commit that fails leaves no file of its version") {
    def killed(phase: CommitPhase): Unit =
      if (phase == CommitPhase.ChangelogDurable) throw new InterruptedException("killed")
    val store = newStore(limit = limited(4096), observer = killed(_))
    val transaction = begin(store)
    filled(transaction, "v")
    intercept[InterruptedException](store.commit(transaction))
    transaction.rollback()
    assert(store.prepared.isEmpty && staged("store").isEmpty)
  }

  test("a changelog that is replayed is under the limit as well") {
    val limit = limited(8192)
    val store = newStore(limit = limit)
    store.replay(None) { t =>
      (0 until 2000).foreach(i => t.put(bytes(s"k$i"), new Array[Byte](50)))
      None
    }
    assert(store.base.version == 1 && store.base.counts.keys == 2000)
    assert(limit.get.memory.spills > 10)
  }

  test("a prepared version that is spilled is exported, and read by views") {
    val memory = new UncommittedMemory
    val (one, two) = (
      newStore("one", limit = Some(UncommittedLimit(memory, 110000))),
      newStore("two", limit = Some(UncommittedLimit(memory, 110000)))
    )
    def fill(t: Transaction, n: Int) =
      (0 until n).foreach(i => t.put(bytes(f"k$i%03d"), bytes("v" * 50)))
    commit(one)(_.put(bytes("k001"), bytes("base"))): Unit
    one.confirm()
    commit(one) { t =>
      fill(t, 200)
      t.merge(bytes("k001"), bytes("more"))
      t.deleteRange(bytes("k100"), bytes("k150"))
    }: Unit
    val view = one.readAt(VersionId(2, None)).get
    assert(one.prepared.get.batch.isInstanceOf[HeapBatch])
    val before = drain(view.range(None, None))
    val crowd = begin(two)
    fill(crowd, 1150)
    assert(one.prepared.get.batch.isInstanceOf[FileBatch], "the other store needed the room")
    val spilled = one.readAt(VersionId(2, None)).get
    assert(drain(spilled.range(None, None)) == before && before.length == 150)
    assert(spilled.get(bytes("k001")).map(text).contains("v" * 50 + ",more"))
    assert(drain(spilled.prefix(bytes("k05"))).length == 10)
    val (state, _) = one.snapshot(VersionId(2, None), new File(root, "image")).get
    assert(state.version == 2)
    val families = ColumnFamilies(Map.empty, 0)
    val image = new File(root, "image")
    assert(NewStore.count(image, options, families, usesFamilies = false).keys == 150)
    one.confirm()
    assert(baseRows(one) == before)
    Seq(view, spilled).foreach(_.close())
    crowd.rollback()
  }

  test("a disk that neither takes nor deletes a file is named as one that is full") {
    val notADirectory = new File(root, "file")
    Files.write(notADirectory.toPath, Array[Byte](1)): Unit
    val file = new File(notADirectory, "1.batch")
    val e = intercept[ScratchFullException](FileBatch.write(file, 1024, Vector.empty)(_ => ()))
    assert(e.getMessage.contains(file.getPath))
  }

  private def filled(t: Transaction, value: String): Unit =
    (0 until 500).foreach(i => t.put(bytes(f"k$i%03d"), bytes(s"$value-$i")))

  private def rowsOf(value: String) = (0 until 500).map(i => f"k$i%03d" -> s"$value-$i")

  test("a version on disk is read to its end, however far the store goes on (I9)") {
    val store = newStore(limit = limited(4096))
    commit(store)(filled(_, "first")): Unit
    assert(store.prepared.get.file.isDefined)
    val view = store.readAt(VersionId(1, None)).get
    val scan = view.range(None, None)
    assert(scan.next() && text(scan.key) == "k000")
    for (v <- 2 to 5) {
      store.confirm()
      commit(store)(filled(_, s"later $v")): Unit
    }
    assert(view.get(bytes("k499")).map(text).contains("first-499"))
    assert(drain(view.range(None, None)) == rowsOf("first"))
    assert(drain(scan) == rowsOf("first").tail)
    def files(version: Int) = staged("store").filter(_.getName.startsWith(s"$version-"))
    assert((1 to 5).map(files(_).length) == Seq(1, 0, 0, 0, 1))
    view.close()
    assert(files(1).isEmpty, "of a version that nobody reads")
  }

  test("a version on disk that was dropped is not replaced under its readers") {
    val store = newStore(limit = limited(4096))
    commit(store)(filled(_, "dropped")): Unit
    val view = store.readOnly(IsolationLevel.ReadUncommitted)
    assert(store.dropPrepared())
    commit(store)(filled(_, "another attempt")): Unit
    assert(drain(view.range(None, None)) == rowsOf("dropped"))
    assert(view.get(bytes("k250")).map(text).contains("dropped-250"))
    view.close()
    assert(staged("store").length == 1)
  }

  test("every read of a version on disk is checked") {
    val store = newStore(limit = limited(4096))
    commit(store)(filled(_, "v")): Unit
    val file = store.prepared.get.file.get.file.toPath
    val whole = Files.readAllBytes(file)
    val view = store.readAt(VersionId(1, None)).get
    val changed = whole.clone()
    changed(whole.length - 100) = (changed(whole.length - 100) ^ 1).toByte
    for (damaged <- Seq(changed, whole.take(whole.length / 2))) {
      Files.write(file, damaged): Unit
      val e = intercept[StoreUnusableException](drain(view.range(None, None)))
      assert(e.getMessage.contains(file.toString))
    }
    Files.write(file, whole): Unit
    assert(drain(view.range(None, None)) == rowsOf("v"))
    view.close()
  }

  test("a reader of an open transaction that ends is told so") {
    val store = newStore(limit = limited(2048))
    val t = begin(store)
    (0 until 300).foreach(i => t.put(bytes(f"k$i%03d"), bytes("v")))
    val view = store.readOnly(IsolationLevel.ReadUncommitted)
    val scan = view.range(None, None)
    assert(scan.next() && text(scan.key) == "k000")
    t.rollback()
    // What it has opened it reads to its end.
    assert(drain(scan).length == 299)
    intercept[ViewClosedException](view.get(bytes("k000")))
    view.close()
    assert(staged("store").isEmpty)
  }

  test("a store that is opened again gives no name that a reader of the one before still has") {
    val store = newStore(limit = limited(2048))
    store.flush()
    filled(begin(store), "before")
    val view = store.readOnly(IsolationLevel.ReadUncommitted)
    val scan = view.range(None, None)
    assert(scan.next())
    store.close()
    val next = reopened(new File(root, "store"), limit = limited(2048))
    val transaction = begin(next)
    filled(transaction, "next")
    assert(transaction.spills > 0 && rows(transaction) == rowsOf("next"))
    scan.close()
    view.close()
    next.close()
  }

  test("ingested files are ahead of their offsets after a crash: why versions are not ingested") {
    val directory = new File(root, "ingested")
    val engine = RocksEngine.open(directory, options)
    engine.note(Seq(OffsetsColumnFamily.StateKey -> bytes("version 1")))
    engine.flush()
    engine.close()
    val handles = new java.util.ArrayList[ColumnFamilyHandle]
    val families = Seq(RocksDB.DEFAULT_COLUMN_FAMILY, OffsetsColumnFamily.Name.getBytes)
      .map(new ColumnFamilyDescriptor(_, new ColumnFamilyOptions)).asJava
    val db =
      RocksDB.open(new DBOptions().setAtomicFlush(true), directory.getPath, families, handles)
    val sst = new SstFileWriter(new EnvOptions, new Options)
    sst.open(new File(root, "run.sst").getPath)
    sst.put(bytes("row"), bytes("version 2"))
    sst.finish()
    db.ingestExternalFile(
      handles.get(0),
      Seq(new File(root, "run.sst").getPath).asJava,
      new IngestExternalFileOptions
    )
    val write = new WriteOptions().setDisableWAL(true)
    db.put(handles.get(1), write, OffsetsColumnFamily.StateKey, bytes("version 2"))
    val killed = new File(root, "killed")
    Files.createDirectories(killed.toPath)
    directory.listFiles.filterNot(_.getName == "LOCK")
      .foreach(f => Files.copy(f.toPath, new File(killed, f.getName).toPath))
    db.close()
    val found = RocksEngine.open(killed, options)
    assert(found.get(bytes("row")).map(text).contains("version 2"))
    assert(found.offsetsRecord(OffsetsColumnFamily.StateKey).map(text).contains("version 1"))
    found.close()
  }

  private def ordered(a: String, b: String) = if (a < b) (a, b) else (b, a)

  private def staged(store: String): Seq[File] =
    Option(new File(new File(root, store), "staged").listFiles).toSeq.flatten
}
