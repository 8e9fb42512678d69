package statemark.spark.offline

import java.io.File
import java.nio.file.{Files, Path, StandardCopyOption}
import java.util.concurrent.TimeUnit
import org.json4s.jackson.JsonMethods.parse
import org.json4s.{JArray, JBool, JInt, JNothing, JString, JValue}
import org.scalatest.funsuite.AnyFunSuite
import scala.jdk.CollectionConverters._
import statemark.common.InvalidInputException
import statemark.spark.local.{DiskUse, LoadSource, StoreDirectory}
import statemark.spark.{LocalStores, Providers}
import statemark.spark.offline.cli.ExitCode
import statemark.spark.offline.local.LocalCommand
import statemark.spark.offline.verify.Sizes

/** `statemark local` shows homes without harm to them, and deletes those alone that nobody uses. */
class LocalSuite extends AnyFunSuite with LocalStores with QueryCheckpoints {
  private val day = TimeUnit.DAYS.toMillis(1)

  for ((format, extra) <- Seq("v1" -> Map.empty[String, String], "v2" -> Providers.v2))
    test(s"identity, version, id, size and last use; a restart uses the home as before ($format)") {
      val ids = write(3, extra)
      val before = contents(homes.head)
      val usedAt = StoreDirectory.usedAtMs(homes.head.toFile)
      val listing = json()
      val Seq(home) = listed(listing): @unchecked
      assert(home \ "queryId" == JString(query.queryId) && home \ "store" == JString("0-0-default"))
      assert(home \ "version" == JInt(3) && home \ "partitions" == JInt(query.partitions))
      assert(home \ "checkpointId" == ids.last.fold[JValue](JNothing)(JString(_)))
      assert(home \ "bytes" == JInt(DiskUse.of(homes.head.toFile).bytes))
      assert(home \ "usedAt" == JString(java.time.Instant.ofEpochMilli(usedAt).toString))
      assert(home \ "state" == JString("idle") && listing \ "totals" \ "homes" == JInt(1))
      val Seq(_, line, total) = shown("--stores"): @unchecked
      assert(line.split(" {2,}").take(4).toSeq ==
        Seq(query.queryId, "0-0-default", "3", ids.last.getOrElse("-")))
      assert(line.endsWith("  idle") && total.startsWith(s"$local: 1 store, "))
      assert(contents(homes.head) == before && StoreDirectory.usedAtMs(homes.head.toFile) == usedAt)
      val after = open(extra)
      check(after, 3, ids, expected(3))
      assertServed(after, 3, ids, LoadSource.Local)
    }

  test("a query that starts while somebody looks at its home uses it") {
    val ids = write(3, Map.empty)
    // For as long as `statemark local` has it locked to see whether it is in use.
    holding(homes.head, "LOCK_SH, 1, 1") {
      val after = open()
      check(after, 3, ids, expected(3))
      assertServed(after, 3, ids, LoadSource.Local)
      after.close()
      assert(!StoreDirectory.isInUse(homes.head.toFile), "two may look at once")
    }
    // The place that a query takes is none that whoever looks asks for, or holds for a moment.
    holding(homes.head, "LOCK_EX, 1, 0") {
      assert(!StoreDirectory.isInUse(homes.head.toFile))
    }
    holding(homes.head, "LOCK_EX, 1, 1") {
      assert(StoreDirectory.isInUse(homes.head.toFile))
    }
    open().getStore(4, None).abort()
    assert(listed(json()).map(_ \ "state") == Seq(JString("in-use")))
  }

  test("a home in use has the version that its owner noted, and is never deleted") {
    write(3, Map.empty): Unit
    val used = copied(homes.head, "used")
    Files.writeString(used.resolve(StoreDirectory.LockName), "7\n")
    homes.foreach(grown(_, 30 * day))
    holding(used) {
      val states =
        listed(json("--prune", "--max-bytes", "1b")).map(h => h \ "state" -> h \ "version")
      assert(states.map(_._1) == Seq(JString("in-use")) && states.head._2 == JInt(7))
      assert(homes == Seq(used))
      assert(shown().last.contains("1 store, ") && shown().last.endsWith(", 1 in use"))
    }
    assert(listed(json("--prune")).isEmpty && !local.resolve(query.queryId).toFile.exists)
  }

