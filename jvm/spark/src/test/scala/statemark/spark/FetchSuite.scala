package statemark.spark

import java.io.{ByteArrayInputStream, File, FileNotFoundException}
import java.net.URI
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Path => JPath}
import java.util.concurrent.{CyclicBarrier, TimeUnit}
import java.util.zip.{ZipEntry, ZipInputStream, ZipOutputStream}
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FSDataInputStream, Path, RawLocalFileSystem}
import org.apache.spark.SparkException
import org.apache.spark.sql.execution.streaming.state.{
  RocksDBCheckpointMetadata,
  RocksDBImmutableFile
}
import org.scalatest.funsuite.AnyFunSuite
import scala.jdk.CollectionConverters._
import statemark.common.Causes
import statemark.spark.checkpoint.ParallelFetchFileSystem
import statemark.spark.conf.StoreSettings
import statemark.spark.errors.CheckpointDamagedException
import statemark.spark.local.LocalDirectory
import statemark.spark.process.{JvmState, TaskInfo}
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

  test("a snapshot that names a path is refused by name before any file is written") {
    val paths = Seq("../x", "../../x", "a/x", "/tmp/x", "..\\x")
    for (path <- paths; suffix <- Seq(".sst", ".log"); isLocal <- Seq(true, false)) {
      val (remote, local, names) = snapshot(2)
      val forged = s"$path$suffix"
      val file =
        if (isLocal) RocksDBImmutableFile(forged, s"r-x$suffix", 1)
        else RocksDBImmutableFile(s"x$suffix", forged, 1)
      val metadata = new File(local.toFile, "metadata")
      val before = RocksDBCheckpointMetadata.readFromFile(metadata)
      RocksDBCheckpointMetadata(before.immutableFiles :+ file, 1L).writeToFile(metadata)
      val files = new ParallelFetchFileSystem(new Meeting(1))
      val e = intercept[CheckpointDamagedException](copy(files, remote, local, names.head))
      assert(e.getMessage.contains(forged) && local.toFile.list().toSeq == Seq("metadata"))
      LocalDirectory.deleteTree(local.toFile)
    }
  }

  test("no file is written where no snapshot lies: a name has led there") {
    val (remote, local, names) = snapshot(2)
    val elsewhere = Files.createDirectories(queryDir.resolve("elsewhere"))
    val files = new ParallelFetchFileSystem(new Meeting(1))
    val e = intercept[CheckpointDamagedException](copy(files, remote, elsewhere, names.head))
    assert(e.getMessage.contains(names.head) && elsewhere.toFile.list().isEmpty)
    assert(local.toFile.list().toSeq == Seq("metadata"))
  }

  // Spark 4.0 fetches by itself.
  private val names = if (Line.hasStoreOf41) Seq("a local name", "a remote name") else Nil

  for (kind <- names :+ "an entry of the zip")
    test(s"a forged snapshot writes no file beside its own: $kind") {
      val writer = open(Map("spark.sql.streaming.stateStore.minDeltasForSnapshot" -> "1"))
      commit(writer, 0, Map("k" -> 1)): Unit
      writer.getStore(1).abort()
      writer.doMaintenance()
      writer.close()
      val zip = storeDir.resolve(files(".zip").last)
      forge(zip, kind)
      // Where a remote name leads.
      Files.writeString(storeDir.resolve("../forged.sst"), "of another store")
      Files.delete(storeDir.resolve("1.changelog"))
      val home = Files.createDirectories(queryDir.resolve("local"))
      JvmState.runningTask.set(() => TaskInfo("query", 4))
      val reader = open(Map(StoreSettings.Prefix + "localDir" -> home.toString))
      if (kind == "an entry of the zip") {
        val store = reader.getStore(1)
        try assert(rows(store) == Map("k" -> 1))
        finally store.abort()
      } else {
        val e = intercept[SparkException](reader.getStore(1))
        val why = Causes.of(e).flatMap(c => Option(c.getMessage)).find(_.contains("leads out of"))
        assert(why.exists(_.contains("forged.sst")))
      }
      val walk = Files.walk(home)
      try
        for (found <- walk.iterator.asScala if found.toString.contains("forged"))
          assert(found.getParent.endsWith("base"))
      finally walk.close()
    }

  /** Writes a zip anew with a name in it that leads out of its directory. */
  private def forge(zip: JPath, kind: String): Unit = {
    val in = new ZipInputStream(new ByteArrayInputStream(Files.readAllBytes(zip)))
    val entries = Iterator.continually(in.getNextEntry).takeWhile(_ != null)
      .map(e => e.getName -> in.readAllBytes()).toVector
    val out = new ZipOutputStream(Files.newOutputStream(zip))
    def add(name: String, bytes: Array[Byte]): Unit = {
      out.putNextEntry(new ZipEntry(name))
      out.write(bytes)
    }
    entries.foreach {
      case ("metadata", bytes) if kind != "an entry of the zip" =>
        val (field, to) =
          if (kind == "a local name") ("localFileName", "../../forged.sst")
          else ("dfsSstFileName", "../../forged.sst")
        val text = new String(bytes, UTF_8)
        val forged = text.replaceFirst(s""""$field":"[^"]*"""", s""""$field":"$to"""")
        assert(forged != text)
        add("metadata", forged.getBytes(UTF_8))
      case (name, bytes) => add(name, bytes)
    }
    if (kind == "an entry of the zip") add("../../forged.log", Array[Byte](1))
    out.close()
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
      // In format v1 the changelog beside the snapshot says whether both are of one history.
      val beside = ours.keySet.diff(theirs.keySet)
      assert(theirs.keySet.subsetOf(ours.keySet))
      assert(beside.forall(_.endsWith("3.changelog")) && beside.nonEmpty == (format == "v1"))
      ours.foreach { case (file, n) => assert(n <= theirs.getOrElse(file, 1), file) }
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
