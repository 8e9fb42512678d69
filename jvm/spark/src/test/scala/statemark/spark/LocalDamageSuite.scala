package statemark.spark

import java.nio.file.{Files, Path}
import org.apache.spark.SparkException
import org.apache.spark.sql.execution.streaming.state.StateStoreProvider
import org.scalatest.funsuite.AnyFunSuite
import statemark.common.{Causes, RejectReason, StoreUnusableException}
import statemark.spark.local.{LoadSource, LocalDirectory, StoreDirectory}
import statemark.spark.process.JvmState
import statemark.transaction.CommitPhase

/** I6 under damage of the files of a home: whatever is broken, the answer is right; at once, or where only a
  * read can meet the damage, at the next attempt of the task.
  */
class LocalDamageSuite extends AnyFunSuite with LocalStores {
  private val kinds = Seq(".sst", "MANIFEST-", "CURRENT", "OPTIONS-", "IDENTITY")
  // Their damage is met when the home is opened, or by a read, but met.
  private val vital = Set(".sst", "MANIFEST-", "CURRENT")

  for (
    (format, extra) <- Seq("v1" -> Map.empty[String, String], "v2" -> Providers.v2); kind <- kinds
  ) {
    test(s"a flipped byte anywhere in $kind ($format)") {
      eachDamage(kind, extra) { file =>
        val size = file.length
        val step = math.max(1, size / 30)
        ((0 until size by step) ++ (math.max(0, size - 60) until size by 11)).distinct.map { at =>
          val flipped = file.clone()
          flipped(at) = (flipped(at) ^ (1 << at % 8)).toByte
          s"byte $at of $size" -> Some(flipped)
        }
      }
    }

    test(s"a cut end, and all gone: $kind ($format)") {
      eachDamage(kind, extra) { file =>
        val lengths = Seq(0, 1, file.length / 2, file.length - 9, file.length - 1)
        lengths.filter(n => n >= 0 && n < file.length).distinct
          .map(n => s"$n of ${file.length} bytes" -> Some(file.take(n))) :+ ("gone" -> None)
      }
    }
  }

  for (
    (format, extra) <- Seq("v1" -> Map.empty[String, String], "v2" -> Providers.v2); asked <- 1 to 2
  )
    test(s"an error between two pieces of version 2, and version $asked is asked for ($format)") {
      var hasFired = false
      JvmState.observer.set { phase =>
        if (phase == CommitPhase.PartApplied && !hasFired) {
          hasFired = true
          throw new OutOfMemoryError("between two pieces")
        }
      }
      val provider = open(extra)
      // Some megabytes, of which each piece has a quarter of one.
      val many = (0 until 20000).map(i => s"key $i of many, and long" -> i).toMap
      val first = commit(provider, 0, Map("k" -> 1)).stateStoreCkptId
      val ids = Vector(None, first, commit(provider, 1, many, first).stateStoreCkptId)
      val e = intercept[SparkException](provider.getStore(2, ids(2)))
      assert(hasFired && Causes.of(e).exists(_.isInstanceOf[OutOfMemoryError]))
      val wanted = if (asked == 1) Map("k" -> 1) else many + ("k" -> 1)
      check(provider, asked, ids, wanted)
      commit(provider, asked.toLong, Map("more" -> 1), ids(asked)): Unit
    }

  test("the lock file: gone, or with other words") {
    for (damage <- Seq[Path => Unit](Files.delete(_), Files.writeString(_, "seven"): Unit)) {
      val ids = write(3, Map.empty)
      damage(homes.head.resolve(StoreDirectory.LockName))
      val after = open()
      check(after, 3, ids, expected(3))
      assertServed(after, 3, ids, LoadSource.Local)
      after.close()
      clearAll()
    }
  }

  for ((format, extra) <- Seq("v1" -> Map.empty[String, String], "v2" -> Providers.v2))
    test(s"the home of another query, copied into place ($format)") {
      val here = location
      val ids = write(3, extra)
      LocalDirectory.deleteTree(local.toFile)
      // The same versions of another query, with other rows.
      location = s"counting://${queryDir.resolve("another/state")}"
      JvmState.runningTask.set(() => query.copy(queryId = "another"))
      val other = open(extra)
      val otherIds = (0 until 3).foldLeft(Vector(Option.empty[String])) { (ids, v) =>
        ids :+ commit(other, v, Map(s"other$v" -> v), ids.last).stateStoreCkptId
      }
      other.getStore(3, otherIds.last).abort()
      other.close()
      Files.move(local.resolve("another"), local.resolve(query.queryId))
      location = here
      JvmState.runningTask.set(() => query)
      val after = open(extra)
      check(after, 3, ids, expected(3))
      assertServed(after, 3, ids, LoadSource.Checkpoint, RejectReason.OtherStore)
    }

  // ---- helpers

  /** Plays each damage on a file of the kind in turn, every time on a home as it was left. */
  private def eachDamage(kind: String, extra: Map[String, String])(
      damages: Array[Byte] => Seq[(String, Option[Array[Byte]])]
  ): Unit = {
    val many = (0 until 300).map(i => f"row$i%05d" -> i).toMap
    val provider = open(extra)
    val id = commit(provider, 0, many).stateStoreCkptId
    val ids = commits(provider, 1 until 3, Vector(None, id))
    provider.getStore(3, ids.last).abort()
    provider.close()
    val good = copyOfLocal()
    val names = base.toFile.list.filter(n => n.startsWith(kind) || n.endsWith(kind)).toSeq
    assert(names.nonEmpty)
    var met = 0
    for (name <- names; (what, bytes) <- damages(Files.readAllBytes(base.resolve(name)))) {
      val file = base.resolve(name)
      bytes.fold(Files.delete(file))(Files.write(file, _): Unit)
      val after = open(extra)
      withClue(s"$name: $what: ")(
        if (isMet(after, 3, ids, many ++ (1 to 2).map(v => s"k$v" -> v))) met += 1
      )
      after.close()
      LocalDirectory.deleteTree(local.toFile)
      LocalStores.copyTree(good, local)
    }
    assert(met > 0 == vital(kind))
  }

  /** Whether damage was met: a home was not used, or a read failed and the next attempt did not. */
  private def isMet(
      provider: StateStoreProvider,
      version: Int,
      ids: Vector[Option[String]],
      wanted: Map[String, Int]
  ): Boolean =
    try {
      check(provider, version, ids, wanted)
      keeperOf(provider).load.distrusted.nonEmpty
    } catch {
      case e: Exception if Causes.of(e).exists(_.isInstanceOf[StoreUnusableException]) =>
        check(provider, version, ids, wanted)
        true
    }

  private def clearAll(): Unit =
    Seq("local", "state").foreach(d => LocalDirectory.deleteTree(queryDir.resolve(d).toFile))
}
