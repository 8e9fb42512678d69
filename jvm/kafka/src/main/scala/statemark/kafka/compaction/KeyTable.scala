package statemark.kafka.compaction

import java.nio.ByteBuffer
import java.nio.file.{Files, Path}
import java.util.Comparator
import org.rocksdb._
import scala.util.Using

/** A record as far as it decides which of its key is right.
  * @param bytes about what it takes in a request that is not compressed
  */
private[compaction] final case class Candidate(
    version: Option[Long],
    offset: Long,
    timestampMs: Long,
    bytes: Int
)

/** What is known of a key in its partition.
  * @param winner the record that KIP-280 keeps
  * @param last the last one, which Kafka's cleaner keeps
  */
private[compaction] final case class KeyState(winner: Candidate, last: Candidate) {

  /** Whether the cleaner keeps another record than it should. */
  def isWrong: Boolean = winner.offset != last.offset
}

/** A key whose last record is not the winner. */
private[compaction] final case class WrongKey(partition: Int, key: Array[Byte], state: KeyState)

/** All keys of a topic, on the local disk, and beside them those that are wrong, in the order of their winners. Memory is
  * bounded by what the database buffers, whatever the number of keys. ''Thread:'' one at a time. Whoever makes a table
  * closes it, which deletes it.
  */
private[compaction] final class KeyTable private (directory: Path) extends AutoCloseable {
  import KeyTable._

  // Of one part: a block that is larger than a part of the cache is read, and checked, for every key.
  private val cache = new LRUCache(CacheBytes, 0)
  private val filter = new BloomFilter(10)
  private val options = new Options()
    .setCreateIfMissing(true)
    .setWriteBufferSize(BufferBytes)
    .setMaxWriteBufferNumber(2)
    .setCompressionType(CompressionType.LZ4_COMPRESSION)
    .setTableFormatConfig(
      new BlockBasedTableConfig().setBlockCache(cache).setFilterPolicy(filter)
        // In blocks of their own, so that the cache bounds them, too.
        .setIndexType(IndexType.kTwoLevelIndexSearch)
        .setPartitionFilters(true)
        .setCacheIndexAndFilterBlocks(true)
        .setPinTopLevelIndexAndFilter(true)
    )
  // What a crash loses is read from the topic again.
  private val unlogged = new WriteOptions().setDisableWAL(true)
  private val db = RocksDB.open(options, directory.toString)
  private var keyCount = 0L
  private var wrongCount = 0L

  /** How many keys there are, each counted in every partition that has it. */
  def keys: Long = keyCount

  /** How many keys are wrong. */
  def wrong: Long = wrongCount

  def get(partition: Int, key: Array[Byte]): Option[KeyState] =
    Option(db.get(keyOf(partition, key))).map(decoded)

  /** Notes what is known of a key now.
    * @param before what was known of it
    */
  def put(partition: Int, key: Array[Byte], before: Option[KeyState], now: KeyState): Unit = {
    before.filter(_.isWrong).foreach { state =>
      db.delete(unlogged, wrongOf(partition, state.winner.offset))
      wrongCount -= 1
    }
    if (now.isWrong) {
      db.put(unlogged, wrongOf(partition, now.winner.offset), key)
      wrongCount += 1
    }
    if (before.isEmpty) keyCount += 1
    db.put(unlogged, keyOf(partition, key), encoded(now))
  }

  /** Wrong keys whose winners lie in `partition` from `offset` on, or in a later partition: `most` of them, by partition and
    * offset.
    */
  def wrongFrom(partition: Int, offset: Long, most: Int): Vector[WrongKey] =
    Using.resource(db.newIterator()) { rows =>
      rows.seek(wrongOf(partition, offset))
      Iterator.continually(rows).take(most)
        .takeWhile(r => r.isValid && r.key()(0) == WrongPrefix)
        .map { r =>
          val of = ByteBuffer.wrap(r.key()).getInt(1)
          val key = r.value()
          rows.next()
          WrongKey(of, key, get(of, key).get)
        }.toVector
    }

  /** All wrong keys, by partition and the offsets of their winners, read as they are asked for. */
  def allWrong: Iterator[WrongKey] = {
    def later(key: WrongKey) = wrongFrom(key.partition, key.state.winner.offset + 1, PageKeys)
    Iterator.iterate(wrongFrom(0, 0, PageKeys))(page => later(page.last)).takeWhile(_.nonEmpty)
      .flatten
  }

  override def close(): Unit = {
    db.close()
    unlogged.close()
    options.close()
    filter.close()
    cache.close()
    Using.resource(Files.walk(directory)) {
      _.sorted(Comparator.reverseOrder[Path]).forEach(Files.delete(_))
    }
  }
}

private[compaction] object KeyTable {
  private val WrongPrefix: Byte = 0
  private val KeyPrefix: Byte = 1
  private val CacheBytes = 64L << 20
  private val BufferBytes = 64L << 20
  private val PageKeys = 1000
  private val CandidateBytes = 1 + 3 * 8 + 4

  /** An empty table in a new folder.
    * @param parent of the folder; None for the machine's temporary directory
    */
  def open(parent: Option[Path]): KeyTable = {
    RocksDB.loadLibrary()
    val name = "statemark-keys-"
    new KeyTable(parent.fold(Files.createTempDirectory(name))(Files.createTempDirectory(_, name)))
  }

  private def keyOf(partition: Int, key: Array[Byte]): Array[Byte] =
    ByteBuffer.allocate(5 + key.length).put(KeyPrefix).putInt(partition).put(key).array

  private def wrongOf(partition: Int, offset: Long): Array[Byte] =
    ByteBuffer.allocate(13).put(WrongPrefix).putInt(partition).putLong(offset).array

  private def encoded(state: KeyState): Array[Byte] = {
    val bytes = ByteBuffer.allocate(2 * CandidateBytes)
    Seq(state.winner, state.last).foreach { c =>
      bytes.put((if (c.version.isDefined) 1 else 0).toByte)
        .putLong(c.version.getOrElse(0L)).putLong(c.offset).putLong(c.timestampMs).putInt(c.bytes)
    }
    bytes.array
  }

  private def decoded(row: Array[Byte]): KeyState = {
    val bytes = ByteBuffer.wrap(row)
    def candidate() = {
      val hasVersion = bytes.get() == 1
      val version = bytes.getLong()
      val number = Option.when(hasVersion)(version)
      Candidate(number, bytes.getLong(), bytes.getLong(), bytes.getInt())
    }
    val winner = candidate()
    KeyState(winner, candidate())
  }
}