  test(
    "--prune: by age, the setting's default unless it is given; by size, the longest unused first"
  ) {
    write(1, Map.empty): Unit
    val all = homes.head +: (1 to 3).map(i => copied(homes.head, s"copy$i"))
    all.zipWithIndex.foreach { case (home, i) => grown(home, (8 - i) * day + 1000) }
    val dry = json("--prune", "--dry-run")
    assert(pruned(dry) == Seq(all(0), all(1)) && dry \ "dryRun" == JBool(true))
    val lines = shown("--prune", "--dry-run", "--stores")
    assert(lines.slice(1, 3).forall(_.startsWith("would delete  ")))
    assert(pruned(json("--prune")) == Seq(all(0), all(1)), "which a dry run had left")
    assert(pruned(json("--prune", "--max-age", "6d")) == Seq(all(2)))
    val bytes = DiskUse.of(all(3).toFile).bytes
    assert(pruned(json("--prune", "--max-bytes", s"${bytes}b")).isEmpty)
    val last = json("--prune", "--max-bytes", s"${bytes - 1}b")
    assert(pruned(last) == Seq(all(3)) && last \ "deletedBytes" == JInt(bytes))
    assert(shown("--prune") == Seq(s"$local: 0 stores, 0 B, deleted 0 stores"))
  }

  test("--prune in words: each home that went, and the bytes") {
    write(1, Map.empty): Unit
    grown(homes.head, 8 * day)
    val bytes = Sizes.text(DiskUse.of(homes.head.toFile).bytes)
    val Seq(header, line, total) = shown("--prune", "--stores"): @unchecked
    assert(line.split(" {2,}").take(7).toSeq ==
      Seq("deleted", query.queryId, "0-0-default", "1", "-", "not known", bytes))
    assert(header.indexOf("version") == line.indexOf("  1  ") + 2)
    assert(total == s"$local: 0 stores, 0 B, deleted 1 store, $bytes")
  }

  test("a line for each query: stores, bytes of files that they share, last use, states") {
    write(1, Map.empty): Unit
    val all = homes.head +: (1 to 3).map(i => copied(homes.head, s"copy$i"))
    val other = copied(homes.head, "copied", to = "another-query/0-0-default")
    all.zipWithIndex.foreach { case (home, i) => grown(home, (8 - i) * day + 1000) }
    Files.delete(all(3).resolve("base/CURRENT"))
    Files.createLink(all(3).resolve("base/CURRENT"), all(2).resolve("base/CURRENT")): Unit
    Files.delete(other.resolve("base/CURRENT"))
    val bytes = Sizes.text(all.map(h => DiskUse.of(h.toFile)).reduce(_ ++ _).bytes)
    val usedAt = java.time.Instant.ofEpochMilli(StoreDirectory.usedAtMs(all(3).toFile))
      .truncatedTo(java.time.temporal.ChronoUnit.SECONDS).toString
    holding(all(1)) {
      val Seq(header, line, damaged, total) = shown(): @unchecked
      def cells(line: String) = line.split(" {2,}").toSeq
      assert(cells(header) == Seq("query", "stores", "size", "last use", "state"))
      assert(cells(line) == Seq(query.queryId, "4", bytes, usedAt, "3 idle; 1 in-use"))
      assert(cells(damaged).head == "another-query" && cells(damaged).last == "unusable (Damaged)")
      assert(total.startsWith(s"$local: 5 stores, ") && total.endsWith(", 1 in use"))
      // The homes of a query that go, and those that stay.
      val Seq(gone, kept) = shown("--prune", "--dry-run", "--max-age", "7d").slice(1, 3): @unchecked
      assert(cells(gone).take(3) == Seq("would delete", query.queryId, "1"))
      assert(kept.trim.split(" {2,}").take(2).toSeq == Seq(query.queryId, "3"))
    }
  }

