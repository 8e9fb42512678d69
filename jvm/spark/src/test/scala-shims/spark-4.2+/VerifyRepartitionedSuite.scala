package statemark.spark.offline

import java.nio.file.{Files, Path}
import org.apache.spark.sql.execution.streaming.state.StateStore
import org.apache.spark.sql.streaming.StreamingQueryException
import org.scalatest.concurrent.Eventually.{eventually, timeout}
import org.scalatest.funsuite.AnyFunSuite
import org.scalatest.time.{Seconds, Span}
import scala.jdk.CollectionConverters._
import statemark.common.{Causes, Clock}
import statemark.spark.StoppedMaintenance
import statemark.spark.conf.{ProviderClass, StoreSettings}
import statemark.spark.offline.cli.{CommandContext, ExitCode}
import statemark.spark.offline.repartition.RepartitionResult
import statemark.spark.offline.verify.VerifyCommand

/** Headers lead back to the snapshot that a repartition wrote, and not to version 1: no changelog leads to that
  * snapshot. What `verify` says of such a checkpoint is what a start does.
  */
class VerifyRepartitionedSuite
    extends AnyFunSuite
    with StoppedMaintenance
    with RepartitionedQueries {
  private val query = {
    val counted = StatefulQueries.all.find(_.name == "aggregation").get
    // One version for each batch of input.
    counted.copy(settings = Map("spark.sql.streaming.noDataMicroBatches.enabled" -> "false"))
  }
  private val batches = StatefulQueries.batches

  private def written(provider: String) = query.settings ++ Map(
    s"${prefix}providerClass" -> provider,
    s"${prefix}rocksdb.changelogCheckpointing.enabled" -> "true",
    s"${prefix}checkpointFormatVersion" -> "2",
    s"${prefix}minDeltasForSnapshot" -> "1",
    s"${prefix}maintenanceInterval" -> "50ms"
  )

  private lazy val expected =
    withSettings(query.settings + (s"${prefix}providerClass" -> ProviderClass.RocksDb.className)) {
      val control = new Running(query)
      batches.map(batch => control.process(Seq(batch)).head)
    }

  private def versions(store: Path, suffix: String): Map[Long, Path] = {
    val listed = Files.list(store)
    try listed.iterator.asScala
        .filter(f => f.getFileName.toString.endsWith(suffix) && !Files.isHidden(f))
        .map(f => f.getFileName.toString.takeWhile(_.isDigit).toLong -> f).toMap
    finally listed.close()
  }

  /** A checkpoint that a repartition and one batch after it have written, and the snapshot of that batch in one store. */
  private def onRepartitioned(provider: String)(body: (Running, Path) => Unit): Unit =
    withSettings(written(provider)) {
      val running = new Running(query)
      assert(running.process(batches.take(2)) == expected.take(2))
      assert(running.repartition().run(3).isInstanceOf[RepartitionResult.Moved])
      val store = running.checkpoint.resolve("state/0/0")
      val moved = versions(store, ".zip").keys.max
      assert(versions(store, ".changelog").keys.forall(_ < moved))
      val after = running.start()
      try {
        running.add(batches(2))
        after.processAllAvailable()
        eventually(timeout(Span(60, Seconds)))(assert(versions(store, ".zip").contains(moved + 1)))
      } finally after.stop()
      body(running, versions(store, ".zip")(moved + 1))
    }

  /** Such a checkpoint of Statemark, the snapshot cut. */
  private def onCutSnapshot(body: (Running, String) => Unit): Unit =
    onRepartitioned(statemark) { (running, newest) =>
      val bytes = Files.readAllBytes(newest)
      Files.write(newest, bytes.take(bytes.length / 2))
      Seq(s"${newest.getFileName}.crc", s".${newest.getFileName}.crc")
        .foreach(name => Files.deleteIfExists(newest.resolveSibling(name)))
      body(running, newest.getFileName.toString)
    }

  private def verified(checkpoint: Path, words: String*): (ExitCode, Seq[String]) = {
    val console = new RecordingConsole
    val context = new CommandContext(spark, console, Clock.system, _ => ())
    (CommandLine.run(VerifyCommand, checkpoint.toString +: words, context), console.results)
  }

  /** The next batch, of a start that finds no store in this process and no local state. */
  private def next(running: Running): Seq[String] = {
    StateStore.stop()
    val elsewhere = Files.createTempDirectory("statemark-elsewhere-").toString
    withSettings(Map(s"${StoreSettings.Prefix}localDir" -> elsewhere)) {
      running.process(Seq(batches(3))).head
    }
  }

  private val repair = s"${prefix}autoSnapshotRepair.enabled"

  for (provider <- Seq(statemark, ProviderClass.RocksDb.className))
    test(s"healthy: ${provider.split('.').last}")(onRepartitioned(provider) { (running, _) =>
      for (words <- Seq(Nil, Seq("--deep"))) {
        val (code, lines) = verified(running.checkpoint, words: _*)
        assert(code == ExitCode.Ok && lines.length == 1, lines)
      }
    })

  test("the snapshot of the repartition restores what the newest one did") {
    withSettings(Map(repair -> "true"))(onCutSnapshot { (running, newest) =>
      val (code, lines) = verified(running.checkpoint)
      assert(code == ExitCode.Findings, lines)
      val told = lines.filter(_.startsWith(s"state/0/0/$newest: damaged: "))
      assert(told.length == 1 && told == lines.filter(_.startsWith("state/")), lines)
      assert(lines.exists(_.contains("other files restore them")), lines)
      assert(!lines.exists(_.contains("nothing else restores")), lines)
      assert(next(running) == expected(3))
    })
  }

  test("without automatic repair nothing restores it") {
    withSettings(Map(repair -> "false"))(onCutSnapshot { (running, _) =>
      val (code, lines) = verified(running.checkpoint)
      assert(code == ExitCode.Findings && lines.exists(_.contains("nothing else restores")), lines)
      val error = intercept[StreamingQueryException](next(running))
      assert(Causes.of(error).exists(_.toString.contains("ZLIB")), error)
    })
  }
}
