package statemark.spark

import java.nio.file.{Files, Path}
import java.util.UUID
import org.apache.hadoop.conf.Configuration
import org.apache.spark.sql.execution.streaming.state.StateStoreProvider
import org.scalatest.funsuite.AnyFunSuite
import statemark.spark.errors.FailureKinds
import statemark.spark.process.JvmState
import statemark.transaction.CommitPhase

/** The checkpoint location is on a disk of its own that gets full, and all that is written there says so: which disk,
  * which file, that nothing is lost, and what to do. With room the same store goes on. Hadoop's local file system, which
  * throws an `Error`, where this user may mount a disk; else one that plays a full disk, and the tests say so.
  */
class FullCheckpointSuite extends AnyFunSuite with LocalStores {
  private var disk = Option.empty[Tmpfs]

  override protected def beforeEach(): Unit = {
    super.beforeEach()
    val state = queryDir.resolve("state")
    disk = Tmpfs.mount(state, "size=700k,nr_inodes=300")
    if (disk.isDefined) location = s"file://$state"
    else info("no disk can be mounted here: FullFileSystem plays one")
  }

  override protected def afterEach(): Unit = {
    FullFileSystem.isFull = _ => false
    closeAll()
    disk.foreach(_.unmount())
    super.afterEach()
  }

  override protected def hadoopConf(runId: UUID): Configuration =
    if (disk.isDefined) super.hadoopConf(runId) else FullFileSystem.in(super.hadoopConf(runId))

  private def fill(): Unit = disk.fold { FullFileSystem.isFull = _ => true }(_.fill())

  private def makeRoom(): Unit = {
    FullFileSystem.isFull = _ => false
    disk.foreach(_.empty())
  }

  private def assertSays(failure: Throwable, file: String): Unit = {
    val said = s"${FailureKinds.whyOf(failure)} ${FailureKinds.remedyOf(failure)}"
    assert(FailureKinds.nameOf(failure) == "DiskUnwritable", failure)
    assert(said.startsWith("The checkpoint location is full: "))
    Seq(file, "No space left on device", "Make room there", "Nothing is lost").foreach(words =>
      assert(said.contains(words))
    )
    if (disk.isDefined) assert(said.contains(s"of ${700 * 1024} bytes are free"))
  }

  /** The lines that a user sees of a task's failure. */
  private def assertToldWithStore(failure: Throwable): Unit = {
    val lines = failure.getMessage.linesIterator.map(_.trim).toSeq
    Seq("store: operator 0", "reason: The checkpoint location is full", "remedy: Make room there")
      .foreach(begin => assert(lines.count(_.startsWith(begin)) == 1, lines.mkString("\n")))
  }

  /** The store goes on from version 2, and so does Spark's own provider. */
  private def assertGoesOn(
      provider: StateStoreProvider,
      ids: Vector[Option[String]],
      extra: Map[String, String]
  ): Unit = {
    makeRoom()
    val all = commits(provider, 2 until 4, ids)
    check(provider, 4, all, expected(4))
    provider.close()
    check(open(extra), 4, all, expected(4))
    assert(rowsAt(4, all.last, extra, Providers.sparksOwn) == expected(4))
  }

  private def unfinished: Seq[String] =
    Option(storeDir.toFile.list()).toSeq.flatten.filter(_.endsWith(".tmp"))

  for ((format, extra) <- Seq("v1" -> Map.empty[String, String], "v2" -> Providers.v2)) {
    test(s"a changelog cannot be begun ($format)") {
      assume(disk.isDefined, "FullFileSystem takes every new file; mount is needed")
      val provider = open(extra)
      val ids = commits(provider, 0 until 2)
      disk.foreach(_.takeAllFiles())
      val store = provider.getStore(2, ids.last)
      val e = intercept[Throwable](put(store, Map("k2" -> 2)))
      assertSays(e, "/3")
      val lines = e.getMessage.linesIterator.toSeq
      assert(lines.exists(_.contains("reason: The checkpoint location is full")))
      store.abort()
      assertGoesOn(provider, ids, extra)
    }

    test(s"a row of a batch cannot be written ($format)") {
      val provider = open(extra)
      val ids = commits(provider, 0 until 2)
      val store = provider.getStore(2, ids.last)
      put(store, Map("k2" -> 2))
      fill()
      val e = intercept[Throwable](put(store, (0 until 60000).map(i => s"many-$i" -> i).toMap))
      assertSays(e, s"${storeDir.getFileName}/3")
      store.abort()
      assert(unfinished.isEmpty)
      assertGoesOn(provider, ids, extra)
    }

    test(s"a small changelog cannot be committed ($format)") {
      val provider = open(extra)
      val ids = commits(provider, 0 until 2)
      val store = provider.getStore(2, ids.last)
      put(store, Map("k2" -> 2))
      fill()
      val e = intercept[Throwable](store.commit())
      assertSays(e, ".changelog")
      assertToldWithStore(e)
      store.abort()
      // Spark leaves what it had begun, where it is the close that fails.
      assert(files(".changelog").length == 2)
      assertGoesOn(provider, ids, extra)
    }

    if (Line.hasStoreOf42) test(s"a commit's snapshot cannot be uploaded ($format)") {
      JvmState.observer.set(phase => if (isFullAt.contains(phase)) fill())
      val provider = open(extra)
      val ids = commits(provider, 0 until 2)
      val store = Line.getStore(provider, 2, ids.last, force = true)
      put(store, Map("k2" -> 2))
      isFullAt = Some(CommitPhase.ChangelogDurable)
      val e =
        try intercept[Throwable](store.commit())
        finally isFullAt = None
      assertSays(e, ".zip")
      assertToldWithStore(e)
      store.abort()
      assert(parts == Nil, "parts of files would take the room that the disk gets")
      assertGoesOn(provider, ids, extra)
    }

    test(s"maintenance cannot upload a snapshot ($format)") {
      val due = extra + ("spark.sql.streaming.stateStore.minDeltasForSnapshot" -> "1")
      val provider = open(due)
      val ids = commits(provider, 0 until 2)
      fill()
      provider.doMaintenance()
      assert(files(".zip").isEmpty && parts == Nil && unfinished.isEmpty)
      makeRoom()
      provider.doMaintenance()
      assert(files(".zip").nonEmpty)
      assertGoesOn(provider, ids, due)
    }
  }

  /** The phase of a commit at which the disk gets full. */
  @volatile private var isFullAt = Option.empty[CommitPhase]

  /** The SST files of snapshots. */
  private def parts: Seq[String] = {
    val directory: Path = storeDir.resolve("SSTs")
    if (Files.exists(directory)) directory.toFile.list().toSeq else Nil
  }
}
