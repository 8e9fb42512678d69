package statemark.spark.offline

import org.apache.spark.sql.streaming.OutputMode
import statemark.common.InvalidInputException
import statemark.spark.conf.ProviderClass
import statemark.spark.offline.repartition.RepartitionCommand

/** What these lines of Spark cannot do is said, and nothing is changed. */
class RepartitionRefusalSuite extends OfflineSuite {
  for (words <- Seq(Seq("--partitions", "3"), Seq("--rollback")))
    test(s"refused: repartition ${words.mkString(" ")}") {
      val job = new Job(_.groupBy("key").count(), OutputMode.Update(), checkpoint)
      job.run(ProviderClass.Statemark, Seq(1 -> 0L, 2 -> 0L))
      val refusal = intercept[InvalidInputException] {
        val args = checkpoint.toString +: "--observe" +: "0" +: words
        CommandLine.run(RepartitionCommand, args, context(new RecordingConsole))
      }
      assert(refusal.getMessage.contains("a repartition needs Spark 4.2 or newer"))
      job.run(ProviderClass.Statemark, Seq(1 -> 1L))
      assert(job.output == Map(0L -> Seq("[1,1]", "[2,1]"), 1L -> Seq("[1,2]")))
    }
}
