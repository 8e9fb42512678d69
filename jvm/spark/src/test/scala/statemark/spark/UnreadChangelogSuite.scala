package statemark.spark

import java.io.{
  EOFException,
  FileNotFoundException,
  FilterInputStream,
  IOException,
  InputStream,
  InterruptedIOException
}
import java.net.URI
import java.util.UUID
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs._
import org.apache.hadoop.security.AccessControlException
import org.apache.spark.sql.execution.streaming.state.StateStoreConf
import org.apache.spark.sql.internal.SQLConf
import org.scalatest.funsuite.AnyFunSuite
import statemark.common.Causes
import statemark.spark.offline.verify.{CommittedVersion, StoreTask, StoreVerifier, VerifySettings}
import statemark.spark.snapshot.SnapshotSearch

/** I6 where the checkpoint location does not answer while a load asks whether a snapshot is of a history that is gone: only
  * a changelog that is known to be damaged says nothing against the snapshot beside it.
  */
class UnreadChangelogSuite extends AnyFunSuite with LocalStores {
  private val stateStore = "spark.sql.streaming.stateStore"
  private val everyTwo = Map(s"$stateStore.minDeltasForSnapshot" -> "2")
  private val withChangelogs =
    Map(s"$stateStore.rocksdb.changelogCheckpointing.enabled" -> "true")

  // Where homes are kept, a proof is read as well.
  override protected def settings: Map[String, String] = super.settings - localDir

  override protected def beforeEach(): Unit = {
    super.beforeEach()
    location = location.replaceFirst("^[a-z]+:", s"${UnreadFiles.Scheme}:")
  }

  override protected def afterEach(): Unit = {
    UnreadFiles.fault = None
    super.afterEach()
  }

  override protected def hadoopConf(runId: UUID): Configuration = {
    val conf = super.hadoopConf(runId)
    conf.set(s"fs.${UnreadFiles.Scheme}.impl", classOf[UnreadFiles].getName)
    conf.set(s"fs.AbstractFileSystem.${UnreadFiles.Scheme}.impl", classOf[UnreadFs].getName)
    conf
  }

  /** Statemark's snapshot of version 4, and a changelog of it that Spark's provider wrote after a rollback to 2. */
  private def twoHistories(settings: Map[String, String] = Map.empty): Unit = {
    val provider = open(everyTwo ++ settings)
    (0 until 4).foreach { v =>
      commit(provider, v.toLong, Map(s"k$v" -> v)): Unit
      provider.getStore(v + 1L, None).abort()
      provider.doMaintenance()
    }
    provider.close()
    assert(files(".zip").contains("4.zip"))
    val sparks = open(withChangelogs ++ settings, Providers.sparksOwn)
    (2 until 4).foreach(v => commit(sparks, v.toLong, Map(s"k$v" -> (v + 100))): Unit)
    sparks.close()
  }

  private val wanted = Map("k0" -> 0, "k1" -> 1, "k2" -> 102, "k3" -> 103)

  private val away = "the location does not answer"

  private val faults = Seq[(String, Int, () => Throwable)](
    ("is not answered", 0, () => new IOException(away)),
    ("breaks off", 8, () => new IOException(away)),
    ("ends too soon, as a lost connection looks like", 0, () => new EOFException(away)),
    ("ends too soon in the middle", 8, () => new IOException(away, new EOFException)),
    ("fails as Hadoop's local files do", 8, () => new Error(away)),
    ("finds its client closed", 8, () => new IllegalStateException(away)),
    ("is interrupted", 8, () => new InterruptedIOException(away))
  )

  for ((how, after, failure) <- faults; codec <- Seq("lz4", "zstd"))
    test(s"a read of a changelog that $how fails the load, with $codec") {
      val compressed = Map(s"$stateStore.compression.codec" -> codec)
      twoHistories(compressed)
      UnreadFiles.fault = Some(UnreadFiles.Fault("4.changelog", after, failure))
      val provider = open(compressed)
      val e = intercept[Throwable] {
        val store = provider.getStore(4, None)
        try fail(s"it has ${rows(store)}")
        finally store.abort()
      }
      val causes = Causes.of(e).toSeq
      assert(causes.exists(_.getMessage.contains("4.changelog cannot be read")), causes)
      assert(causes.exists(_.getMessage.contains(away)), causes)
      assert(causes.exists(_.isInstanceOf[InterruptedException]) == (how == "is interrupted"))
      UnreadFiles.fault = None
      check(provider, 4, Vector.fill(5)(None), wanted)
    }

