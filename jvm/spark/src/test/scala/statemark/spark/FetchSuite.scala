package statemark.spark

import java.io.{File, FileNotFoundException}
import java.net.URI
import java.nio.file.{Files, Path => JPath}
import java.util.concurrent.{CyclicBarrier, TimeUnit}
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FSDataInputStream, Path, RawLocalFileSystem}
import org.apache.spark.sql.execution.streaming.state.{
  RocksDBCheckpointMetadata,
  RocksDBImmutableFile
}
import org.scalatest.funsuite.AnyFunSuite
import scala.jdk.CollectionConverters._
import statemark.spark.checkpoint.ParallelFetchFileSystem
import statemark.spark.local.LocalDirectory
import statemark.testkit.{FileCounts, FileEvent}

/** Where nothing is local, a load asks the checkpoint location side by side, and for nothing twice. */
class FetchSuite extends AnyFunSuite with Providers {

  /** Opens return when `n` are under way at once. */
  private final class Meeting(n: Int) extends RawLocalFileSystem {
    private val barrier = new CyclicBarrier(n)
    override def open(path: Path, bufferSize: Int): FSDataInputStream = {
      barrier.await(60, TimeUnit.SECONDS): Unit
      super.open(path, bufferSize)
    }
    initialize(URI.create("file:///"), new Configuration())
  }

  test("the SST files of a snapshot are fetched side by side") {
    val (remote, local, names) = snapshot(3)
    val files = new ParallelFetchFileSystem(new Meeting(3))
    names.foreach(name => copy(files, remote, local, name))
    names.foreach { name =>
      assert(Files.readString(local.resolve(name)) == Files.readString(remote.resolve(s"r-$name")))
    }
    assert(local.toFile.list().toSet == names.toSet + "metadata")
  }

  test("a file that is missing fails the fetch, when nothing is being written any more") {
    val (remote, local, names) = snapshot(3)
    Files.delete(remote.resolve(s"r-${names(1)}"))
    val files = new ParallelFetchFileSystem(new Meeting(1))
    intercept[FileNotFoundException](copy(files, remote, local, names.head))
    LocalDirectory.deleteTree(local.toFile)
    assert(!local.toFile.exists)
  }

  test("a file beside which there is no snapshot is copied alone") {
    val (remote, local, names) = snapshot(2)
    Files.delete(local.resolve("metadata"))
    copy(new ParallelFetchFileSystem(new Meeting(1)), remote, local, names.head)
    assert(local.resolve(names.head).toFile.exists && !local.resolve(names(1)).toFile.exists)
  }

  for ((format, extra) <- Seq("v1" -> Map.empty[String, String], "v2" -> Providers.v2))
    test(s"a restore reads no file more often than Spark's provider ($format)") {
      val writer = open(extra + ("spark.sql.streaming.stateStore.minDeltasForSnapshot" -> "3"))
      var id = Option.empty[String]
      for (v <- 0 until 5) {
        id = commit(writer, v, Map(s"k$v" -> v), id).stateStoreCkptId
        writer.doMaintenance()
      }
      writer.close()
      val all = (0 until 5).map(v => s"k$v" -> v).toMap
      val (ours, theirs) = (
        opens(rowsAt(5, id, extra) == all),
        opens(rowsAt(5, id, extra, Providers.sparksOwn) == all)
      )
      assert(theirs.keys.exists(_.endsWith(".sst")) && theirs.keys.exists(_.contains(".changelog")))
      assert(ours.keySet == theirs.keySet)
      ours.foreach { case (file, n) => assert(n <= theirs(file), file) }
    }

  /** How often each file is opened. */
  private def opens(isRight: => Boolean): Map[String, Int] = {
    FileCounts.reset()
    assert(isRight)
    FileCounts.events(
      location
    ).asScala.toSeq.filter(_.kind == FileEvent.Open.name).groupBy(_.path).map { case (path, all) =>
      path -> all.size
    }
  }

  /** Files of a snapshot where they are and the directory that they go to. */
  private def snapshot(n: Int): (JPath, JPath, Seq[String]) = {
    val remote = Files.createDirectories(queryDir.resolve("remote"))
    val local = Files.createDirectories(queryDir.resolve("local"))
    val names = (1 to n).map(i => f"$i%06d.sst")
    names.foreach(name => Files.writeString(remote.resolve(s"r-$name"), s"rows of $name"))
    val files = names.map { name =>
      RocksDBImmutableFile(name, s"r-$name", Files.size(remote.resolve(s"r-$name")))
    }
    RocksDBCheckpointMetadata(files, 1L).writeToFile(new File(local.toFile, "metadata"))
    (remote, local, names)
  }

  private def copy(files: ParallelFetchFileSystem, from: JPath, to: JPath, name: String): Unit =
    files.copyToLocalFile(
      new Path(from.resolve(s"r-$name").toUri),
      new Path(to.resolve(name).toUri)
    )
}
