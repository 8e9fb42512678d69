package statemark.engine

import java.io.{EOFException, File, FileNotFoundException, IOException, RandomAccessFile}
import java.nio.ByteBuffer
import java.nio.file.Files
import java.util.{Arrays, BitSet}
import java.util.concurrent.atomic.{AtomicBoolean, AtomicInteger}
import java.util.zip.CRC32C
import statemark.common.{ArrayPool, Sharing, StoreUnusableException, ViewClosedException}

/** The writes of one version in the form in which RocksDB takes them: first the ranges that it deleted, then at
  * most one record for each key, ascending.
  *
  * ''Thread:'' any; its writes never change.
  */
sealed trait SerializedBatch {

  /** Write batches, to be written in this order.
    * @param mostBytes the largest size of a segment, where the segments are not on disk already
    */
  def segments(mostBytes: Int): Iterator[Array[Byte]]

  /** Bytes held, on the heap or outside, with what its reader holds. */
  def heapBytes: Long

  /** Returns bytes of all segments, wherever they are. */
  def bytes: Long

  /** Returns how many parts there are to read; keys of one part lie below those of the next. */
  def parts: Int
  def firstKey(part: Int): Array[Byte]
  def part(i: Int): BatchReader

  /** Ranges that it deleted. */
  def ranges: Vector[(Array[Byte], Array[Byte])]

  /** Adds a reader, who calls `release`; false where the owner and the last reader are gone. */
  def retain(): Boolean

  /** Removes a reader. */
  def release(): Unit

  /** Removes the owner, who uses it no more: memory or file are free once no reader is left. Idempotent. */
  def delete(): Unit
}

object SerializedBatch {
  val empty: SerializedBatch = new HeapBatch(Vector.empty)
}

/** A batch in memory, in pieces of which none is large to the garbage collector: G1 gives an array of half a region
  * or more regions of its own, which are not shared and not moved. Pieces serve another batch when the owner is done
  * with this one, unless a reader was let in (ADR 33).
  *
  * @param pieces complete write batches: first what it deletes by range, then keys that ascend
  * @param rowsBefore tells of each record, by its number, whether the base had its key, where that was asked and nothing
  *   is deleted by range
  */
final class HeapBatch private[engine] (
    pieces: Vector[BatchPiece],
    private[statemark] val rowsBefore: Option[BitSet] = None
) extends SerializedBatch {
  private lazy val reader = new BatchReader(pieces.map(_.segment))
  private val sharing = new Sharing

  override def segments(mostBytes: Int): Iterator[Array[Byte]] =
    BatchPiece.joined(pieces, mostBytes)
  override val bytes: Long = pieces.iterator.map(_.length.toLong).sum
  private[statemark] val records: Long = pieces.iterator.map(_.records.toLong).sum
  override val heapBytes: Long =
    pieces.iterator.map(_.heapBytes).sum + BatchReader.PlaceBytes * records +
      rowsBefore.fold(0L)(_.size.toLong / java.lang.Byte.SIZE)

  /** Returns about how many bytes of a memtable it takes. */
  private[engine] def memtableBytes: Long = bytes + HeapBatch.MemtableOverhead * records
  override def parts: Int = if (reader.length > 0) 1 else 0
  override def firstKey(part: Int): Array[Byte] = reader.key(0)
  override def part(i: Int): BatchReader = reader
  override lazy val ranges: Vector[(Array[Byte], Array[Byte])] = BatchReader.rangesOf(foreachRecord)

  /** A reader may be there for longer than the owner: what it reads is left to the garbage collector. */
  override def retain(): Boolean = {
    val isThere = sharing.share()
    if (isThere) pieces.foreach(_.segment)
    isThere
  }
  override def release(): Unit = ()
  override def delete(): Unit = if (sharing.end()) pieces.foreach(_.free())

  /** Shows all keys but those of ranges, in order. */
  private[statemark] def foreachKey(use: Array[Byte] => Unit): Unit =
    foreachRecord((tag, in, key, keyLength, _, _) =>
      if (tag != BatchWriter.DeleteRange) use(Arrays.copyOfRange(in, key, key + keyLength))
    )

  /** Shows all records, in order, each for the time of the call. */
  private[statemark] def foreachRecord(use: BatchReader.Visitor): Unit =
    pieces.foreach(_.visit(use))
}

