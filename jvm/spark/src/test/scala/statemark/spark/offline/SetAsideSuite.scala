package statemark.spark.offline

import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Path => JPath}
import org.apache.spark.sql.functions.{col, sum, udf}
import org.apache.spark.sql.streaming.OutputMode
import org.json4s.{JInt, JObject, JString}
import org.json4s.jackson.JsonMethods.parse
import scala.jdk.CollectionConverters._
import statemark.spark.conf.ProviderClass

/** `switch` takes files of versions that no committed batch has written out of the checkpoint, and puts them back where
  * it was interrupted.
  */
class SetAsideSuite extends OfflineSuite {
  import ProviderClass.{Hdfs, RocksDb, Statemark}

  private val batches: Seq[Seq[(Int, Long)]] =
    Seq.tabulate(4)(b => Seq.tabulate(12)(i => ((i * (b + 2)) % 7, b.toLong)))

  private def counts(settings: Map[String, String] = Map.empty): Job =
    new Job(_.groupBy("key").count(), OutputMode.Update(), checkpoint, settings)

  /** Files of later versions than 2, as names of them go. */
  private val above = Seq(
    "state/0/0/3.changelog",
    "state/0/0/3.changelog.crc",
    "state/0/0/3.zip",
    "state/0/1/11_0a1b-2c.zip",
    "state/0/1/11_0a1b-2c.zip.crc",
    "state/0/1/11_3d.changelog",
    "state/0/1/left/4.zip"
  )
  private val others = Seq("state/0/0/1.zip.crc", "state/0/0/9.delta", "state/0/1/left/2.changelog")

  private def put(file: String, text: String = ""): Unit = {
    val path = checkpoint.resolve(file)
    Files.createDirectories(path.getParent)
    Files.write(path, s"$file $text".getBytes(UTF_8)): Unit
  }

  private def text(file: JPath): String = new String(Files.readAllBytes(file), UTF_8)

  /** Files below a directory of the checkpoint, without those that Hadoop keeps of checksums. */
  private def filesBelow(directory: JPath): Set[String] =
    if (!Files.exists(directory)) Set.empty
    else {
      val walk = Files.walk(directory)
      try walk.iterator.asScala.filter(Files.isRegularFile(_))
          .filterNot(_.getFileName.toString.startsWith(".")).map(directory.relativize(_).toString)
          .toSet
      finally walk.close()
    }

  private def state: Set[String] = filesBelow(checkpoint).filter(_.startsWith("state/"))
  private def asideOf(number: Int): JPath = checkpoint.resolve(s"_statemark/switch-$number/aside")

  /** What a kill leaves of a switch before its entry of the newest batch. */
  private def interrupted(number: Int, entry: String): Unit = {
    Files.delete(checkpoint.resolve(s"_statemark/switch-$number/finished"))
    Files.write(checkpoint.resolve("offsets/1"), entry.getBytes(UTF_8))
    Files.deleteIfExists(checkpoint.resolve("offsets/.1.crc")): Unit
  }

  for (from <- Seq(Statemark, RocksDb, Hdfs))
    test(s"every file above the committed version, and no other, from $from") {
      counts().run(from, batches.take(2): _*)
      above.foreach(put(_))
      others.foreach(put(_))
      // An import has each directory described by an operator.
      if (from == Hdfs)
        statemark.spark.local.LocalDirectory.deleteTree(
          checkpoint.resolve("state/0/1/left").toFile
        )
      val there = state
      val moved = above.filter(there).toSet
      val to = if (from == Statemark) RocksDb else Statemark
      val JObject(dry) = parse(switchTo(to, "--dry-run", "--json").text): @unchecked
      assert(switchTo(to, "--dry-run").text.contains(
        s"  ${moved.size} files above version 2, which no committed batch has written, would be set aside in "
      ))
      assert(state == there)
      val console = switchTo(to)
      assert(console.text.contains(
        s"  ${moved.size} files above version 2, which no committed batch has written, were set aside in "
      ))
      assert(console.progressed.exists(_ == s"set aside ${moved.size} of ${moved.size} files"))
      assert(dry.toMap.apply("asideFiles") == JInt(moved.size))
      val JString(folder) = dry.toMap.apply("aside"): @unchecked
      assert(folder.endsWith("_statemark/switch-1/aside"))
      assert(filesBelow(asideOf(1)) == moved && !state.exists(moved))
      moved.foreach(file => assert(text(asideOf(1).resolve(file)) == s"$file "))
      // An import takes files of earlier versions away by itself.
      if (from != Hdfs) assert(state == there -- moved)
    }

  test("nothing is taken out by a switch that changes nothing") {
    counts().run(RocksDb, batches.take(2): _*)
    above.foreach(put(_))
    val there = state
    assert(!switchTo(RocksDb).text.contains("set aside"))
    assert(state == there && !Files.exists(checkpoint.resolve("_statemark")))
  }

