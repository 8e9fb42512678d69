package statemark.spark

import java.nio.file.Files
import org.apache.spark.sql.execution.streaming.state.StateStoreProvider
import org.scalatest.funsuite.AnyFunSuite
import statemark.testkit.{FileCounts, FileEvent}

/** When snapshots are taken, of what, and what Spark's own provider makes of them. */
class SnapshotSuite extends AnyFunSuite with Providers {
  private val everyThree = Map("spark.sql.streaming.stateStore.minDeltasForSnapshot" -> "3")
  private def retains(batches: Int) = Map(
    "spark.sql.streaming.minBatchesToRetain" -> batches.toString,
    "spark.sql.streaming.ratioExtraSpaceAllowedInCheckpoint" -> "0"
  )

  test("a store without a query: its last version is taken as committed") {
    val provider = open(everyThree)
    for (v <- 0 until 3) commit(provider, v, Map(s"k$v" -> v)): Unit
    provider.doMaintenance()
    assert(files(".zip") == Seq("3.zip"))
    assert(sparkReads("3.zip") == Map("k0" -> 0, "k1" -> 1, "k2" -> 2))
  }

  test(
    "the last version of an idle query gets into a snapshot once its batch is in the commit log"
  ) {
    val provider = open(everyThree)
    Files.createDirectories(queryDir.resolve("commits"))
    for (v <- 0 until 3) commit(provider, v, Map(s"k$v" -> v)): Unit
    provider.doMaintenance()
    assert(files(".zip").isEmpty, "batch 2 is not committed")
    Files.write(queryDir.resolve("commits/2"), "v1\n{\"nextBatchWatermarkMs\":0}".getBytes)
    provider.doMaintenance()
    assert(files(".zip") == Seq("3.zip"))
    // The base stays where it was: a rewind is as cheap as before.
    val store = provider.getStore(2)
    assert(rows(store) == Map("k0" -> 0, "k1" -> 1))
    store.abort()
  }

  test("in format v2 a commit log that names another attempt is no proof") {
    val provider = open(everyThree ++ Providers.v2)
    Files.createDirectories(queryDir.resolve("commits"))
    var id: Option[String] = None
    for (v <- 0 until 3) id = commit(provider, v, Map(s"k$v" -> v), id).stateStoreCkptId
    def log(ids: String): Unit = {
      val entry = s"""v2\n{"nextBatchWatermarkMs":0,"stateUniqueIds":{"0":[["$ids"]]}}"""
      Files.write(queryDir.resolve("commits/2"), entry.getBytes): Unit
    }
    log("somebody-else")
    provider.doMaintenance()
    assert(files(".zip").isEmpty)
    // The entry of a batch never changes during a run; a new run reads it anew.
    log(id.get)
    val next = open(everyThree ++ Providers.v2)
    val store = next.getStore(2, lineageId(2))
    put(store, Map("k2" -> 2))
    store.commit(): Unit
    log(store.getStateStoreCheckpointInfo().stateStoreCkptId.get)
    next.doMaintenance()
    assert(files(".zip").map(_.takeWhile(_ != '_')) == Seq("3"))
  }

  if (Line.hasStoreOf42)
    test("a snapshot inside a commit holds the new version, the base stays at the old one") {
      val provider = open()
      commit(provider, 0, (0 until 200).map(i => s"k$i" -> i).toMap): Unit
      commit(provider, 1, Map("k0" -> -1), force = true): Unit
      assert(files(".zip") == Seq("2.zip") && files(".changelog") == Seq(
        "1.changelog",
        "2.changelog"
      ))
      assert(sparkReads("2.zip") == (1 until 200).map(i => s"k$i" -> i).toMap + ("k0" -> -1))
      val rewound = provider.getStore(1)
      assert(rows(rewound) == (0 until 200).map(i => s"k$i" -> i).toMap)
      rewound.abort()
    }

  if (Line.hasStoreOf42) test("a snapshot of an attempt that is repeated without one is replaced") {
    val provider = open()
    commit(provider, 0, Map("a" -> 0)): Unit
    commit(provider, 1, Map("lost" -> 1), force = true): Unit
    commit(provider, 1, Map("kept" -> 2)): Unit
    assert(sparkReads("2.zip") == Map("a" -> 0, "kept" -> 2))
    assert(rowsAt(2) == Map("a" -> 0, "kept" -> 2))
  }

  if (Line.hasStoreOf42)
    test("a snapshot that another executor's attempt left is replaced as well") {
      val here = open()
      commit(here, 0, Map("a" -> 0)): Unit
      here.close()
      val elsewhere = open()
      commit(elsewhere, 1, Map("lost" -> 1), force = true): Unit
      val again = open()
      commit(again, 1, Map("kept" -> 2)): Unit
      assert(sparkReads("2.zip") == Map("a" -> 0, "kept" -> 2))
      assert(rowsAt(2) == Map("a" -> 0, "kept" -> 2))
    }

