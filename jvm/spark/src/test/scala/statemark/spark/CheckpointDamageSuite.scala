package statemark.spark

import java.nio.file.{Files, Path}
import org.apache.spark.SparkException
import org.apache.spark.sql.execution.streaming.state.StateStoreProvider
import org.scalatest.funsuite.AnyFunSuite
import statemark.common.{Causes, StoreUnusableException}
import statemark.spark.local.LoadSource

/** Files of the checkpoint that are gone, cut short or changed: passed over for others that lead to the same
  * version; where nothing does, the load fails by name, and succeeds when the file is back.
  */
class CheckpointDamageSuite extends AnyFunSuite with LocalStores {
  private val stateStore = "spark.sql.streaming.stateStore"
  private val everyThree = Map(
    s"$stateStore.minDeltasForSnapshot" -> "3",
    // Spark's default, but not where spark.testing is set.
    s"$stateStore.autoSnapshotRepair.enabled" -> "true"
  )

  private val formats = Seq("v1" -> Map.empty[String, String], "v2" -> Providers.v2)

  private val damages: Seq[(String, Path => Unit)] = Seq(
    "gone" -> (Files.delete(_)),
    "empty" -> (f => Files.write(f, Array.emptyByteArray): Unit),
    "cut to a byte" -> (f => Files.write(f, Files.readAllBytes(f).take(1)): Unit),
    "cut in half" -> (f => Files.write(f, halfOf(Files.readAllBytes(f))): Unit),
    "cut by a byte" -> (f => Files.write(f, Files.readAllBytes(f).dropRight(1)): Unit),
    "flipped" -> (f => flipByte(f, Files.size(f).toInt / 2))
  )

  for (
    (format, more) <- formats;
    (what, damage) <- damages
  ) {
    val extra = everyThree ++ more

    test(s"the newest changelog: $what ($format)") {
      val ids = history(extra)
      meets(damage, file("7", ".changelog"), 7, ids, elsewhere(extra))
      // Format v2 proves the local version by its id alone.
      if (format == "v2") {
        damage(file("7", ".changelog"))
        val local = open(extra)
        check(local, 7, ids, expected(7))
        assert(keeperOf(local).load.source == LoadSource.Local)
      }
    }

    test(s"the newest changelog, beside a home that needs it: the home stays: $what ($format)") {
      val ids = history(extra, upTo = 6)
      val other = open(elsewhere(extra))
      val all = commits(other, 6 until 7, ids)
      other.close()
      val (later, isMet) = meets(damage, file("7", ".changelog"), 7, all, extra)
      val load = keeperOf(later).load
      if (isMet) assert(load.source == LoadSource.Local && load.replayed == 1)
    }

    test(s"a changelog in the middle: $what ($format)") {
      val ids = history(extra)
      val middle = file("5", ".changelog")
      meets(damage, middle, 5, ids, elsewhere(extra)): Unit
      damage(middle)
      // The snapshot of version 6 does not need it.
      val after = open(elsewhere(extra))
      check(after, 7, ids, expected(7))
      assert(keeperOf(after).load.source == LoadSource.Checkpoint)
    }

    if (Line.hasStoreOf42) for (part <- Seq("zip", "sst"))
      test(s"the newest snapshot's $part: the one before it and changelogs: $what ($format)") {
        val ids = history(extra)
        val (broken, before) = partsOf(part)
        // Nobody knows of a snapshot whose zip is gone: what else is missing is named then.
        val named =
          if (part != "zip" || what != "gone") file("6", ".zip").getFileName.toString
          else if (format == "v1") "1.changelog"
          else "cannot lead to version 7"
        broken.foreach(damage)
        val after = open(elsewhere(extra))
        checkAtSecond(after, 7, ids)
        assert(keeperOf(after).load.source == LoadSource.Checkpoint)
        // Format v1 has no checksum of a zip's last byte, which nobody reads.
        val isRead = what != "cut by a byte" || part != "zip" || format == "v2"
        assert(keeperOf(after).load.replayed == (if (isRead) 4 else 1))
        after.close()
        // Without the other snapshot and the changelogs up to it nothing leads there.
        before.foreach(damage)
        for (v <- 1 to 3) Files.delete(file(s"$v", ".changelog"))
        if (isRead) {
          val e = intercept[SparkException](checkAtSecond(open(elsewhere(extra)), 7, ids))
          assertRefused(e, named)
        }
      }
  }