object HeapBatch {

  /** Half of the smallest array that G1 calls humongous. */
  val PieceBytes: Int = ArrayPool.LargestBytes

  /** Bytes that RocksDB's memtable has for a record beside key and value. */
  private val MemtableOverhead = 32L

  /** @param expectedBytes the expected size of all that `write` writes; more and less are fine
    * @param pieceBytes the size of a piece
    */
  def of(
      expectedBytes: Long = 0,
      pool: ArrayPool = ArrayPool.shared,
      pieceBytes: Int = PieceBytes,
      rowsBefore: Option[BitSet] = None
  )(write: BatchWriter => Unit): HeapBatch = {
    val pieces = Vector.newBuilder[BatchPiece]
    val writer = new BatchWriter(pieceBytes, expectedBytes, pool)(pieces += BatchPiece(_, pool))
    write(writer)
    writer.finish()
    new HeapBatch(pieces.result(), rowsBefore)
  }
}

/** A piece of a batch in memory: a complete write batch. A large one lies outside the heap until a reader is let in: it
  * is there for as long as a query is idle, and the collector makes room for it two to three times (ADR 14).
  *
  * ''Thread:'' any.
  *
  * @param records the number of its records
  */
private[engine] final class BatchPiece private (
    val length: Int,
    val records: Int,
    private var place: BatchPiece.Place,
    pool: ArrayPool
) {
  import BatchPiece._

  /** Heap bytes that it takes once a reader is let in. */
  val heapBytes: Long = place match {
    case OnHeap(bytes) => bytes.length.toLong
    case _ => ArrayPool.LargestBytes.toLong
  }

  /** Copies its bytes from `from` on. */
  def copyTo(to: Array[Byte], at: Int, from: Int): Unit = synchronized {
    place match {
      case OnHeap(bytes) => System.arraycopy(bytes, from, to, at, length - from)
      case Outside(buffer) => buffer.get(from, to, at, length - from): Unit
      case Freed => throw freed
    }
  }

  /** Shows all records, in order, in an array that is good for the call alone. */
  def visit(use: BatchReader.Visitor): Unit = synchronized(place) match {
    case OnHeap(bytes) => BatchReader.visit(BatchSegment(bytes, length), use)
    case _ =>
      val bytes = pool.takeBytes(ArrayPool.LargestBytes)
      copyTo(bytes, 0, 0)
      BatchReader.visit(BatchSegment(bytes, length), use)
      pool.give(bytes)
  }

  /** Moves it to the heap, where readers on other threads may have it for as long as they like. */
  def segment: BatchSegment = synchronized {
    val bytes = place match {
      case OnHeap(bytes) => bytes
      case Outside(buffer) =>
        val bytes = new Array[Byte](length)
        buffer.get(0, bytes): Unit
        place = OnHeap(bytes)
        pool.give(buffer)
        bytes
      case Freed => throw freed
    }
    BatchSegment(bytes, length)
  }

  /** Gives its memory to others; it is used no more. */
  def free(): Unit = synchronized {
    val before = place
    place = Freed
    before match {
      case OnHeap(bytes) => pool.give(bytes)
      case Outside(buffer) => pool.give(buffer)
      case Freed => ()
    }
  }

  private def freed = new IllegalStateException("The memory of this piece is somebody else's.")
}

