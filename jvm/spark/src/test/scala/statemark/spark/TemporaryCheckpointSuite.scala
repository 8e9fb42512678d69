package statemark.spark

import java.io.File
import java.nio.file.{Files, Path}
import org.apache.spark.sql.execution.streaming.state.{StateStore, StateStoreId}
import org.apache.spark.sql.streaming.StreamingQuery
import org.scalatest.BeforeAndAfterEach
import org.scalatest.funsuite.AnyFunSuite
import scala.jdk.CollectionConverters._
import statemark.spark.conf.{LocalRoot, StoreSettings}
import statemark.spark.local.{LocalCollector, LocalDirectory, StoreDirectories, StoreDirectory}
import statemark.spark.offline.local.{DirectoryState, LocalStores => Listed}

/** Goal: a query whose checkpoint is deleted with its process leaves no home: not when it ends, and after a kill none that
  * is still there when the next process has looked. Method: a query into a memory sink, with a checkpoint location
  * and without one; a copy of the local directory, which nobody holds, is what a kill leaves.
  */
class TemporaryCheckpointSuite
    extends AnyFunSuite
    with StoppedMaintenance
    with OneSession
    with BeforeAndAfterEach {
  private val partitions = 2
  private var directory: Path = _

  private def local: Path = directory.resolve("local")

  override protected def beforeEach(): Unit = {
    super.beforeEach()
    directory = Files.createTempDirectory("statemark-temporary-")
    Files.createDirectories(directory.resolve("input"))
    Files.createDirectories(local)
    spark.conf.set(s"${StoreSettings.Prefix}localDir", local.toString)
  }

  override protected def afterEach(): Unit = {
    spark.conf.unset(s"${StoreSettings.Prefix}localDir")
    StateStore.stop()
    LocalDirectory.deleteTree(directory.toFile)
    super.afterEach()
  }

  test("nothing stays of a query whose checkpoint is temporary") {
    running() { query =>
      assert(homes(local).length == partitions && homes(local).forall(StoreDirectory.isInUse))
      assert(query.lastProgress.stateOperators.head.numRowsTotal == 3)
    }
    StateStore.stop()
    assert(contents(local).isEmpty)
  }

  test("what a killed process leaves of it goes with the next look at the directory, at once") {
    val killed = directory.resolve("killed")
    running() { _ =>
      LocalStores.copyTree(local, killed)
      assert(homes(killed).length == partitions)
      assert(collect(local).isEmpty, "its process lives")
    }
    val listed = new Listed(killed.toFile).all
    assert(listed.map(_.state) == Seq.fill(partitions)(DirectoryState.Unusable))
    assert(listed.forall(_.problem.exists(_.startsWith("Temporary: "))))
    val young = homes(killed).head.lastModified
    assert(collect(killed, young).length == partitions && contents(killed).isEmpty)
  }

  test("a query with a checkpoint location keeps its homes, also after a kill") {
    val killed = directory.resolve("killed")
    running("checkpointLocation" -> directory.resolve("checkpoint").toString) { _ =>
      LocalStores.copyTree(local, killed)
    }
    StateStore.stop()
    assert(homes(local).length == partitions)
    assert(collect(killed).isEmpty && homes(killed).length == partitions)
  }

  test("no run takes what a killed process left of it, whatever its checkpoint") {
    def homesOf(isTemporary: Boolean) = new StoreDirectories(
      Some(LocalRoot(local.toFile, isNamed = true)),
      "query",
      StateStoreId("file:/checkpoint", 0, 0),
      isTemporary
    )
    val home = homesOf(isTemporary = true).create()
    val killed = new File(home.path.getParentFile, "temporary-killed")
    LocalStores.copyTree(home.path.toPath, killed.toPath)
    assert(!home.isDurable && !StoreDirectory.isInUse(killed))
    assert(Seq(true, false).flatMap(homesOf(_).abandoned()).isEmpty)
    home.release()
    assert(
      !home.path.exists && collect(local).map(_.getCanonicalFile) == Seq(killed.getCanonicalFile)
    )
    assert(contents(local).isEmpty)
  }

  private def running(options: (String, String)*)(body: StreamingQuery => Unit): Unit = {
    Files.write(
      directory.resolve("input/1.json"),
      (1 to 3).map(k => s"""{"k": $k}""").asJava
    )
    val query = spark.readStream.schema("k INT").json(directory.resolve("input").toString)
      .groupBy("k").count()
      .writeStream.format("memory").queryName("counts").outputMode("complete")
      .options(options.toMap).start()
    try {
      query.processAllAvailable()
      body(query)
    } finally query.stop()
  }

  private def homes(root: Path) = StoreDirectory.all(root.toFile)

  private def collect(root: Path, nowMs: Long = 0) =
    LocalCollector.collect(root.toFile, StoreSettings.from(Map.empty, 1L << 30), nowMs)

  private def contents(root: Path): Seq[Path] = {
    val list = Files.list(root)
    try list.iterator.asScala.toVector
    finally list.close()
  }
}