  if (Line.hasStoreOf42) for ((format, more) <- formats)
    test(
      s"a flipped byte among a snapshot's rows: met by a read, then the snapshot is passed over ($format)"
    ) {
      val extra = everyThree ++ more
      val many = (0 until 5000).map(i => f"row$i%06d" -> i).toMap
      val provider = open(extra)
      var ids = Vector(Option.empty[String], commit(provider, 0, many).stateStoreCkptId)
      ids = commits(provider, 1 until 3, ids)
      provider.doMaintenance()
      provider.close()
      assert(files(".zip").length == 1)
      val sst = sstFiles(storeDir.resolve("SSTs")).maxBy(Files.size(_))
      flipByte(sst, Files.size(sst).toInt / 3)
      val after = open(elsewhere(extra))
      val wanted = many ++ (1 to 2).map(v => s"k$v" -> v)
      val e = intercept[StoreUnusableException](check(after, 3, ids, wanted))
      assert(e.getMessage.contains("cannot read"))
      check(after, 3, ids, wanted)
      assert(keeperOf(after).load.isRepaired && keeperOf(after).load.replayed == 3)
      after.close()
      // Without the changelogs nothing else leads there.
      files(".changelog").foreach(n => Files.delete(storeDir.resolve(n)))
      if (format == "v1") {
        val last = open(elsewhere(extra))
        intercept[StoreUnusableException](check(last, 3, ids, wanted))
        assertRefused(intercept[SparkException](check(last, 3, ids, wanted)), "3.zip")
      }
    }

  // ---- helpers

  /** Versions 1 to 7, snapshots of 3 and 6; the home is closed. */
  private def history(extra: Map[String, String], upTo: Int = 7): Vector[Option[String]] = {
    val provider = open(extra)
    val ids = (0 until upTo).foldLeft(Vector(Option.empty[String])) { (ids, v) =>
      val next = commits(provider, v to v, ids)
      provider.doMaintenance()
      next
    }
    provider.getStore(upTo.toLong, ids.last).abort()
    provider.close()
    assert(files(".zip").map(_.takeWhile(_.isDigit)) == Seq("3", "6"))
    ids
  }

  private def file(version: String, suffix: String): Path = storeDir.resolve(
    files(
      suffix
    ).find(n => n.takeWhile(_.isDigit) == version).getOrElse(fail(s"no $version$suffix"))
  )

  /** A host without local state. */
  private var hosts = 0
  private def elsewhere(extra: Map[String, String]): Map[String, String] = {
    hosts += 1
    extra + (localDir -> queryDir.resolve(s"host$hosts").toString)
  }

  /** Files of the snapshot of version 6 alone, and of that of 3. */
  private def partsOf(part: String): (Seq[Path], Seq[Path]) =
    if (part == "zip") (Seq(file("6", ".zip")), Seq(file("3", ".zip")))
    else {
      val all = sstFiles(storeDir.resolve("SSTs")).sortBy(Files.getLastModifiedTime(_))
      assert(all.length >= 2)
      (Seq(all.last), Seq(all.head))
    }

  /** A load meets the damage of a file: it is refused by the file's name, or nothing that is read has changed.
    * It succeeds when the file is back; the provider that did it, and whether it was refused before.
    */
  private def meets(
      damage: Path => Unit,
      file: Path,
      version: Int,
      ids: Vector[Option[String]],
      extra: Map[String, String]
  ): (StateStoreProvider, Boolean) = {
    val good = Files.readAllBytes(file)
    val time = Files.getLastModifiedTime(file)
    damage(file)
    val provider = open(extra)
    val met =
      try {
        check(provider, version, ids, expected(version))
        None
      } catch { case e: SparkException => Some(e) }
    met.foreach(assertRefused(_, file.getFileName.toString))
    if (Files.notExists(file) || Files.size(file) < good.length - 1) assert(met.isDefined)
    Files.write(file, good)
    Files.setLastModifiedTime(file, time)
    check(provider, version, ids, expected(version))
    (provider, met.isDefined)
  }

  private def assertRefused(e: SparkException, words: String): Unit = {
    assert(e.getCondition.startsWith("CANNOT_LOAD_STATE_STORE"))
    // A query's exception has this message, and nothing of the causes.
    assert(e.getMessage.contains(words))
    assert(e.getMessage.contains("\n  reason: ") && e.getMessage.contains("\n  remedy: "))
  }

  /** Damage that only a read can meet fails the first attempt. */
  private def checkAtSecond(
      provider: StateStoreProvider,
      version: Int,
      ids: Vector[Option[String]]
  ): Unit =
    try check(provider, version, ids, expected(version))
    catch {
      case e: Exception if Causes.of(e).exists(_.isInstanceOf[StoreUnusableException]) =>
        check(provider, version, ids, expected(version))
    }

  private def halfOf(bytes: Array[Byte]): Array[Byte] = bytes.take(bytes.length / 2)
}