  test("what is no home stays: other names, no lock, links that lead out") {
    write(1, Map.empty): Unit
    val elsewhere = Files.createDirectories(queryDir.resolve("elsewhere/0-0-default"))
    Files.move(homes.head, elsewhere.resolve("home"))
    val parent = Files.createDirectories(local.resolve(query.queryId).resolve("0-0-default"))
    Files.createSymbolicLink(local.resolve("linked"), elsewhere.getParent)
    Files.createSymbolicLink(parent.resolve("linked"), elsewhere.resolve("home"))
    val others = Seq("q/photos/2024", "q/0-0-default/no-lock").map(local.resolve)
    others.foreach(o => Files.createDirectories(o.resolve("base")))
    Files.createFile(others.head.resolve(StoreDirectory.LockName))
    (elsewhere.resolve("home") +: others).foreach(grown(_, 400 * day))
    assert(pruned(json("--prune", "--max-bytes", "1b")).isEmpty && listed(json()).isEmpty)
    assert((elsewhere.resolve("home/base/CURRENT") +: others).forall(Files.exists(_)))
  }

  test("homes that no process can use say why") {
    write(3, Map.empty): Unit
    val foreign = copied(homes.head, "copied", to = "another-query/0-0-default")
    Files.delete(base.resolve("CURRENT"))
    val found = listed(json()).map(h => h \ "queryId" -> (h \ "state", h \ "problem"))
    val expected = Seq(query.queryId -> "Damaged", "another-query" -> "OtherStore")
    for (((id, (state, problem)), (wantedId, reason)) <- found.zip(expected)) {
      assert(id == JString(wantedId) && state == JString("unusable"))
      assert(problem.values.toString.startsWith(s"$reason: "))
    }
    assert(found.length == 2 && Files.exists(foreign))
    assert(shown()(2).endsWith("unusable (OtherStore)"))
    assert(shown("--stores") != shown() && shown("--stores")(2).endsWith("unusable (OtherStore)"))
  }

  test("another user's home is shown with its owner and stays") {
    assume(System.getProperty("user.name") == "root", "only root may give files away")
    write(1, Map.empty): Unit
    // A home of this user below a directory of another user may be forged as well.
    for (path <- Seq(homes.head, homes.head.getParent, homes.head.getParent.getParent)) {
      owned(path, "nobody")
      // No process opens another user's files: a pipe in the place of one would let it wait for ever.
      val (current, kept) = (base.resolve("CURRENT"), base.resolve("kept"))
      Files.move(current, kept)
      pipe(current)
      grown(homes.head, 30 * day)
      val listing = json("--prune")
      assert(pruned(listing).isEmpty && listed(listing).length == 1)
      for (home <- listed(listing)) {
        assert(home \ "owner" == JString("nobody") && home \ "state" == JString("unusable"))
        assert(
          (home \ "problem").values.toString == s"Foreign: $path belongs to nobody and not to root"
        )
      }
      Files.delete(current)
      Files.move(kept, current)
      owned(path, "root")
      assert(listed(json()).map(_ \ "state") == Seq(JString("idle")))
    }
  }

  test(
    "nothing but a regular file of this user is opened: neither listing nor --prune waits for a pipe"
  ) {
    write(1, Map.empty): Unit
    val good = homes.head
    val kinds = Seq[(String, Path => Unit)](
      "pipe" -> pipe,
      "link" -> (Files.createSymbolicLink(_, good.resolve("base/CURRENT")): Unit),
      "directory" -> (Files.createDirectory(_): Unit)
    )
    for ((kind, make) <- kinds; name <- Seq("CURRENT", "MANIFEST-", ".sst"))
      withClue(s"$kind, $name: ") {
        val home = copied(good, s"$kind$name")
        val file = contents(home).keys.find(_.contains(name)).map(home.resolve).get
        Files.delete(file)
        make(file)
        val found = listed(json()).find(_ \ "path" == JString(home.toString)).get
        assert(found \ "state" == JString("unusable"))
        assert((found \ "problem").values.toString.contains(s"$file is no regular file"))
        grown(home, 30 * day)
        assert(pruned(json("--prune")) == Seq(home) && !Files.exists(home))
      }
    assert(listed(json()).map(_ \ "state") == Seq(JString("idle")))
  }

