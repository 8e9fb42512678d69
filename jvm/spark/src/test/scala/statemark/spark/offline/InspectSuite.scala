package statemark.spark.offline

import java.nio.file.{Files, Path}
import org.json4s.jackson.JsonMethods.parse
import org.json4s.{JInt, JNothing, JString, JValue}
import org.scalatest.funsuite.AnyFunSuite
import statemark.spark.Line
import statemark.spark.conf.ProviderClass
import statemark.spark.offline.cli.ExitCode
import statemark.spark.offline.inspect.InspectCommand

class InspectSuite extends AnyFunSuite with QueryCheckpoints {
  private val often = Map(
    s"${prefix}minDeltasForSnapshot" -> "1",
    s"${prefix}maintenanceInterval" -> "50ms"
  )

  private def json(checkpoint: Path): JValue = {
    val (code, lines) = command(InspectCommand, checkpoint, _ => (), "--json")
    assert(code == ExitCode.Ok && lines.length == 1)
    parse(lines.head)
  }

  private def text(checkpoint: Path): Seq[String] =
    command(InspectCommand, checkpoint, _ => ())._2

  test("a checkpoint of Statemark: what it holds, and how large") {
    val checkpoint = newDirectory()
    val settings = often + (s"${prefix}checkpointFormatVersion" -> "2")
    runQuery(
      checkpoint,
      ProviderClass.Statemark,
      settings,
      4,
      between = () => Waiters.short.pause(0)
    )
    val facts = json(checkpoint)
    assert(facts \ "provider" == JString(ProviderClass.Statemark.className))
    assert(facts \ "checkpointFormatVersion" == JInt(2) && facts \ "partitions" == JInt(2))
    assert(facts \ "lastPlannedBatch" == JInt(3) && facts \ "lastCommittedBatch" == JInt(3))
    assert(facts \ "settings" \ "codec" == JString("lz4"))
    assert(facts \ "settings" \ "fileChecksums" == JString(Line.hasStoreOf41.toString))
    val store = (facts \ "operators")(0) \ "stores"
    assert((facts \ "operators")(0) \ "name" == JString("stateStoreSave"))
    assert((facts \ "operators")(0) \ "stateFormatVersion" == JString("2"))
    val partition = (store(0) \ "partitions")(0)
    assert(partition \ "oldestVersion" == JInt(1) && partition \ "newestVersion" == JInt(4))
    val disk = checkpoint.resolve("state/0/0")
    def bytes(folder: Path, suffix: String): JValue =
      JInt(names(folder, suffix).map(n => Files.size(folder.resolve(n))).sum)
    assert(partition \ "changelogBytes" == bytes(disk, ".changelog"))
    assert(partition \ "snapshotBytes" == bytes(disk, ".zip"))
    assert(partition \ "sstBytes" == bytes(disk.resolve("SSTs"), ".sst"))
    assert(partition \ "snapshots" == JInt(names(disk, ".zip").length))
    assert((partition \ "rows") != JNothing && (partition \ "unknown") == JNothing)
    val lines = text(checkpoint)
    assert(lines.exists(_.startsWith("operator 0: stateStoreSave, state format 2")), lines)
    assert(
      lines.exists(l => l.contains("times the mean")) && lines.exists(_.contains(" ####")),
      lines
    )
  }

  test(
    "what is not known is said: no snapshot yet, rows of the HDFS-backed provider, a damaged snapshot"
  ) {
    val fresh = newDirectory()
    runQuery(fresh, ProviderClass.Statemark, Map(s"${prefix}maintenanceInterval" -> "1h"), 1)
    assert(text(fresh).exists(_.contains("rows not known (no snapshot yet)")))
    val hdfs = newDirectory()
    runQuery(hdfs, ProviderClass.Hdfs, often, 2, between = () => Waiters.short.pause(0))
    assert(text(hdfs).exists(_.contains("rows not known (")), text(hdfs))
    assert(((json(hdfs) \ "operators")(0) \ "stores")(0) \ "rows" == JNothing)
    val damaged = newDirectory()
    runQuery(damaged, ProviderClass.RocksDb, often, 2, between = () => Waiters.short.pause(0))
    val copy = copyOf(damaged)
    val store = copy.resolve("state/0/0")
    val zip = names(store, ".zip").last
    Files.write(store.resolve(zip), Array[Byte](1, 2))
    Files.deleteIfExists(store.resolve(s"$zip.crc"))
    assert(text(copy).exists(_.contains("its zip is damaged")), text(copy))
  }

  test("the pinned provider, and the batch at which it changes") {
    val checkpoint = newDirectory()
    runQuery(checkpoint, ProviderClass.RocksDb, often, 2)
    val offset = checkpoint.resolve("offsets/1")
    Files.deleteIfExists(checkpoint.resolve("offsets/.1.crc"))
    val changed = Files.readString(offset)
      .replace(ProviderClass.RocksDb.className, ProviderClass.Statemark.className)
    Files.writeString(offset, changed)
    assert(
      text(checkpoint).exists(_.contains(s"; from batch 1: ${ProviderClass.Statemark.className}"))
    )
    assert((json(checkpoint) \ "providers")(1) \ "fromBatch" == JInt(1))
  }
}