  test("where base and prepared version are due it is the base: its files are all shared") {
    val provider = open(everyThree)
    for (v <- 0 until 4) commit(provider, v, Map(s"k$v" -> v)): Unit
    provider.doMaintenance()
    assert(files(".zip") == Seq("3.zip"))
    assert(sparkReads("3.zip") == Map("k0" -> 0, "k1" -> 1, "k2" -> 2))
    for (v <- 4 until 7) commit(provider, v, Map(s"k$v" -> v)): Unit
    provider.doMaintenance()
    assert(files(".zip") == Seq("3.zip", "6.zip"))
    val sent = storeDir.resolve("SSTs").toFile.list().filterNot(_.startsWith("."))
    assert(sent.length == 2, "one for each time: the first is not sent again")
    assert(rowsAt(7) == (0 until 7).map(i => s"k$i" -> i).toMap)
  }

  test("SST files born in a copy have names of their own, hard links are sent once") {
    val provider = open(Map("spark.sql.streaming.stateStore.minDeltasForSnapshot" -> "1"))
    // Each prepared version is exported from a copy, in which the same file numbers come again.
    def names = storeDir.resolve("SSTs").toFile.list().filterNot(_.startsWith(".")).toSeq
    def hasNumberTwice = names.map(_.takeWhile(_ != '-')).groupBy(identity).exists(_._2.size > 1)
    var versions = 0
    // Which of the numbers come again depends on when RocksDB compacts.
    while (versions < 6 || (!hasNumberTwice && versions < 30)) {
      commit(provider, versions, (0 until 50).map(i => s"k$versions-$i" -> i).toMap): Unit
      provider.doMaintenance()
      versions += 1
      assert(sparkReads(s"$versions.zip").size == 50 * versions)
    }
    assert(names.distinct == names && hasNumberTwice, names.mkString(" "))
    for (v <- 1 to versions) assert(rowsAt(v).size == 50 * v, s"version $v")
  }

  if (Line.hasStoreOf42) test("an empty store at a version writes a snapshot and no changelog") {
    val provider = open()
    val store = Line.getStore(provider, 7, None, force = false, loadEmpty = true)
    put(store, Map("only" -> 1))
    assert(store.commit() == 8)
    assert(files(".zip") == Seq("8.zip") && files(".changelog").isEmpty)
    assert(rowsAt(8) == Map("only" -> 1))
    assert(rowsAt(8, className = Providers.sparksOwn) == Map("only" -> 1))
  }

  for (back <- Seq(0, 1, 3))
    test(s"rolled back to version $back, no snapshot of the history before is served") {
      val everyVersion = Map("spark.sql.streaming.stateStore.minDeltasForSnapshot" -> "1")
      val first = open(everyVersion)
      for (v <- 0 until 8) {
        commit(first, v, Map(s"k$v" -> v)): Unit
        first.doMaintenance()
      }
      first.close()
      assert(files(".zip") == (1 to 8).map(v => s"$v.zip"))

      // Two runs, each of which meets snapshots that it has not written.
      for (versions <- Seq(back until back + 2, back + 2 until back + 4)) {
        val again = open()
        for (v <- versions) commit(again, v, Map(s"repaired$v" -> v)): Unit
        again.close()
      }
      val kept = (0 until back).map(v => s"k$v" -> v)
      val ours = classOf[StatemarkStateStoreProvider].getName
      for (v <- math.max(back, 1) to back + 4; className <- Seq(ours, Providers.sparksOwn))
        assert(
          rowsAt(v, className = className) ==
            (kept ++ (back until v).map(i => s"repaired$i" -> i)).toMap,
          s"version $v by $className"
        )
    }

  for {
    (format, extra) <- Seq("v1" -> Map.empty[String, String], "v2" -> Providers.v2)
    (how, versions) <- Seq("has not passed" -> 5, "has passed" -> 10)
  }
    test(
      s"a store of an earlier run whose version the next one $how takes no snapshot of what was rolled back ($format)"
    ) {
      val log = Files.createDirectories(queryDir.resolve("commits"))
      def commits(
          provider: StateStoreProvider,
          versions: Range,
          of: String,
          before: Vector[Option[String]]
      ): Vector[Option[String]] = versions.foldLeft(before) { (ids, v) =>
        val id = commit(provider, v, Map(s"$of$v" -> v), ids.last).stateStoreCkptId
        Files.write(log.resolve(v.toString), Providers.commitEntry(id).getBytes): Unit
        ids :+ id
      }
      val first = open(everyThree ++ extra)
      val before = commits(first, 0 until 8, "k", Vector(None))
      for (v <- 3 until 8) Files.delete(log.resolve(v.toString))
      val again = open(everyThree ++ extra)
      val ids = commits(again, 3 until versions, "repaired", before.take(4))
      first.doMaintenance() // as Spark has it before it is unloaded
      assert(files(".zip").isEmpty)
      val all = commits(again, versions until versions + 4, "repaired", ids)
      again.doMaintenance()
      assert(files(".zip").length == 1, "of the history that counts it takes one")
      for (v <- versions to versions + 4)
        assert(rowsAt(v, all(v), extra) == ((0 until 3).map(i => s"k$i" -> i) ++
          (3 until v).map(i => s"repaired$i" -> i)).toMap)
    }