  test("a read of a changelog's end that breaks off fails the load") {
    twoHistories()
    val lost = UnreadFiles.Fault("4.changelog", 0, () => new EOFException(away), isOfEnd = true)
    UnreadFiles.fault = Some(lost)
    val provider = open()
    val e = intercept[Throwable] {
      val store = provider.getStore(4, None)
      try fail(s"it has ${rows(store)}")
      finally store.abort()
    }
    assert(Causes.of(e).exists(_.getMessage.contains(away)), e)
    UnreadFiles.fault = None
    check(provider, 4, Vector.fill(5)(None), wanted)
  }

  test("verify calls no version restorable whose load fails for it") {
    twoHistories()
    assert(restorable == (1L to 4L).toSeq)
    for (fault <- Seq(new IOException(away), new Error(away))) {
      UnreadFiles.fault = Some(UnreadFiles.Fault("4.changelog", 8, () => fault))
      assert(restorable == (1L to 3L).toSeq)
    }
  }

  private def restorable: Seq[Long] = {
    val versions = (1 to 4).map(v => CommittedVersion(v.toLong, None))
    val task = StoreTask(0, 0, "default", s"$location/0/0", "state/0/0", versions)
    val limits = SnapshotSearch.limits(new StateStoreConf(new SQLConf()))
    val settings = VerifySettings("lz4", false, ",", 5, Map.empty, limits, true, isDeep = false)
    new StoreVerifier(task, settings, hadoopConf(UUID.randomUUID())).run().restorable
  }

  for (why <- Seq(new FileNotFoundException("gone"), new AccessControlException("not yours")))
    test(s"a changelog that is ${why.getMessage} says nothing against the snapshot beside it") {
      twoHistories()
      UnreadFiles.fault = Some(UnreadFiles.Fault("4.changelog", 0, () => why))
      check(open(), 4, Vector.fill(5)(None), expected(4))
    }

  test("a session of format v2 takes no snapshot of a version that nothing proves") {
    val provider = open(everyTwo)
    (0 until 3).foreach(v => commit(provider, v.toLong, Map(s"k$v" -> v)): Unit)
    provider.close()
    assert(files(".zip").isEmpty)
    for (
      (session, snapshots) <- Seq(Providers.v2 -> Nil, Map.empty[String, String] -> Seq("3.zip"))
    ) {
      val next = open(everyTwo ++ session + (localDir -> local.toString))
      check(next, 3, Vector.fill(4)(None), expected(3))
      next.doMaintenance()
      next.close()
      assert(files(".zip") == snapshots)
    }
  }
}

/** Local files by the scheme `unread`, of which one cannot be read where a test says so. */
class UnreadFiles extends RawLocalFileSystem {
  override def getUri: URI = URI.create(s"${UnreadFiles.Scheme}:///")
  override def getScheme: String = UnreadFiles.Scheme

  override def open(path: Path, bufferSize: Int): FSDataInputStream = {
    val stream = super.open(path, bufferSize)
    UnreadFiles.fault.filter(_.name == path.getName)
      .fold(stream)(fault => new FSDataInputStream(new UnreadStream(stream, fault)))
  }
}

class UnreadFs(uri: URI, conf: Configuration)
    extends DelegateToFileSystem(uri, new UnreadFiles, conf, UnreadFiles.Scheme, false) {
  override def getUriDefaultPort: Int = -1
}

object UnreadFiles {
  val Scheme = "unread"

  /** @param after how many bytes of a read from the file's beginning are had
    * @param isOfEnd whether it is in reads of the file's end instead
    */
  final case class Fault(
      name: String,
      after: Int,
      failure: () => Throwable,
      isOfEnd: Boolean = false
  )

  @volatile var fault: Option[Fault] = None
}

/** Fails within a read from the beginning, or where only the end is read. */
private final class UnreadStream(under: FSDataInputStream, fault: UnreadFiles.Fault)
    extends FilterInputStream(under: InputStream)
    with Seekable
    with PositionedReadable {
  private var isAtEnd = false

  override def read(): Int = {
    check()
    super.read()
  }

  override def read(bytes: Array[Byte], from: Int, n: Int): Int = {
    check()
    val left = if (isAtEnd || fault.isOfEnd) n else (fault.after - under.getPos).toInt
    super.read(bytes, from, math.min(n, left))
  }

  private def check(): Unit =
    if (isAtEnd == fault.isOfEnd && under.getPos >= fault.after) throw fault.failure()

  override def seek(position: Long): Unit = {
    isAtEnd = true
    under.seek(position)
  }

  override def getPos: Long = under.getPos
  override def seekToNewSource(position: Long): Boolean = under.seekToNewSource(position)
  override def read(position: Long, bytes: Array[Byte], from: Int, n: Int): Int =
    under.read(position, bytes, from, n)
  override def readFully(position: Long, bytes: Array[Byte], from: Int, n: Int): Unit =
    under.readFully(position, bytes, from, n)
  override def readFully(position: Long, bytes: Array[Byte]): Unit =
    under.readFully(position, bytes)
}
