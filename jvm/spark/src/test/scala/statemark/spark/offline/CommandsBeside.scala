package statemark.spark.offline

import java.nio.file.{Files, Path => JPath}
import org.apache.spark.sql.streaming.OutputMode
import scala.jdk.CollectionConverters._
import scala.util.{Random, Success, Try}
import statemark.common.{Causes, InvalidInputException}
import statemark.spark.conf.ProviderClass
import statemark.spark.offline.checkpoint.QueryCheckpoint
import statemark.spark.offline.cli.ExitCode
import statemark.spark.offline.switching.SwitchCommand

/** Two commands on one checkpoint, one of them whole before any file operation of the other, which may die
  * after that: each ends in what it says, or refuses.
  */
trait CommandsBeside extends OfflineSuite {
  import CommandsBeside._

  /** How many pairs each test takes; more where it is run at full size. */
  protected def pairs(usual: Int): Int =
    sys.env.get("STATEMARK_INTERLEAVINGS").fold(usual)(_.toInt)

  private val seed = sys.env.get("STATEMARK_SEED").fold(30L)(_.toLong)

  override protected def beforeAll(): Unit = {
    super.beforeAll()
    SteppedFileSystem.configure(spark.sparkContext.hadoopConfiguration)
  }

  protected val history: Seq[Seq[(Int, Long)]] =
    Seq.tabulate(4)(b => Seq.tabulate(12)(i => ((i * (b + 2)) % 7, b.toLong)))
  private val next = Seq.tabulate(12)(i => (i % 9, 4L))

  /** Copies of a checkpoint are one query: each has its local state to itself. */
  protected def counts(at: JPath): Job = new Job(
    _.groupBy("key").count(),
    OutputMode.Update(),
    at,
    Map("spark.sql.streaming.stateStore.statemark.localDir" -> s"$at-local")
  )

  /** What a query that goes on there makes of its next batch. */
  protected def nextOutput(at: JPath, provider: ProviderClass): Seq[String] = {
    val job = counts(at)
    history.foreach(job.add(_: _*))
    job.run(provider, next).output.maxBy(_._1)._2
  }

  protected def opened(path: JPath): QueryCheckpoint =
    QueryCheckpoint.open(path.toString, spark, context(new RecordingConsole).hadoopConf)

  protected def switching(to: ProviderClass, more: String*): Action = Action(
    s"switch to $to ${more.mkString}",
    "switch",
    place => {
      val args = Seq(place.location, "--to", to.shortName, "--observe", "0") ++ more
      CommandLine.run(SwitchCommand, args, context(new RecordingConsole))
    },
    checkpoint => {
      val pinned = checkpoint.offsets.flatMap(_.provider)
      pinned.lastOption.contains(to) && pinned.forall(p => p == to || p == ProviderClass.Hdfs)
    }
  )

  /** Copies files without those that Hadoop keeps of their checksums: stepped files have none, so one that is written there
    * would be read with the checksum of the file that it has replaced.
    */
  protected def copyOf(checkpoint: JPath, to: JPath): Unit = {
    val walk = Files.walk(checkpoint)
    try walk.iterator.asScala.filterNot(_.toString.endsWith(".crc")).foreach(p =>
        Files.copy(p, to.resolve(checkpoint.relativize(p).toString))
      )
    finally walk.close()
  }

  private def isHeld(at: JPath): Boolean = {
    val own = at.resolve("_statemark").toFile.listFiles
    Option(own).toSeq.flatten.exists(_.toPath.resolve("held").toFile.exists)
  }

  /** Takes back what was left undone. */
  protected def recover(at: JPath): Unit

