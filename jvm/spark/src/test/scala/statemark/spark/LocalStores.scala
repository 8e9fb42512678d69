package statemark.spark

import java.io.UncheckedIOException
import java.nio.file.attribute.FileTime
import java.nio.file.{CopyOption, Files, NoSuchFileException, Path}
import org.apache.spark.sql.execution.streaming.state.StateStoreProvider
import org.scalatest.Suite
import scala.jdk.CollectionConverters._
import statemark.common.RejectReason
import statemark.spark.conf.StoreSettings
import statemark.spark.local.{LoadSource, LocalDirectory}
import statemark.spark.metrics.StoreMetrics
import statemark.spark.process.{JvmState, TaskInfo}
import statemark.spark.provider.StoreLifecycle

/** Providers of one query whose homes outlive them, and what became of their stores. A commit of version
  * `v` adds the row `kv`.
  */
trait LocalStores extends Providers { this: Suite =>
  protected val localDir = StoreSettings.Prefix + "localDir"
  protected val query = TaskInfo("0a1b2c3d-query", 4)
  protected var local: Path = _

  // A test that fails with a store in its hands waits so long to close it.
  private val lockTimeout = "spark.sql.streaming.stateStore.rocksdb.lockAcquireTimeoutMs"

  override protected def settings: Map[String, String] =
    Map(localDir -> local.toString, lockTimeout -> "1000")

  override protected def beforeEach(): Unit = {
    super.beforeEach()
    local = queryDir.resolve("local")
    JvmState.runningTask.set(() => query)
  }

  override protected def afterEach(): Unit = {
    JvmState.runningTask.clear()
    super.afterEach()
  }

  protected def write(versions: Int, extra: Map[String, String]): Vector[Option[String]] = {
    val provider = open(extra)
    val ids = commits(provider, 0 until versions)
    // The last version is confirmed when the next batch asks for it.
    provider.getStore(versions.toLong, ids.last).abort()
    provider.close()
    ids
  }

  /** Ids of versions 0 to the last. */
  protected def commits(
      provider: StateStoreProvider,
      versions: Range,
      before: Vector[Option[String]] = Vector(None)
  ): Vector[Option[String]] =
    versions.foldLeft(before) { (ids, v) =>
      ids :+ commit(provider, v, Map(s"k$v" -> v), ids.last).stateStoreCkptId
    }

  protected def expected(versions: Int): Map[String, Int] =
    (0 until versions).map(v => s"k$v" -> v).toMap

  protected def check(
      provider: StateStoreProvider,
      version: Int,
      ids: Vector[Option[String]],
      wanted: Map[String, Int]
  ): Unit = {
    val store = provider.getStore(version.toLong, ids(version))
    try assert(rows(store) == wanted)
    finally store.abort()
  }

  protected def keeperOf(provider: StateStoreProvider): StoreLifecycle =
    provider.asInstanceOf[StatemarkStateStoreProvider].keeper

  protected def awaitFlush(provider: StateStoreProvider): Unit =
    keeperOf(provider).generation.foreach { g =>
      while (g.store.property("rocksdb.num-immutable-mem-table") > 0) Thread.onSpinWait()
    }

  /** What a kill at this moment leaves. */
  protected def copyOfLocal(): Path = {
    val target = queryDir.resolve("killed")
    LocalStores.copyTree(local, target)
    target
  }

  protected def homes: Seq[Path] = {
    val list = Files.list(local.resolve(query.queryId).resolve("0-0-default"))
    try list.iterator.asScala.toVector
    finally list.close()
  }

  protected def base: Path = homes.map(_.resolve("base")).head

  protected def sstFiles(directory: Path): Seq[Path] = {
    val list = Files.list(directory)
    try list.iterator.asScala.filter(_.toString.endsWith(".sst")).toVector
    finally list.close()
  }

  protected def flipByte(file: Path, at: Int): Unit = {
    val bytes = Files.readAllBytes(file)
    bytes(at) = (bytes(at) ^ 1).toByte
    Files.write(file, bytes): Unit
  }

  protected def named(directory: Path, prefix: String): Path = {
    val list = Files.list(directory)
    try list.iterator.asScala.find(_.getFileName.toString.startsWith(prefix)).get
    finally list.close()
  }

  protected def touchLater(version: Long): Unit =
    files(".changelog").filter(n => n == s"$version.changelog").foreach { n =>
      val path = storeDir.resolve(n)
      Files.setLastModifiedTime(
        path,
        FileTime.fromMillis(Files.getLastModifiedTime(path).toMillis + 2000)
      )
    }

  protected def metrics(
      provider: StateStoreProvider,
      version: Int,
      ids: Vector[Option[String]]
  ): Map[String, Long] = {
    val store = provider.getStore(version.toLong, ids(version))
    put(store, Map("more" -> 1))
    store.commit(): Unit
    store.metrics.customMetrics.map { case (metric, value) => metric.name -> value }
  }

  protected def served(provider: StateStoreProvider): Map[String, Long] =
    StoreMetrics.ofLoads.map(m => m.name -> m.value(keeperOf(provider).load)).toMap

  protected def assertLoad(
      provider: StateStoreProvider,
      source: LoadSource,
      why: RejectReason*
  ): Unit = {
    val load = keeperOf(provider).load
    assert(load.source == source)
    assert(load.distrusted == why)
  }

  /** As [[assertLoad]], and the store goes on. */
  protected def assertServed(
      provider: StateStoreProvider,
      version: Int,
      ids: Vector[Option[String]],
      source: LoadSource,
      why: RejectReason*
  ): Unit = {
    assertLoad(provider, source, why: _*)
    commit(provider, version, Map("more" -> 1), ids(version)): Unit
    provider.getStore(version + 1L, None).abort()
  }

  protected def assertServed(
      provider: StateStoreProvider,
      version: Int,
      ids: Vector[Option[String]],
      source: LoadSource,
      replayed: Int
  ): Unit = {
    assert(keeperOf(provider).load.replayed == replayed)
    assertServed(provider, version, ids, source)
  }
}

object LocalStores {

  /** Copies files that come and go while their owner lives, as they are at one moment: a file that a compaction deletes
    * meanwhile has the copy made again.
    */
  def copyTree(from: Path, to: Path, options: CopyOption*): Unit = {
    def copied(): Boolean = {
      val before = listed(from)
      LocalDirectory.deleteTree(to.toFile)
      before.exists { there =>
        val isWhole = there.forall { case (file, _) =>
          try {
            Files.copy(from.resolve(file), to.resolve(file), options: _*)
            true
          } catch { case _: NoSuchFileException => false }
        }
        isWhole && listed(from) == before
      }
    }
    assert(Iterator.continually(copied()).take(1000).exists(identity), s"$from never stands still")
  }

  /** Returns paths and lengths, directories first; None where a file goes meanwhile. */
  private def listed(tree: Path): Option[Seq[(String, Long)]] = {
    val walk = Files.walk(tree)
    try
      Some(walk.iterator.asScala.map { file =>
        (tree.relativize(file).toString, if (Files.isDirectory(file)) 0L else Files.size(file))
      }.toVector)
    catch { case _: UncheckedIOException | _: NoSuchFileException => None }
    finally walk.close()
  }
}