private[engine] object BatchPiece {
  private sealed trait Place
  private final case class OnHeap(bytes: Array[Byte]) extends Place
  private final case class Outside(buffer: ByteBuffer) extends Place
  private case object Freed extends Place

  /** Returns the piece of a segment, whose array is the pool's from now on. Outside the heap, at least half of its room
    * is used.
    * @param pool what it came from
    */
  def apply(segment: BatchSegment, pool: ArrayPool): BatchPiece = {
    val buffer =
      if (
        segment.bytes.length == ArrayPool.LargestBytes && segment.length > segment.bytes.length / 2
      )
        pool.takeBuffer()
      else None
    val place = buffer.fold[Place](OnHeap(segment.bytes)) { outside =>
      outside.put(0, segment.bytes, 0, segment.length): Unit
      Outside(outside)
    }
    val records = BatchWriter.countOf(segment.bytes)
    if (buffer.isDefined) pool.give(segment.bytes)
    new BatchPiece(segment.length, records, place, pool)
  }

  /** Write batches of so many bytes at most, each of as many of `pieces` as it has room for; made one by one. */
  def joined(
      pieces: Vector[BatchPiece],
      mostBytes: Int
  ): Iterator[Array[Byte]] = {
    val groups = Vector.newBuilder[Vector[BatchPiece]]
    var group = Vector.empty[BatchPiece]
    var bytes = 0L
    pieces.foreach { piece =>
      if (group.nonEmpty && bytes + piece.length > mostBytes) {
        groups += group
        group = Vector.empty
        bytes = 0
      }
      group :+= piece
      bytes += piece.length
    }
    if (group.nonEmpty) groups += group
    groups.result().iterator.map(join)
  }

  private def join(pieces: Vector[BatchPiece]): Array[Byte] = {
    val whole =
      new Array[Byte](BatchWriter.HeaderBytes + pieces.map(_.length - BatchWriter.HeaderBytes).sum)
    pieces.foldLeft(BatchWriter.HeaderBytes) { (at, piece) =>
      piece.copyTo(whole, at, BatchWriter.HeaderBytes)
      at + piece.length - BatchWriter.HeaderBytes
    }: Unit
    BatchWriter.setCount(whole, pieces.map(_.records).sum)
    whole
  }
}

/** A batch in a file of a home, where memory has no room. Its records are puts and deletes: merges were resolved when
  * it was written. The file is there until its owner and all readers are done (I9); every read checks the segment's
  * checksum.
  *
  * @param places the places of all segments; the first ones have `ranges` and nothing else
  * @param firstKeys the first keys of the segments that have keys
  */
final class FileBatch private (
    val file: File,
    places: Vector[FileBatch.Segment],
    firstKeys: Vector[Array[Byte]],
    val ranges: Vector[(Array[Byte], Array[Byte])]
) extends SerializedBatch {
  override def segments(mostBytes: Int): Iterator[Array[Byte]] = places.indices.iterator.map(read)
  override val bytes: Long = places.iterator.map(_.length.toLong).sum
  override def heapBytes: Long = firstKeys.iterator.map(_.length + FileBatch.KeyOverhead).sum
  override def parts: Int = firstKeys.length
  override def firstKey(part: Int): Array[Byte] = firstKeys(part)
  override def part(i: Int): BatchReader = FileBatch.reader(read(places.length - parts + i))

  private val users = new AtomicInteger(1)
  private val isOwned = new AtomicBoolean(true)

  override def delete(): Unit = if (isOwned.compareAndSet(true, false)) release()

  override def retain(): Boolean = users.getAndUpdate(n => if (n > 0) n + 1 else 0) > 0

  override def release(): Unit =
    if (users.decrementAndGet() == 0) Files.deleteIfExists(file.toPath): Unit

  /** @throws ViewClosedException where the file is gone: its store was closed, and its directory deleted
    * @throws StoreUnusableException where the file has other bytes than were written
    */
  private def read(i: Int): Array[Byte] = {
    val segment = places(i)
    val bytes =
      try FileBatch.reading(file)(FileBatch.read(_, segment.offset, segment.length))
      catch {
        case _: FileNotFoundException if !file.exists =>
          throw new ViewClosedException(
            s"The store of $file was closed while it was read. Read it again."
          )
        case e: EOFException => throw FileBatch.damaged(file, e.toString, Some(e))
      }
    FileBatch.check(file, segment, i, bytes)
    bytes
  }
}

/** {{{
  *   segment   int32 length | int32 CRC32C of the bytes | the bytes of a write batch
  *   end       int32 -1     | int32 number of segments
  * }}}
  * Integers are big endian. It is read and written by `RandomAccessFile`, as an interrupt of the thread closes
  * channels: to kill a task would look like damage, or like a full disk.
  */
object FileBatch {
  private val KeyOverhead = 24L
  private val HeaderBytes = 8
  private val End = -1

  private final case class Segment(offset: Long, length: Int, checksum: Int)