  test(
    "a switch that was interrupted is undone: files go back, where nothing of their versions is"
  ) {
    counts().run(RocksDb, batches.take(2): _*)
    above.foreach(put(_))
    val there = state
    val entry = text(checkpoint.resolve("offsets/1"))
    switchTo(Statemark): Unit
    interrupted(1, entry)
    // An attempt at the next batch has written files since: one in its place, and one of another kind.
    put("state/0/1/11_3d.changelog", "anew")
    put("state/0/1/left/4.changelog")
    val out = switchTo(RocksDb).text
    assert(out.contains("was undone: its entries are as they were"))
    assert(out.contains("is on rocksdb now"))
    val stayed = Set("state/0/1/11_3d.changelog", "state/0/1/left/4.zip")
    assert(state == there - "state/0/1/left/4.zip" + "state/0/1/left/4.changelog")
    assert(text(checkpoint.resolve("state/0/1/11_3d.changelog")).endsWith("anew"))
    for (file <- above if !stayed(file)) assert(text(checkpoint.resolve(file)) == s"$file ")
    val kept = filesBelow(checkpoint.resolve("_statemark/switch-1")).filter(_.contains("state/"))
    assert(kept.map(_.replaceFirst("^aside-[0-9a-f-]+/", "")) == stayed)
  }

  test("where the query has gone on after the interruption, no file goes back") {
    val job = counts().run(RocksDb, batches.take(2): _*)
    val entry = text(checkpoint.resolve("offsets/1"))
    above.foreach(put(_))
    switchTo(Statemark): Unit
    interrupted(1, entry)
    job.run(RocksDb, batches(2))
    assert(switchTo(Statemark).text.contains("was undone"))
    assert(!state.exists(above.filterNot(_ == "state/0/0/3.zip").toSet))
    job.run(RocksDb, batches(3))
    assert(job.metrics.exists(_.startsWith("statemark")))
  }

  test("a switch of 0.1 that was interrupted is settled; another format is refused by name") {
    counts().run(RocksDb, batches.take(2): _*)
    above.foreach(put(_))
    val there = state
    val before = text(checkpoint.resolve("offsets/1"))
    switchTo(Statemark): Unit
    val manifest = checkpoint.resolve("_statemark/switch-1/manifest.json")
    val JObject(fields) = parse(text(manifest)): @unchecked
    interrupted(1, before)
    def write(format: Int): Unit = {
      import org.json4s.jackson.JsonMethods.{compact, render}
      val old = fields.filterNot { case (name, _) =>
        Set("committedVersion", "aside", "mark")(name)
      }.map {
        case ("format", _) => "format" -> JInt(format)
        case other => other
      }
      Files.write(manifest, compact(render(JObject(old))).getBytes(UTF_8))
      Files.deleteIfExists(manifest.resolveSibling(".manifest.json.crc")): Unit
    }
    for (format <- Seq(2, 3)) {
      write(format)
      val e = intercept[statemark.common.InvalidInputException](switchTo(RocksDb))
      assert(e.getMessage.contains("it is no manifest of format 1 or 2"))
    }
    write(1)
    assert(switchTo(RocksDb).text.contains("was undone"))
    assert(text(checkpoint.resolve("offsets/1")) == before)
    assert(state == there -- above)
  }

  for (format <- Seq("1", "2"))
    test(
      s"a batch whose sink failed is run by Spark's provider, with other rows (format v$format)"
    ) {
      SetAsideSuite.addend = 1
      val settings = Map(
        "spark.sql.streaming.stateStore.checkpointFormatVersion" -> format,
        "spark.sql.streaming.stateStore.statemark.localDir" -> directory.resolve("local").toString
      )
      val addend = udf((_: Int) => SetAsideSuite.addend)
      val job = new Job(
        _.groupBy("key").agg(sum(addend(col("key")))),
        OutputMode.Complete(),
        checkpoint,
        settings
      )
      job.run(Statemark, batches.take(3): _*)
      // As it is where the sink fails after the stores have committed.
      Files.delete(checkpoint.resolve("commits/2"))
      Files.deleteIfExists(checkpoint.resolve("commits/.2.crc")): Unit
      SetAsideSuite.addend = 100
      assert(switchTo(RocksDb, "--force").text.contains(
        "files above version 2, which no committed batch has written, were set aside in "
      ))
      val query = job.start(Statemark)
      query.processAllAvailable()
      query.stop()
      assert(!job.metrics.exists(_.startsWith("statemark")))
      switchTo(Statemark): Unit
      job.run(RocksDb, batches(3))
      assert(job.metrics.exists(_.startsWith("statemark")))
      val events = batches.zip(Seq(1, 1, 100, 100)).flatMap { case (rows, n) =>
        rows.map { case (key, _) => key -> n.toLong }
      }
      val wanted = events.groupMapReduce(_._1)(_._2)(_ + _).map { case (k, n) => s"[$k,$n]" }
      assert(job.output(3) == wanted.toSeq.sorted)
    }
}

object SetAsideSuite {
  @volatile var addend = 1
}
