package statemark.spark.offline

import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Path => JPath}
import statemark.spark.offline.checkpoint.ProviderClass

/** Two switches of one checkpoint at once. */
class SwitchBesideSuite extends CommandsBeside {
  import CommandsBeside._
  import ProviderClass.{Hdfs, RocksDb, Statemark}

  private val switches = Seq(Statemark, RocksDb).map(switching(_))

  override protected def recover(at: JPath): Unit = ()

  /** Half of the entries are on each of two providers, so that any switch has something to change. */
  private def mixed(): Start = {
    val at = directory.resolve("mixed")
    counts(at).run(RocksDb, history: _*): Unit
    for (batch <- 2 to 3) {
      val entry = at.resolve(s"offsets/$batch")
      val text = Files.readString(entry).replace(RocksDb.className, Statemark.className)
      Files.write(entry, text.getBytes(UTF_8))
      Files.deleteIfExists(at.resolve(s"offsets/.$batch.crc"))
    }
    Start("two providers", at, switches)
  }

  test("entries of two providers: each ends as it says, or refuses") {
    interleave(Seq(mixed()), pairs(60), every = 20)
  }

  test("the same where a rename is a copy") {
    interleave(Seq(mixed()), pairs(40), every = 40, copies = true)
  }

  test("state that is imported: each ends as it says, or refuses") {
    val at = directory.resolve("hdfs")
    counts(at).run(Hdfs, history: _*): Unit
    interleave(Seq(Start("to be imported", at, switches)), pairs(20), every = 5)
  }
}
