package statemark.spark

import java.nio.file.{Files, Path}
import java.util.UUID
import org.apache.hadoop.conf.Configuration
import org.apache.spark.SparkException
import org.apache.spark.sql.execution.streaming.state.StateStoreProvider
import org.scalatest.funsuite.AnyFunSuite
import scala.jdk.CollectionConverters._
import statemark.common.{Causes, ScratchFullException}
import statemark.spark.conf.StoreSettings
import statemark.spark.local.{LoadSource, LocalDirectory}

/** A disk without room, or without leave to write: the task fails and says where, or goes on where it can; with
  * room again the same version is served, and rightly.
  */
class FullDiskSuite extends AnyFunSuite with LocalStores {
  private val formats = Seq("v1" -> Map.empty[String, String], "v2" -> Providers.v2)
  private val forced = Map("spark.sql.streaming.stateStore.minDeltasForSnapshot" -> "3")

  override protected def hadoopConf(runId: UUID): Configuration =
    FullFileSystem.in(super.hadoopConf(runId))

  override protected def afterEach(): Unit = {
    FullFileSystem.isFull = _ => false
    super.afterEach()
  }

  for ((format, extra) <- formats) {
    test(s"the checkpoint is full when a changelog is written ($format)") {
      val provider = open(extra)
      val ids = commits(provider, 0 until 2)
      val before = files("")
      FullFileSystem.isFull = _.contains(".changelog")
      val store = provider.getStore(2, ids.last)
      put(store, Map("k2" -> 2))
      val e = intercept[Exception](store.commit())
      assert(says(e, "No space left on device") && says(e, "CANNOT_WRITE_STATE_STORE"))
      store.abort()
      assert(files("") == before, "no part of a file is left under its name")
      FullFileSystem.isFull = _ => false
      val all = commits(provider, 2 until 4, ids)
      check(provider, 4, all, expected(4))
      provider.close()
      check(open(extra), 4, all, expected(4))
      assert(rowsAt(4, all.last, extra, Providers.sparksOwn) == expected(4))
    }

    for (part <- Seq(".zip", ".sst")) {
      test(s"the checkpoint is full when maintenance uploads a snapshot's $part ($format)") {
        val provider = open(extra ++ forced)
        val ids = commits(provider, 0 until 4)
        FullFileSystem.isFull = _.contains(part)
        provider.doMaintenance()
        assert(files(".zip").isEmpty)
        val all = commits(provider, 4 until 5, ids)
        FullFileSystem.isFull = _ => false
        provider.doMaintenance()
        assert(files(".zip").nonEmpty)
        assert(rowsAt(5, all.last, extra, Providers.sparksOwn) == expected(5))
      }

      if (Line.hasStoreOf42)
        test(s"the checkpoint is full when a commit uploads its snapshot's $part ($format)") {
          val provider = open(extra)
          val ids = commits(provider, 0 until 2)
          FullFileSystem.isFull = _.contains(part)
          val store = Line.getStore(provider, 2, ids.last, force = true)
          put(store, Map("lost" -> 2))
          val e = intercept[Exception](store.commit())
          assert(says(e, "No space left on device"))
          store.abort()
          FullFileSystem.isFull = _ => false
          val again = commit(provider, 2, Map("k2" -> 2), ids.last, force = true)
          val all = ids :+ again.stateStoreCkptId
          check(provider, 3, all, expected(3))
          assert(rowsAt(3, all.last, extra, Providers.sparksOwn) == expected(3))
        }
    }

    for ((name, disk) <- disks) {
      test(s"$name while a store is flushed: no batch is lost ($format)") {
        val provider = open(extra)
        val ids = commits(provider, 0 until 3)
        val during = disk.refusing {
          intercept[Exception](flush(provider))
          attempts(provider, ids, upTo = 12)
        }
        info(s"at version ${during.length - 1} when there was room again")
        val all = commits(provider, during.length - 1 until 14, during)
        check(provider, 14, all, expected(14))
        provider.close()
        check(open(extra), 14, all, expected(14))
      }

      test(s"$name while memtables fill up and are confirmed: no batch is lost ($format)") {
        val small = extra + ("spark.sql.streaming.stateStore.rocksdb.writeBufferSizeMB" -> "1")
        val provider = open(small)
        def rowsOf(batch: Int) = (0 until 2000).map(i => s"${"x" * 300}-$batch-$i" -> i).toMap
        val ids = attempts(provider, Vector(None), upTo = 2, rowsOf)
        val during = disk.refusing(attempts(provider, ids, upTo = 8, rowsOf))
        info(s"at version ${during.length - 1} when there was room again")
        // RocksDB itself notices a while later that there is room.
        val all = Iterator.iterate(during)(attempts(provider, _, upTo = 8, rowsOf))
          .take(3).dropWhile(_.length < 9).nextOption().getOrElse(fail("it does not go on"))
        val wanted = (0 until 8).flatMap(rowsOf).toMap
        check(provider, 8, all, wanted)
        provider.close()
        check(open(small), 8, all, wanted)
      }

      test(s"$name while a batch spills: the task fails, the base stands ($format)") {
        val limited = extra + (StoreSettings.Prefix + "maxUncommittedBytes" -> "64k")
        val provider = open(limited)
        val ids = commits(provider, 0 until 3)
        val many = (0 until 3000).map(i => s"many-$i" -> i).toMap
        disk.refusing {
          val store = provider.getStore(3, ids.last)
          val e = intercept[ScratchFullException](put(store, many))
          assert(says(e, "maxUncommittedBytes") && says(e, local.toString))
          store.abort()
        }
        check(provider, 3, ids, expected(3))
        assertServed(provider, 3, ids, LoadSource.Memory)
        val all = ids :+ commit(provider, 3, many, ids.last).stateStoreCkptId
        check(provider, 4, all, expected(3) ++ many)
      }

      test(s"$name while a store is restored: refused, and right with room ($format)") {
        val ids = write(3, extra)
        LocalDirectory.deleteTree(local.resolve(query.queryId).toFile)
        val provider = open(extra)
        val e = disk.refusing(intercept[Exception](provider.getStore(3, ids.last)))
        assert(says(e, "CANNOT_LOAD_STATE_STORE") && says(e, local.toString))
        check(provider, 3, ids, expected(3))
        assertServed(provider, 3, ids, LoadSource.Checkpoint)
      }

      test(s"$name while a home is opened: refused, and the home is used with room ($format)") {
        val ids = write(3, extra)
        val provider = open(extra)
        val e = disk.refusing(intercept[Exception](provider.getStore(3, ids.last)))
        assert(says(e, "CANNOT_LOAD_STATE_STORE") && says(e, local.toString))
        check(provider, 3, ids, expected(3))
        assertServed(provider, 3, ids, LoadSource.Local)
      }
    }
  }

