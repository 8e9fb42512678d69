package statemark.spark.offline

import java.nio.file.{Path => JPath}
import statemark.spark.checkpoint.StoreFile
import statemark.spark.conf.ProviderClass
import statemark.spark.offline.checkpoint.QueryCheckpoint
import statemark.spark.offline.repartition.{Repartition, RepartitionResult}

/** Repartitions, rollbacks and switches of one checkpoint at once. */
class RepartitionBesideSuite extends CommandsBeside {
  import CommandsBeside._
  import ProviderClass.{RocksDb, Statemark}

  private def repartition(location: String, dies: Boolean = false): Repartition = new Repartition(
    spark,
    QueryCheckpoint.open(location, spark, context(new RecordingConsole).hadoopConf),
    // No task writes any more then.
    at => if (dies && at.partitionsDone == at.partitions) throw Killed
  )

  private def partitions(of: QueryCheckpoint) = of.latestOffset.partitions

  private def running(to: Int) = Action(
    s"repartition to $to",
    "repartition",
    place => repartition(place.location).run(to),
    now => now.isLastBatchCommitted && partitions(now).contains(to)
  )

  private val rollback = Action(
    "rollback",
    "repartition",
    place => repartition(place.location).rollback(),
    _.isLastBatchCommitted
  )

  override protected def recover(at: JPath): Unit = repartition(at.toString).rollback(): Unit

  // In format v1 nothing but its name tells whose a snapshot is. One of several tasks may fail as it looks for
  // the owner; the only one of a job cannot be saved by another.
  for (step <- Seq("create", "rename"); to <- Seq(1, 3))
    test(s"a rollback before one of $to tasks' $step of a snapshot: it is not there afterwards") {
      val at = directory.resolve("query")
      counts(at).run(RocksDb, history: _*): Unit
      val (undisturbed, again) = (directory.resolve("undisturbed"), directory.resolve("again"))
      copyOf(at, undisturbed)
      def isMoment(what: String) = what.startsWith(step) && what.contains("5.zip")
      val location = s"${SteppedFileSystem.Scheme}://$at"
      val outcome = SteppedFileSystem.beside[Any]((_, what) => isMoment(what), None, Killed)(
        repartition(location).run(to)
      )(repartition(location).rollback())
      assert(
        outcome.before.nonEmpty && outcome.other.get.isInstanceOf[RepartitionResult.RolledBack]
      )
      assert(outcome.one.failed.get.getMessage.contains("another command"), outcome)
      val left = opened(at).stores().flatMap(s => s.files.map(s -> _.name))
        .filter(f => StoreFile.version(f._2).contains(5L))
      assert(left.isEmpty)
      copyOf(at, again)
      assert(nextOutput(again, RocksDb) == nextOutput(undisturbed, RocksDb))
    }

  for (format <- 1 to 2)
    test(s"format v$format: each ends as it says, or refuses") {
      spark.conf.set("spark.sql.streaming.stateStore.checkpointFormatVersion", format.toString)
      try {
        def query(name: String): JPath = {
          val at = directory.resolve(name)
          counts(at).run(RocksDb, history: _*): Unit
          at
        }
        val stopped = query("stopped")
        val begun = query("begun")
        intercept[Exception](repartition(begun.toString, dies = true).run(3)): Unit
        assert(!opened(begun).isLastBatchCommitted)
        val starts = Seq(
          Start("stopped", stopped, Seq(running(3), running(1), rollback, switching(Statemark))),
          Start(
            "begun",
            begun,
            Seq(running(3), rollback, rollback, switching(Statemark, "--force"))
          )
        )
        interleave(starts, pairs(15), every = 5)
      } finally spark.conf.unset("spark.sql.streaming.stateStore.checkpointFormatVersion")
    }
}
