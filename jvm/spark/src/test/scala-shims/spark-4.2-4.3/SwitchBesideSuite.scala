package statemark.spark.offline

import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.Files
import org.apache.spark.sql.streaming.OutputMode
import scala.util.Random
import statemark.common.InvalidInputException

/** Two switches of one checkpoint at once, whose file operations mix, and of which one may die. */
class SwitchBesideSuite extends OfflineSuite {
  import ProviderClass.{RocksDb, Statemark}

  private object Killed extends RuntimeException("killed")

  test("what the last one says it did is so, and whatever is left can be switched") {
    val job = new Job(_.groupBy("key").count(), OutputMode.Update(), checkpoint)
    job.run(RocksDb, Seq.tabulate(4)(b => Seq.tabulate(5)(i => (i, b.toLong))): _*)
    // Each of the two has something to change.
    val mixed = (0 to 3).map { batch =>
      val text = Files.readString(checkpoint.resolve(s"offsets/$batch"))
      batch -> (if (batch < 2) text else text.replace(RocksDb.className, Statemark.className))
    }
    def begin(): Unit = {
      mixed.foreach { case (batch, text) =>
        Files.write(checkpoint.resolve(s"offsets/$batch"), text.getBytes(UTF_8))
        Files.deleteIfExists(checkpoint.resolve(s"offsets/.$batch.crc"))
        Files.deleteIfExists(checkpoint.resolve(s"offsets/$batch.crc"))
      }
      statemark.spark.LocalDirectory.deleteTree(checkpoint.resolve("_statemark").toFile)
    }
    val random = new Random(30)
    SteppedFileManager.settings.foreach { case (key, value) => spark.conf.set(key, value) }
    try
      for (round <- 0 until 60) {
        begin()
        val at = random.nextInt(70)
        val deathAt = if (random.nextBoolean()) Some(at + random.nextInt(4)) else None
        val (one, other) = if (random.nextBoolean()) (Statemark, RocksDb) else (RocksDb, Statemark)
        val results = SteppedFileManager.beside(at, deathAt, Killed)(to(one))(to(other))
        withClue(s"round $round, operation $at, death at $deathAt, $one: $results: ") {
          results.flatMap(_.failed.toOption)
            .foreach(e => assert(e == Killed || e.isInstanceOf[InvalidInputException]))
          if (results.head.isSuccess)
            assert(pinned().values.toSet == Set[ProviderClass](if (at < ops) one else other))
          else if (results.last.isSuccess && !results.head.failed.toOption.contains(Killed))
            assert(pinned().values.toSet == Set[ProviderClass](other))
          to(Statemark): Unit
          assert(pinned().values.toSet == Set[ProviderClass](Statemark))
        }
      }
    finally SteppedFileManager.settings.keys.foreach(spark.conf.unset)
  }

  private def ops: Int = SteppedFileManager.count

  private def to(provider: ProviderClass): ExitCode = SwitchCommand.run(
    Seq(checkpoint.toString, "--to", provider.shortName, "--observe", "0"),
    context(new RecordingConsole)
  )
}