  test(
    "maintenance of a store that was never loaded leaves the checkpoint alone, and says nothing"
  ) {
    commit(open(), 0, Map("a" -> 0)): Unit
    val unloaded = open()
    FileCounts.reset()
    unloaded.doMaintenance()
    assert(FileEvent.kinds.map(kind => FileCounts.count(kind.name, location)).sum == 0)
  }

  for ((format, extra) <- Seq("v1" -> Map.empty[String, String], "v2" -> Providers.v2))
    test(s"retention after a rollback keeps what the query goes on from ($format)") {
      val everyVersion =
        extra + ("spark.sql.streaming.stateStore.minDeltasForSnapshot" -> "1")
      def commits(
          provider: StateStoreProvider,
          versions: Range,
          before: Vector[Option[String]]
      ): Vector[Option[String]] = versions.foldLeft(before) { (ids, v) =>
        val id = commit(provider, v, Map(s"k$v" -> v), ids.last).stateStoreCkptId
        provider.doMaintenance()
        ids :+ id
      }
      val first = open(everyVersion)
      val before = commits(first, 0 until 12, Vector(None))
      first.close()
      var ids = before.take(4)
      val again = open(everyVersion ++ retains(2))
      while (ids.length <= 16) {
        val version = ids.length
        ids = commits(again, version - 1 until version, ids)
        // The versions that retention names, and none of the history before.
        for (v <- math.max(version - 1, 3) to version)
          assert(rowsAt(v, ids(v), extra) == (0 until v).map(i => s"k$i" -> i).toMap, s"version $v")
      }
      assert(files(".zip").length <= 4, "what retention does not name any more is deleted")
    }

  if (Line.hasStoreOf42)
    test("retention keeps what a batch that may be run again goes on from") {
      val provider = open(retains(1))
      for (v <- 0 until 4) commit(provider, v, Map(s"k$v" -> v), force = true): Unit
      provider.doMaintenance()
      assert(files(".zip") == Seq("3.zip", "4.zip"))
      assert(rowsAt(3) == (0 until 3).map(v => s"k$v" -> v).toMap)
    }

  test("retention deletes what no retained version needs") {
    val provider = open(everyThree ++ retains(2))
    for (v <- 0 until 12) {
      commit(provider, v, Map(s"k$v" -> v)): Unit
      provider.doMaintenance()
    }
    assert(!files(".zip").contains("3.zip") && !files(".changelog").contains("1.changelog"))
    for (v <- 11 to 12) assert(rowsAt(v).size == v)
  }

  if (Line.hasStoreOf42) test("retention deletes checksum files with the files that they are of") {
    val provider = open(everyThree ++ Providers.v2 ++ Map(
      "spark.sql.streaming.minBatchesToRetain" -> "1",
      "spark.sql.streaming.ratioExtraSpaceAllowedInCheckpoint" -> "0"
    ))
    val checksum = ".crc"
    var id: Option[String] = None
    def step(provider: StateStoreProvider, version: Long): Unit = {
      id = commit(provider, version, Map(s"k$version" -> 1), id).stateStoreCkptId
      provider.doMaintenance()
    }
    for (v <- 0 until 7) step(provider, v)
    val data = files(".zip") ++ files(".changelog")
    assert(files(".zip").map(_.takeWhile(_ != '_')) == Seq("6"))
    assert(files(".changelog").map(_.takeWhile(_ != '_')) == Seq("6", "7"))
    assert(files(checksum) == data.map(_ + checksum).sorted)
    provider.close()

    val without = open(everyThree ++ Providers.v2 ++ Map(
      "spark.sql.streaming.checkpoint.fileChecksum.enabled" -> "false",
      "spark.sql.streaming.minBatchesToRetain" -> "1",
      "spark.sql.streaming.ratioExtraSpaceAllowedInCheckpoint" -> "0"
    ))
    for (v <- 7 until 14) step(without, v)
    assert(files(checksum).isEmpty)
    assert(rowsAt(14, id, Providers.v2).size == 14)
  }

  private def lineageId(version: Long): Option[String] =
    files(".changelog").find(_.startsWith(s"${version}_"))
      .map(_.stripSuffix(".changelog").drop(version.toString.length + 1))

  /** What Spark's provider finds in the snapshot alone: changelogs are out of its way. */
  private def sparkReads(zip: String): Map[String, Int] = {
    val hidden = files(".changelog").map(n => storeDir.resolve(n) -> queryDir.resolve(s"hidden-$n"))
    hidden.foreach { case (from, to) => Files.move(from, to): Unit }
    try rowsAt(zip.stripSuffix(".zip").toLong, className = Providers.sparksOwn)
    finally hidden.foreach { case (from, to) => Files.move(to, from): Unit }
  }
}
