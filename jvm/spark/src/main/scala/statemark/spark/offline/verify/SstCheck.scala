package statemark.spark.offline.verify

import java.io.{File, RandomAccessFile}
import java.nio.{ByteBuffer, ByteOrder}
import org.rocksdb.{BlockBasedTableConfig, Options, RocksDBException, SstFileReader}
import statemark.engine.NativeHandles

/** Reads every block of an SST file and checks it, footer included.
  *
  * RocksDB's check covers all blocks and, up to table format 5, not the footer: its padding, numbers
  * written longer than need be, and a checksum type that says there are none. Found by changing every
  * bit of a file. A footer of a neighbouring format version reads the same.
  */
object SstCheck {
  private val FooterBytes = 53
  private val HandlesEnd = 41
  private val Magic = 0x88e241b785f4cff7L
  private val FirstVersionWithFooterChecksum = 6
  private val NoChecksums = "its footer says that its blocks have no checksums"

  /** @param formatVersion the version of the table format that the query pins
    * @return what is wrong, and what it does to a load
    */
  def problem(file: File, formatVersion: Int): Option[(String, Effect)] = {
    val ofFooter = footerProblem(file, formatVersion)
    val ofRocksDb = rocksDbProblem(file)
    ofFooter.orElse(ofRocksDb).map { detail =>
      val effect =
        if (ofRocksDb.isDefined) Effect.FailsLoad
        // RocksDB reads it, and nothing tells whether the rows are right.
        else if (ofFooter.contains(NoChecksums)) Effect.DoubtsRows(Set.empty)
        else Effect.None
      (detail, effect)
    }
  }

  private def rocksDbProblem(file: File): Option[String] = {
    val handles = new NativeHandles
    try {
      val options = handles.add(new Options().setTableFormatConfig(new BlockBasedTableConfig()))
      val reader = handles.add(new SstFileReader(options))
      reader.open(file.getPath)
      reader.verifyChecksum()
      None
    } catch {
      case e: RocksDBException =>
        Some(s"RocksDB finds: ${e.getMessage.replace(file.getPath, "it")}")
    } finally handles.close()
  }

  private def footerProblem(file: File, formatVersion: Int): Option[String] =
    if (file.length < FooterBytes) Some(s"it has ${file.length} bytes, fewer than a footer")
    else {
      val bytes = new Array[Byte](FooterBytes)
      val in = new RandomAccessFile(file, "r")
      try {
        in.seek(file.length - FooterBytes)
        in.readFully(bytes)
      } finally in.close()
      val footer = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN)
      if (footer.getLong(FooterBytes - 8) != Magic)
        Some("its last 8 bytes are not those of an SST file")
      else if (bytes(0) == 0) Some(NoChecksums)
      else if (footer.getInt(HandlesEnd) != formatVersion)
        Some(
          s"its footer is of format ${footer.getInt(HandlesEnd)}, and the query's is $formatVersion"
        )
      else if (formatVersion < FirstVersionWithFooterChecksum && !areHandlesPlain(bytes))
        Some("its footer is not as RocksDB writes it")
      else None
    }

  /** Four numbers in 7-bit groups, none longer than need be, then zeros. */
  private def areHandlesPlain(footer: Array[Byte]): Boolean = {
    var at = 1
    var isPlain = true
    for (_ <- 0 until 4) {
      val start = at
      while (at < HandlesEnd && footer(at) < 0) at += 1
      isPlain &&= at < HandlesEnd && (at == start || footer(at) != 0)
      at += 1
    }
    isPlain && (at until HandlesEnd).forall(footer(_) == 0)
  }
}
