package statemark.engine

import java.io.File
import org.rocksdb.{LRUCache, WriteBufferManager}
import org.scalatest.funsuite.AnyFunSuite
import scala.util.Random
import statemark.TestStores
import statemark.common.{ArrayPool, Bytes}

/** A batch on the heap lies in pieces, of which RocksDB gets all, one by one or joined. */
class HeapBatchSuite extends AnyFunSuite with TestStores {
  private val random = new Random(11)
  private val rows = (0 until 5000).map(i => f"k$i%05d" -> "v" * random.nextInt(400)).toMap
  private val deleted = (1000 until 1100).map(i => f"k$i%05d").toSet

  private def write(out: BatchWriter): Unit = {
    out.deleteRange(bytes("a"), bytes("b"))
    rows.toSeq.sortBy(_._1).foreach { case (key, value) =>
      if (deleted(key)) out.delete(bytes(key)) else out.put(bytes(key), bytes(value))
    }
  }

  private val whole = BatchWriter.collect()(write)

  test("pieces of any size are joined into the batch that one writer writes") {
    assert(whole.length == 1)
    for (pieceBytes <- Seq(20, 1000, 256 * 1024, 64 * 1024 * 1024)) {
      val pieces = BatchWriter.collect(pieceBytes)(write)
      assert(pieces.forall(_.length <= math.max(pieceBytes, 450)))
      val batch = HeapBatch.of(pieceBytes = pieceBytes)(write)
      assert(
        batch.segments(BatchWriter.DefaultSegmentBytes).toSeq.map(_.toSeq) == whole.map(
          _.toArray.toSeq
        )
      )
      assert(batch.bytes == pieces.map(_.length.toLong).sum)
      assert(batch.records == rows.size + 1)
      assert(batch.heapBytes >= batch.bytes + 8 * batch.records)
    }
    assert(SerializedBatch.empty.segments(1000).isEmpty)
  }

  test("none of its pieces is large, and a row that is larger has one of its own") {
    val large = new Array[Byte](300 * 1024)
    val batch = HeapBatch.of() { out =>
      write(out)
      out.put(bytes("z"), large)
    }
    val (small, others) = batch.segments(HeapBatch.PieceBytes).map(_.length).toSeq
      .partition(_ <= HeapBatch.PieceBytes)
    assert(small.length >= 4 && others.length == 1)
    assert(batch.part(0).record(rows.size) match {
      case BatchRecord.Put(value) => value.length == large.length
      case _ => false
    })
  }

  /** The version that is on disk once all is written that has begun to be, and whether all of it is. */
  private def onDisk(engine: RocksEngine): (Option[String], Boolean) = {
    engine.flush()
    engine.close()
    val next = RocksEngine.reopen(engine.directory, options)
    try {
      assert(next.offsetsRecord(OffsetsColumnFamily.IntentKey).isEmpty)
      val keys = rows.keys.toIndexedSeq.map(bytes).sorted(Bytes.order)
      val expected = keys.map(k => rows.get(text(k)).filterNot(_ => deleted(text(k))))
      (next.offsetsRecord(version).map(text), keys.map(next.get(_).map(text)) == expected)
    } finally next.close()
  }

  private def version = bytes("version")
  private val Active = "rocksdb.num-entries-active-mem-table"

  test("I2: a version is written in pieces where the memtable has room, else in one") {
    for ((memtable, expected) <- Seq((64 << 20, 4), (1 << 20, 1))) {
      val sized = options.copy(writeBufferBytes = memtable.toLong)
      val engine = RocksEngine.open(new File(root, s"pieces-$memtable"), sized)
      val batch = HeapBatch.of()(write)
      var parts = 1
      engine.apply(batch, Seq(version -> bytes("7")), Intent(7, None), () => parts += 1)
      assert(parts == expected && batch.segments(HeapBatch.PieceBytes).length == 4)
      assert(onDisk(engine) == ((Some("7"), true)))
    }
  }

  test("I2: a memtable that has no room for a version is frozen before it, not in the middle") {
    val sized = options.copy(writeBufferBytes = 2L << 20)
    val engine = RocksEngine.open(new File(root, "frozen"), sized)
    for (number <- Seq("7", "8")) {
      var parts = 1
      val records = Seq(version -> bytes(number))
      engine.apply(HeapBatch.of()(write), records, Intent(7, None), () => parts += 1)
      assert(parts == 4)
      assert(engine.property(Active) == rows.size + 1, "of this version alone, and whole")
    }
    assert(onDisk(engine) == ((Some("8"), true)))
  }

  test("its pieces go to other batches when its owner is done, unless a reader was let in") {
    val pool = new ArrayPool(64L << 20, overwrites = true)
    def key(batch: HeapBatch) = text(batch.part(0).key(0))
    val (unread, read) = (HeapBatch.of(pool = pool)(write), HeapBatch.of(pool = pool)(write))
    val (onHeap, outside) = (pool.heldBytes, pool.bufferBytes)
    assert(outside >= 6L * ArrayPool.LargestBytes)
    assert(read.retain() && read.retain())
    // Its reader has them on the heap, from where nobody takes them.
    assert(pool.bufferBytes == outside / 2)
    Seq(read, read).foreach(_.delete())
    assert(pool.heldBytes == onHeap && key(read) == "k00000" && read.retain())
    Seq(unread, unread).foreach(_.delete())
    assert(pool.bufferBytes == 0 && !unread.retain())
    // Memory that others have used is that of a new batch.
    val next = HeapBatch.of(pool = pool)(write)
    assert(segmentsOf(next) == whole.map(_.toArray.toSeq))
    assert(key(read) == "k00000")
  }

  private def segmentsOf(batch: HeapBatch) =
    batch.segments(BatchWriter.DefaultSegmentBytes).map(_.toSeq).toSeq

  test("where there is no room outside the heap, pieces lie on it") {
    val pool = new ArrayPool(64L << 20, overwrites = true)
    pool.outside.bound(2L * ArrayPool.LargestBytes)
    val batches = Seq.fill(2)(HeapBatch.of(pool = pool)(write))
    assert(pool.bufferBytes == 2L * ArrayPool.LargestBytes)
    for (batch <- batches) {
      assert(segmentsOf(batch) == whole.map(_.toArray.toSeq))
      batch.delete()
    }
    assert(pool.bufferBytes == 0 && pool.heldBytes > 0)
  }

  test("I2: where a part of a version goes to disk, so does the rest") {
    val cache = new LRUCache(1 << 20)
    val common = new WriteBufferManager(512 * 1024, cache)
    val tight = options.copy(writeBufferManager = Some(common))
    val engine = RocksEngine.open(new File(root, "torn"), tight)
    engine.apply(HeapBatch.of()(write), Seq(version -> bytes("7")), Intent(7, None))
    assert(engine.property(Active) == 0)
    assert(onDisk(engine) == ((Some("7"), true)))
    val roomy = RocksEngine.open(new File(root, "whole"), options)
    roomy.apply(HeapBatch.of()(write), Seq(version -> bytes("7")), Intent(7, None))
    assert(roomy.property(Active) == rows.size + 1)
    roomy.close()
    common.close()
    cache.close()
  }
}
