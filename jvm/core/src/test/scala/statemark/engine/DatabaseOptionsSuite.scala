package statemark.engine

import java.io.File
import java.nio.file.Files
import org.rocksdb.{Options, RocksDB}
import org.scalatest.funsuite.AnyFunSuite
import scala.jdk.CollectionConverters._
import statemark.TestStores

/** Goal: no database has RocksDB's periodic statistics, which crash a process that ends (docs/adr/0016). Method:
  * RocksDB writes into each database's directory what it was opened with.
  */
class DatabaseOptionsSuite extends AnyFunSuite with TestStores {
  private val periodic = Set("stats_dump_period_sec", "stats_persist_period_sec")

  test("a base store has no periodic statistics of RocksDB's") {
    newStore("base"): Unit
    assert(periods("base") == periodic.map(_ -> 0).toMap)
  }

  test("nor has a scratch store") {
    val directory = new File(root, "scratch")
    val scratch = new ScratchStore(directory, options)
    try assert(periods("scratch") == periodic.map(_ -> 0).toMap)
    finally scratch.close()
  }

  test("RocksDB's own defaults have both: the tests above can fail") {
    val defaults = new Options().setCreateIfMissing(true)
    val db = RocksDB.open(defaults, new File(root, "defaults").getPath)
    try assert(periods("defaults").values.forall(_ > 0))
    finally {
      db.close()
      defaults.close()
    }
  }

  private def periods(name: String): Map[String, Int] = {
    val file = new File(root, name).listFiles.filter(_.getName.startsWith("OPTIONS-")).max
    Files.readAllLines(file.toPath).asScala.map(_.trim.split('=')).collect {
      case Array(option, value) if periodic(option) => option -> value.toInt
    }.toMap
  }
}
