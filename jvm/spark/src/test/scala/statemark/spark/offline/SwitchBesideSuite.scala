package statemark.spark.offline

import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Path => JPath}
import scala.jdk.CollectionConverters._
import statemark.spark.conf.ProviderClass

/** Two switches of one checkpoint at once. */
class SwitchBesideSuite extends CommandsBeside {
  import CommandsBeside._
  import ProviderClass.{Hdfs, RocksDb, Statemark}

  private val switches = Seq(Statemark, RocksDb).map(switching(_))

  override protected def recover(at: JPath): Unit = ()

  /** Half of the entries are on each of two providers, so that any switch has something to change. */
  private def mixed(): Start = {
    val at = directory.resolve("mixed")
    counts(at).run(RocksDb, history: _*): Unit
    pinStatemark(at, 2 to 3)
    Start("two providers", at, switches)
  }

  private def pinStatemark(at: JPath, batches: Range): Unit =
    for (batch <- batches) {
      val entry = at.resolve(s"offsets/$batch")
      val text = Files.readString(entry).replace(RocksDb.className, Statemark.className)
      Files.write(entry, text.getBytes(UTF_8))
      Files.deleteIfExists(at.resolve(s"offsets/.$batch.crc"))
    }

  /** Files of versions that no committed batch has written, as the query was rolled back by hand. */
  private val above =
    for (partition <- 0 to 1; kind <- Seq("changelog", "zip")) yield s"state/0/$partition/4.$kind"

  private def rolledBack(isMixed: Boolean): Start = {
    val at = directory.resolve("rolled-back")
    counts(at).run(RocksDb, history: _*): Unit
    for (log <- Seq("offsets", "commits"); name <- Seq("3", ".3.crc"))
      Files.deleteIfExists(at.resolve(s"$log/$name"))
    for (file <- above if !Files.exists(at.resolve(file)))
      Files.write(at.resolve(file), file.getBytes(UTF_8))
    if (isMixed) pinStatemark(at, 2 to 2)
    Start("rolled back", at, switches, path => assert(above.forall(isAside(path, _))))
  }

  private def isAside(checkpoint: JPath, file: String): Boolean = {
    val list = Files.walk(checkpoint.resolve("_statemark"))
    val isThere =
      try list.iterator.asScala.exists(_.toString.endsWith(file))
      finally list.close()
    isThere && !Files.exists(checkpoint.resolve(file))
  }

  test("files that are set aside: each ends as it says, or refuses, and none is lost") {
    interleave(Seq(rolledBack(isMixed = true)), pairs(10), every = 10)
  }

  test("the same where a rename is a copy, and files are set aside") {
    interleave(Seq(rolledBack(isMixed = true)), pairs(8), every = 8, copies = true)
  }

  test("a switch that dies at any step is undone or finished by the next one, with its files") {
    val start = rolledBack(isMixed = false)
    def switched(name: String, isAt: (Int, String) => Boolean, deathAt: Option[Int]) = {
      val path = directory.resolve(name)
      copyOf(start.checkpoint, path)
      val place = Place(s"${SteppedFileSystem.Scheme}://$path", path)
      val one = SteppedFileSystem.beside[Any](isAt, deathAt, Killed)(
        switching(Statemark).run(place)
      )(()).one
      (path, one)
    }
    // A death before a read is one after the change before it.
    val changes = scala.collection.mutable.ArrayBuffer.empty[Int]
    def note(step: Int, what: String): Boolean = {
      if (Seq("create", "rename", "delete").exists(what.startsWith)) changes += step
      false
    }
    assert(switched("whole", note, None)._2.isSuccess)
    def ends(step: Int): String = {
      val (path, one) = switched(s"dead-$step", (_, _) => false, Some(step))
      assert(one.isFailure)
      switching(RocksDb).run(Place(path.toString, path)): Unit
      val now = opened(path)
      assert(switching(RocksDb).holds(now))
      val own = path.resolve("_statemark")
      val isUndone = !Files.exists(own.resolve("switch-1/finished"))
      withClue(s"step $step, $one: ") {
        if (isUndone)
          for (file <- above)
            assert(
              Files.readAllBytes(path.resolve(file)).toSeq ==
                Files.readAllBytes(start.checkpoint.resolve(file)).toSeq
            )
        else above.foreach(file => assert(isAside(path, file), file))
      }
      val end =
        if (!isUndone) "finished"
        else if (Files.exists(own.resolve("switch-1/undone"))) "undone"
        else "never begun"
      statemark.spark.local.LocalDirectory.deleteTree(path.toFile)
      end
    }
    val found = changes.toSeq.map(ends)
    info(found.groupMapReduce(identity)(_ => 1)(_ + _).mkString(", "))
    assert(found.toSet == Set("never begun", "undone", "finished"))
  }

  test("entries of two providers: each ends as it says, or refuses") {
    interleave(Seq(mixed()), pairs(30), every = 15)
  }

  test("the same where a rename is a copy") {
    interleave(Seq(mixed()), pairs(20), every = 20, copies = true)
  }

  test("state that is imported: each ends as it says, or refuses") {
    val at = directory.resolve("hdfs")
    counts(at).run(Hdfs, history: _*): Unit
    interleave(Seq(Start("to be imported", at, switches)), pairs(10), every = 5)
  }
}