  /** @param every how many pairs go until a query goes on after one
    * @param copies whether renames are copies
    */
  protected def interleave(
      starts: Seq[Start],
      count: Int,
      every: Int,
      copies: Boolean = false
  ): Unit = {
    val random = new Random(seed)
    def any[A](of: Seq[A]) = of(random.nextInt(of.length))
    lazy val expected = {
      val path = directory.resolve("undisturbed")
      copyOf(starts.head.checkpoint, path)
      nextOutput(path, ProviderClass.Statemark)
    }
    var operations = 60
    var successes = 0
    for (round <- 0 until count) {
      val start = any(starts)
      val (one, other) = (any(start.actions), any(start.actions))
      val at = random.nextInt(operations)
      val deathAt = Option.when(random.nextBoolean())(at + random.nextInt(6))
      val path = directory.resolve(s"round-$round")
      copyOf(start.checkpoint, path)
      val place = Place(s"${SteppedFileSystem.Scheme}://$path", path)
      var wasHeld = false
      SteppedFileSystem.copies = copies
      val outcome =
        try
          SteppedFileSystem.beside[Any]((n, _) => n == at, deathAt, Killed)(one.run(place)) {
            wasHeld = isHeld(path)
            other.run(place)
          }
        finally SteppedFileSystem.copies = false
      operations = (outcome.operations + 2).max(40)
      val clue =
        s"round $round, ${start.name}: $one, and $other at $at (${outcome.before.mkString}), " +
          s"death at ${deathAt.mkString}, held $wasHeld: ${outcome.one}; ${outcome.other}: "
      withClue(clue) {
        check(one, other, outcome, wasHeld, opened(path))
        recover(path)
        assert(switching(ProviderClass.Statemark).run(Place(path.toString, path)) == ExitCode.Ok)
        val now = opened(path)
        assert(switching(ProviderClass.Statemark).holds(now) && now.isLastBatchCommitted)
        val left = Option(path.resolve("_statemark").toFile.list).toSeq.flatten
        assert(left.forall(name => name == "mark" || name.startsWith("switch-")), left)
        start.check(path)
        if (round % every == every - 1)
          assert(nextOutput(path, ProviderClass.Statemark) == expected)
      }
      if (outcome.one.isSuccess || outcome.other.isSuccess) successes += 1
      statemark.spark.local.LocalDirectory.deleteTree(path.toFile)
    }
    info(s"$count pairs, a command succeeded in $successes")
    assert(successes > count / 3)
  }

  /** Tells whether a command died of its kill, which may come while it fails by something else: what it has said is heard
    * by nobody then.
    */
  private def isDeath(failure: Throwable): Boolean =
    Causes.of(failure).exists(cause => cause == Killed || cause.getSuppressed.contains(Killed))

  private def check(
      one: Action,
      other: Action,
      outcome: SteppedFileSystem.Outcome[Any],
      wasHeld: Boolean,
      now: QueryCheckpoint
  ): Unit = {
    def isRefusal(of: Try[Any]) = of.failed.toOption.exists(_.isInstanceOf[InvalidInputException])
    for (e <- Seq(outcome.one, outcome.other).flatMap(_.failed.toOption))
      assert(
        e.isInstanceOf[InvalidInputException] || isDeath(e),
        Causes.of(e).map(c =>
          s"$c ${c.getStackTrace.take(12).mkString("\n  ", "\n  ", "")}"
        ).mkString("\n")
      )
    val areOfOneKind = one.kind == other.kind
    (outcome.one, outcome.other) match {
      case (Success(_), Success(_)) =>
        assert(!wasHeld, "both say success, and both had it at a time")
        val last = if (outcome.before.isEmpty) other else one
        assert(last.holds(now))
        if (!areOfOneKind) assert(one.holds(now) && other.holds(now))
      case (Success(_), _) => assert(one.holds(now))
      case (first, Success(_)) => if (wasHeld || isRefusal(first)) assert(other.holds(now))
      case _ => ()
    }
  }
}

object CommandsBeside {

  /** What a command dies of. */
  case object Killed extends RuntimeException("killed")

  /** @param location of the checkpoint, with stepped files
    * @param path of the same, with plain ones
    */
  final case class Place(location: String, path: JPath)

  /** A command in a test.
    *
    * @param kind commands of one kind undo each other
    * @param holds whether what it does is so
    */
  final case class Action(
      name: String,
      kind: String,
      run: Place => Any,
      holds: QueryCheckpoint => Boolean
  ) {
    override def toString: String = name
  }

  /** A checkpoint to begin with, and what may be done to it.
    *
    * @param check what holds in the end, when the query is on Statemark
    */
  final case class Start(
      name: String,
      checkpoint: JPath,
      actions: Seq[Action],
      check: JPath => Unit = _ => ()
  )
}