  // ---- helpers

  /** A way in which the local directory takes no more. */
  private trait Disk {

    /** While `body` runs. */
    def refusing[A](body: => A): A
  }

  private def disks: Seq[(String, Disk)] = Seq(
    "the local disk is full" -> new Disk {
      override def refusing[A](body: => A): A = {
        val filler = local.resolve("filler")
        fill(filler)
        try body
        finally Files.deleteIfExists(filler): Unit
      }
    },
    "the local directory is read-only" -> new Disk {
      override def refusing[A](body: => A): A = {
        val directories = tree(local).filter(Files.isDirectory(_))
        directories.foreach(writable(_, isAllowed = false))
        try body
        finally directories.foreach(writable(_, isAllowed = true))
      }
    }
  )

  override protected def withFixture(test: NoArgTest) =
    if (!test.name.startsWith("the local disk is full")) super.withFixture(test)
    else {
      Files.createDirectories(local)
      assume(ran("mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", local.toString), "needs mount")
      try super.withFixture(test)
      finally {
        closeAll()
        assert(ran("umount", local.toString))
      }
    }

  private def fill(file: Path): Unit = {
    val out = Files.newOutputStream(file)
    val block = new Array[Byte](4096)
    try while (true) out.write(block)
    catch { case _: java.io.IOException => () } // it is full
    finally out.close()
  }

  /** Permissions do not bind root, an attribute does. */
  private def writable(directory: Path, isAllowed: Boolean): Unit =
    if (System.getProperty("user.name") == "root")
      assume(ran("chattr", if (isAllowed) "-i" else "+i", directory.toString), "needs chattr")
    else assert(directory.toFile.setWritable(isAllowed))

  private def ran(command: String*): Boolean =
    try new ProcessBuilder(command: _*).inheritIO().start().waitFor() == 0
    catch { case _: java.io.IOException => false }

  private def tree(root: Path): Seq[Path] = {
    val walk = Files.walk(root)
    try walk.iterator.asScala.toVector
    finally walk.close()
  }

  private def flush(provider: StateStoreProvider): Unit =
    keeperOf(provider).generation.foreach(_.store.flush())

  /** Commits, each tried three times as Spark tries a task, up to a version or one that fails by name. */
  private def attempts(
      provider: StateStoreProvider,
      ids: Vector[Option[String]],
      upTo: Int,
      rowsOf: Int => Map[String, Int] = batch => Map(s"k$batch" -> batch)
  ): Vector[Option[String]] = {
    var done = ids
    var failures = 0
    while (done.length <= upTo && failures < 3)
      try {
        val batch = done.length - 1
        done = done :+ commit(provider, batch, rowsOf(batch), done.last).stateStoreCkptId
        failures = 0
      } catch {
        case e: SparkException =>
          assert(says(e, "CANNOT_LOAD_STATE_STORE") && says(e, local.toString))
          failures += 1
      }
    done
  }

  private def says(e: Throwable, words: String): Boolean =
    Causes.of(e).exists(c => c.toString.contains(words))
}
