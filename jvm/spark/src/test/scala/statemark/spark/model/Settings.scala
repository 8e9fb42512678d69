package statemark.spark.model

import scala.util.Random
import statemark.spark.Line

import org.apache.spark.sql.execution.streaming.state.StateStoreConf
import org.apache.spark.sql.internal.SQLConf

/** What a history runs under; drawn from its seed. */
final case class Settings(
    useFamilies: Boolean,
    encoding: String,
    formatVersion: Int,
    rowChecksum: Boolean,
    changelog: Boolean,
    minDeltas: Int,
    trackRows: Boolean,
    mergeOperator: Int,
    codec: String,
    maxUncommittedBytes: String,
    twoThreads: Boolean,
    families: IndexedSeq[Family]
) {

  def conf: StateStoreConf = {
    val sql = new SQLConf
    def set(key: String, value: Any): Unit =
      sql.setConfString(s"spark.sql.streaming.stateStore.$key", value.toString)
    set("encodingFormat", encoding)
    set("checkpointFormatVersion", formatVersion)
    set("rowChecksum.enabled", rowChecksum)
    set("minDeltasForSnapshot", minDeltas)
    set("compression.codec", codec)
    set("rocksdb.changelogCheckpointing.enabled", changelog)
    set("rocksdb.trackTotalNumberOfRows", trackRows)
    set("rocksdb.mergeOperatorVersion", mergeOperator)
    set("rocksdb.lockAcquireTimeoutMs", 10000)
    set("statemark.maxUncommittedBytes", maxUncommittedBytes)
    new StateStoreConf(sql)
  }

  override def toString: String =
    s"""families $useFamilies, encoding $encoding, format v$formatVersion, checksum $rowChecksum,
       |changelog $changelog, minDeltas $minDeltas, trackRows $trackRows, mergeOperator $mergeOperator,
       |codec $codec, maxUncommittedBytes $maxUncommittedBytes, twoThreads $twoThreads,
       |${families.mkString("; ")}""".stripMargin.replace('\n', ' ')
}

object Settings {

  def draw(random: Random): Settings = {
    def oneOf[A](choices: A*): A = choices(random.nextInt(choices.size))
    val useFamilies = random.nextInt(4) != 0
    // Each encoder for Avro parses Hadoop's defaults again, which takes as long as a batch.
    val encoding = oneOf("unsaferow", "unsaferow", "unsaferow", "unsaferow", "unsaferow", "avro")

    def family(index: Int): Family = {
      val multi = useFamilies && random.nextBoolean()
      val isInternal = index > 0 && random.nextInt(4) == 0
      val name =
        if (index == 0) "default" else if (isInternal) s"$$inner$index" else s"family$index"
      val kind = KeyKind.all(random.nextInt(KeyKind.all.size))
      val pool = oneOf(2, 6, 15, 50)
      new Family(index, name, kind, multi, isInternal, pool, encoding, useFamilies, random)
    }

    Settings(
      useFamilies,
      encoding,
      formatVersion = oneOf(1, 2),
      rowChecksum = random.nextInt(3) == 0 && Line.hasStoreOf42,
      changelog = random.nextInt(4) != 0,
      minDeltas = 1 + random.nextInt(10),
      trackRows = random.nextInt(4) != 0,
      mergeOperator = if (random.nextBoolean() && Line.hasStoreOf42) 2 else 1,
      codec = oneOf("lz4", "lz4", "zstd"),
      maxUncommittedBytes = oneOf("auto", "-1", "2048", "512"),
      twoThreads = random.nextInt(4) == 0,
      families = (0 to (if (useFamilies) random.nextInt(4) else 0)).map(family)
    )
  }
}
