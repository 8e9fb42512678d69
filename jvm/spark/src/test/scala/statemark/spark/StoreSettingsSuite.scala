package statemark.spark

import java.nio.file.Files
import org.scalatest.funsuite.AnyFunSuite
import statemark.common.InvalidInputException
import statemark.IsolationLevel
import statemark.spark.conf.StoreSettings

class StoreSettingsSuite extends AnyFunSuite with Providers {
  private def parse(confs: (String, String)*): StoreSettings =
    StoreSettings.from(confs.map { case (k, v) => (StoreSettings.Prefix + k, v) }.toMap, 1L << 30)

  test(
    "defaults: READ_COMMITTED, a tenth of the heap but 64 MiB at least, the executor's directories"
  ) {
    assert(parse() == StoreSettings(
      IsolationLevel.ReadCommitted,
      Some((1L << 30) / 10),
      None,
      None,
      7L * 24 * 3600 * 1000,
      readRetentionVersions = 3,
      readRetentionMs = 30000,
      checksOffsets = true
    ))
    assert(StoreSettings.from(Map.empty, 1L << 20).maxUncommittedBytes.contains(64L << 20))
  }

  test("values are read in either case, sizes as Spark reads them") {
    assert(parse("isolationLevel" -> "read_uncommitted").isolationLevel ==
      IsolationLevel.ReadUncommitted)
    assert(parse("ISOLATIONLEVEL" -> "READ_UNCOMMITTED").isolationLevel ==
      IsolationLevel.ReadUncommitted)
    for (
      (text, bytes) <-
        Seq("64m" -> (64L << 20), "8KiB" -> 8192L, "268435456" -> 268435456L, "1G" -> (1L << 30))
    )
      assert(parse("maxUncommittedBytes" -> text).maxUncommittedBytes.contains(bytes))
    assert(parse("maxUncommittedBytes" -> "-1").maxUncommittedBytes.isEmpty)
    assert(parse("maxUncommittedBytes" -> "AUTO").maxUncommittedBytes.isDefined)
    assert(parse("localDir" -> "/data/state").localDir.contains("/data/state"))
    assert(parse("localDir" -> "file:///data/state").localDir.contains("/data/state"))
  }

  test("a bad value and an unknown key name the key, the value and what is allowed") {
    val cases = Seq(
      ("isolationLevel", "SERIALIZABLE", "READ_COMMITTED or READ_UNCOMMITTED"),
      ("maxUncommittedBytes", "0", "-1 for no limit"),
      ("maxUncommittedBytes", "-2", "-1 for no limit"),
      ("maxUncommittedBytes", "lots", "-1 for no limit"),
      ("localDir", "relative/path", "an absolute path"),
      ("localDir", "file://elsewhere/path", "an absolute path"),
      ("localDirMaxBytes", "0", "50g"),
      ("localDirMaxAge", "soon", "7d"),
      ("readRetentionVersions", "513", "from 0 to 512"),
      ("readRetentionTime", "0s", "30s"),
      ("kafka.warnings", "off", "true or false")
    )
    for ((key, value, allowed) <- cases) {
      val message = intercept[InvalidInputException](parse(key -> value)).getMessage
      for (part <- Seq(StoreSettings.Prefix + key, value, allowed)) assert(message.contains(part))
    }
    def said(key: String) = {
      val refused = intercept[InvalidInputException](parse(key -> "x"))
      (refused.problem, refused.remedy)
    }
    def unknown(key: String) = s"Unknown setting ${StoreSettings.Prefix}$key (its value is 'x')."
    val meant = s"Did you mean ${StoreSettings.Prefix}isolationLevel?"
    assert(said("isolationLevle") == ((unknown("isolationLevle"), meant)))
    val (problem, remedy) = said("rocksdb.x")
    assert(problem == unknown("rocksdb.x"))
    assert(StoreSettings.all.forall(setting => remedy.contains(setting.name)))
  }

  test("whether queries are warned is read without looking at other settings") {
    def warns(confs: (String, String)*): Boolean = StoreSettings.warnsOfKafka(
      confs.map { case (k, v) => (StoreSettings.Prefix + k, v) }.toMap + ("other" -> "false")
    )
    assert(warns() && warns("noSuch" -> "1") && !warns("Kafka.Warnings" -> "FALSE"))
    intercept[InvalidInputException](warns("kafka.warnings" -> "perhaps"))
  }

  test("a setting that is there twice, in two spellings, is refused") {
    val twice = intercept[InvalidInputException](parse("localDir" -> "/a", "localdir" -> "/b"))
    val keys = Seq("localDir", "localdir").map(StoreSettings.Prefix + _)
    assert(twice.getMessage.contains(s"is set 2 times, as ${keys.mkString(" and as ")}"))
  }

  test("the table has each setting once, and its default is a value that it takes") {
    val names = StoreSettings.all.map(_.name.toLowerCase(java.util.Locale.ROOT))
    assert(names.distinct == names)
    StoreSettings.all.foreach(setting => setting.default.foreach(setting.parse))
  }

  test("init refuses a bad setting before anything is read or written") {
    val e = intercept[InvalidInputException](
      open(Map(StoreSettings.Prefix + "maxUncommittedBytes" -> "lots"))
    )
    assert(e.getMessage.contains("maxUncommittedBytes"))
    assert(!Files.exists(storeDir))
  }

  test("what is collected of a local directory: sizes and durations as Spark reads them") {
    assert(parse("localDirMaxBytes" -> "50g").localDirMaxBytes.contains(50L << 30))
    assert(parse("localDirMaxAge" -> "12h").localDirMaxAgeMs == 12L * 3600 * 1000)
  }

  test("a reader without a query leaves nothing in localDir") {
    val local = queryDir.resolve("local")
    val provider = open(Map(StoreSettings.Prefix + "localDir" -> local.toString))
    commit(provider, 0, Map("a" -> 1)): Unit
    provider.close()
    assert(!Files.exists(local))
  }
}