  test("the directory is that of the settings, on a local master the user's cache") {
    write(1, Map.empty): Unit
    spark.conf.set(localDir, local.toString)
    try assert(run().results.last.startsWith(s"$local: 1 store"))
    finally spark.conf.unset(localDir)
    val cache = new File(sys.env("XDG_CACHE_HOME"), "statemark")
    Files.createDirectories(cache.toPath)
    assert(run().results.last.startsWith(s"$cache: "))
  }

  test("errors name the directory, the reason and the remedy") {
    val file = Files.createFile(queryDir.resolve("file"))
    val missing = queryDir.resolve("missing")
    for (
      (words, problem) <- Seq(
        Seq(
          "--local-dir",
          missing.toString
        ) -> s"$missing cannot be listed\n  reason: it does not exist",
        Seq(
          "--local-dir",
          file.toString
        ) -> s"$file cannot be listed\n  reason: it is not a directory",
        Seq("--max-age", "1d") -> "--max-age is given without --prune",
        Seq("--dry-run") -> "--dry-run is given without --prune",
        Seq(
          "--prune",
          "--max-age",
          "soon"
        ) -> "localDirMaxAge is 'soon', but it must be a time above 0",
        Seq(
          "--prune",
          "--max-bytes",
          "0"
        ) -> "localDirMaxBytes is '0', but it must be a size above 0"
      )
    ) {
      val e = intercept[InvalidInputException](run(words: _*))
      assert(e.getMessage.contains(problem))
    }
  }

  // ---- helpers

  private def run(words: String*): RecordingConsole = {
    val console = new RecordingConsole
    assert(CommandLine.run(LocalCommand, words, context(console)) == ExitCode.Ok)
    console
  }

  private def shown(words: String*): Seq[String] =
    run(Seq("--local-dir", local.toString) ++ words: _*).results

  private def json(words: String*): JValue = parse(shown("--json" +: words: _*).mkString)

  private def listed(listing: JValue): List[JValue] = (listing \ "homes") match {
    case JArray(homes) => homes
    case other => fail(s"$other is no list")
  }

  private def pruned(listing: JValue): Seq[Path] = (listing \ "deleted") match {
    case JArray(homes) => homes.map(h => Path.of((h \ "path").values.toString))
    case other => fail(s"$other is no list")
  }

  private def copied(home: Path, name: String, to: String = ""): Path = {
    val parent = if (to.isEmpty) home.getParent else local.resolve(to)
    val target = parent.resolve(name)
    contents(home).keys.foreach { file =>
      val copy = target.resolve(file)
      Files.createDirectories(copy.getParent)
      Files.copy(home.resolve(file), copy, StandardCopyOption.COPY_ATTRIBUTES)
    }
    target
  }

  /** Every file with its bytes and time. */
  private def contents(home: Path): Map[String, (Seq[Byte], Long)] = {
    val walk = Files.walk(home)
    try
      walk.iterator.asScala.filter(Files.isRegularFile(_)).map { f =>
        home.relativize(f).toString -> (Files.readAllBytes(f).toSeq, f.toFile.lastModified)
      }.toMap
    finally walk.close()
  }

  private def pipe(path: Path): Unit =
    assert(new ProcessBuilder("mkfifo", path.toString).start().waitFor() == 0)

  private def owned(path: Path, user: String): Unit = {
    val users = path.getFileSystem.getUserPrincipalLookupService
    Files.setOwner(path, users.lookupPrincipalByName(user)): Unit
  }

  private def grown(home: Path, ms: Long): Unit = {
    val lock = home.resolve(StoreDirectory.LockName).toFile
    if (lock.exists)
      assert(lock.setLastModified(context(new RecordingConsole).clock.epochMs() - ms))
  }

  /** While another process has the lock of a home, all of the file or a part. */
  private def holding(home: Path, lock: String = "LOCK_EX")(body: => Unit): Unit = {
    val script = s"import fcntl,sys; f = open(sys.argv[1], 'r+'); fcntl.lockf(f, fcntl.$lock); " +
      "print('held', flush=True); sys.stdin.read()"
    val owner = new ProcessBuilder(
      "python3",
      "-c",
      script,
      home.resolve(StoreDirectory.LockName).toString
    ).start()
    try {
      assert(owner.inputReader.readLine() == "held")
      body
    } finally {
      owner.getOutputStream.close()
      owner.waitFor(): Unit
    }
  }
}
