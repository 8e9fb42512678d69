package statemark.engine

import java.io.File
import java.nio.file.Files
import org.rocksdb.{Options, RocksDB}
import org.scalatest.funsuite.AnyFunSuite
import scala.jdk.CollectionConverters._
import statemark.TestStores

/** Goal: no database has RocksDB's periodic statistics, which crash a process that ends (docs/adr/0016), and none a
  * manifest that grows for as long as it is open (docs/adr/0023). Method: RocksDB writes into each database's directory
  * what it was opened with.
  */
class DatabaseOptionsSuite extends AnyFunSuite with TestStores {
  private val periodic = Set("stats_dump_period_sec", "stats_persist_period_sec")
  private val manifest = "max_manifest_file_size"
  private val wanted = periodic.map(_ -> 0L).toMap + (manifest -> EngineOptions.MaxManifestBytes)

  test("a base store has no periodic statistics of RocksDB's, and a bound on its manifest") {
    newStore("base"): Unit
    assert(optionsOf("base") == wanted)
  }

  test("nor has a scratch store") {
    val directory = new File(root, "scratch")
    val scratch = new ScratchStore(directory, options)
    try assert(optionsOf("scratch") == wanted)
    finally scratch.close()
  }

  test("RocksDB's own defaults have others: the tests above can fail") {
    val defaults = new Options().setCreateIfMissing(true)
    val db = RocksDB.open(defaults, new File(root, "defaults").getPath)
    val found = optionsOf("defaults")
    try assert(wanted.forall { case (option, value) => found(option) > value })
    finally {
      db.close()
      defaults.close()
    }
  }

  private def optionsOf(name: String): Map[String, Long] = {
    val file = new File(root, name).listFiles.filter(_.getName.startsWith("OPTIONS-")).max
    Files.readAllLines(file.toPath).asScala.map(_.trim.split('=')).collect {
      case Array(option, value) if wanted.contains(option) => option -> value.toLong
    }.toMap
  }
}