  /** Writes a batch to `file`, on disk when it returns.
    * @param segmentBytes size of a segment; reading a row reads one
    * @param ranges the ranges that the batch deletes
    * @param rows writes its puts and deletes, keys ascending
    * @throws ScratchFullException where the disk does not take it
    */
  def write(file: File, segmentBytes: Int, ranges: Vector[(Array[Byte], Array[Byte])])(
      rows: BatchWriter => Unit
  ): FileBatch =
    try {
      Files.createDirectories(file.getParentFile.toPath): Unit
      val out = new RandomAccessFile(file, "rw")
      try {
        out.setLength(0)
        val places = Vector.newBuilder[Segment]
        var count = 0
        def add(segment: BatchSegment): Unit = {
          val sum = checksum(segment.bytes, segment.length)
          places += Segment(out.getFilePointer + HeaderBytes, segment.length, sum)
          count += 1
          out.write(header(segment.length, sum))
          out.write(segment.bytes, 0, segment.length)
          ArrayPool.shared.give(segment.bytes)
        }
        if (ranges.nonEmpty) BatchWriter.collect() { writer =>
          ranges.foreach { case (begin, end) => writer.deleteRange(begin, end) }
        }.foreach(add)
        val firstKeys = Vector.newBuilder[Array[Byte]]
        val writer = new BatchWriter(segmentBytes)(segment => {
          firstKeys += BatchReader.firstKey(segment.bytes)
          add(segment)
        })
        rows(writer)
        writer.finish()
        out.write(header(End, count))
        out.getFD.sync()
        new FileBatch(file, places.result(), firstKeys.result(), ranges)
      } finally out.close()
    } catch {
      case e: Throwable =>
        // A disk that takes nothing need not delete either: what it said first is the reason.
        try Files.deleteIfExists(file.toPath): Unit
        catch { case other: IOException => e.addSuppressed(other) }
        throw (e match {
          case e: IOException => ScratchStore.full(file, e)
          case _ => e
        })
    }

  /** Returns the batch that lies in `file`.
    * @throws StoreUnusableException where it is not whole
    */
  def open(file: File): FileBatch =
    try reading(file)(opened(file, _))
    catch { case e: IOException => throw damaged(file, e.toString, Some(e)) }

  private def opened(file: File, in: RandomAccessFile): FileBatch = {
    val places = Vector.newBuilder[Segment]
    val firstKeys = Vector.newBuilder[Array[Byte]]
    var ranges = Vector.empty[(Array[Byte], Array[Byte])]
    var count = 0
    var at = 0L
    var isOver = false
    while (!isOver) {
      val head = ByteBuffer.wrap(read(in, at, HeaderBytes))
      val (length, second) = (head.getInt(0), head.getInt(4))
      at += HeaderBytes
      if (length == End) {
        if (second != count) throw damaged(file, s"$count segments instead of $second", None)
        isOver = true
      } else {
        if (length < BatchWriter.HeaderBytes || length > in.length() - at)
          throw damaged(file, s"a segment of $length bytes", None)
        val segment = read(in, at, length)
        val place = Segment(at, length, second)
        check(file, place, count, segment)
        val reader = FileBatch.reader(segment)
        ranges ++= reader.ranges
        if (reader.length > 0) firstKeys += reader.key(0)
        places += place
        count += 1
        at += length
      }
    }
    new FileBatch(file, places.result(), firstKeys.result(), ranges)
  }

  private def check(file: File, segment: Segment, number: Int, bytes: Array[Byte]): Unit =
    if (checksum(bytes, bytes.length) != segment.checksum)
      throw damaged(file, s"a wrong checksum of segment $number", None)

  private def damaged(file: File, what: String, cause: Option[Throwable]) =
    new StoreUnusableException(s"$file is not whole: $what.", cause)

  private def header(first: Int, second: Int): Array[Byte] =
    ByteBuffer.allocate(HeaderBytes).putInt(first).putInt(second).array

  private def reader(segment: Array[Byte]) =
    new BatchReader(Vector(BatchSegment(segment, segment.length)))

  private def checksum(bytes: Array[Byte], length: Int): Int = {
    val crc = new CRC32C
    crc.update(bytes, 0, length)
    crc.getValue.toInt
  }

  private def reading[A](file: File)(read: RandomAccessFile => A): A = {
    val in = new RandomAccessFile(file, "r")
    try read(in)
    finally in.close()
  }

  private def read(in: RandomAccessFile, offset: Long, length: Int): Array[Byte] = {
    val bytes = new Array[Byte](length)
    in.seek(offset)
    in.readFully(bytes)
    bytes
  }
}
