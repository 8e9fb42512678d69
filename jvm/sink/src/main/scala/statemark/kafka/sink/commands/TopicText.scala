package statemark.kafka.sink.commands

import java.time.Instant
import java.time.temporal.ChronoUnit
import org.json4s.{JInt, JObject}
import org.json4s.JsonDSL._
import statemark.kafka.conf.SinkIdentity
import statemark.kafka.decision.SourceEnds
import statemark.kafka.tools.{DecisionStatus, NextStart, OpenTransaction, SinkStatus, StatusReport}

/** A report as `topic status` prints it. */
private[commands] object TopicText {
  private val MostPlaces = 8

  def lines(report: StatusReport): Seq[String] = {
    val others = report.openOfOthers
    report.sinks.flatMap(sink => ofSink(sink, report.openOf(sink.identity))) ++
      (if (others.isEmpty) Nil
       else
         "transactions of others that hold readers back" +: others.flatMap(ofOther).map(
           "  " + _
         ) :+ "  remedy: they end with their application, or after its transaction timeout; " +
           "kafka-transactions.sh abort ends one") ++
      report.notes.map(n => s"not looked at: $n") :+ summary(report)
  }

  /** One sink. */
  def ofSink(sink: SinkStatus, open: Seq[OpenTransaction]): Seq[String] = {
    val rows = sink.record.toSeq.flatMap { record =>
      val names = Seq(
        Option.when(record.queryName.nonEmpty)(s"'${record.queryName}'"),
        Option.when(record.queryId != sink.identity.appId)(record.queryId)
      ).flatten
      Seq(
        "query" -> names.mkString(", "),
        "run" -> (record.run.toString + sink.begunAtMs.fold("")(ms => s", begun ${time(ms)}")),
        "topics" -> sink.topics.toSeq.sorted.mkString(", ")
      )
    } ++ sink.decision.toSeq.flatMap(d =>
      Seq("last" -> decision(d), "input" -> input(d))
    ) :+ ("next start" -> sink.next.text)
    sink.identity.toString +: rows.filter(_._2.nonEmpty).map { case (name, text) =>
      s"  ${name.padTo(12, ' ')}$text"
    } :++ (if (open.isEmpty) Nil
           else "  open" +: open.flatMap(ofTransaction(_, "")).map("    " + _))
  }

  private def decision(d: DecisionStatus): String = {
    val when = d.decidedAtMs.fold("")(ms => s", decided ${time(ms)}")
    val state =
      if (d.unfinished.isEmpty) "complete"
      else s"not complete, ${d.unfinished.size} of them not with the readers"
    s"batch ${d.batch}$when: ${counted(d.rows, "row")} in " +
      s"${counted(d.transactions.toLong, "transaction")}, $state"
  }

  private def input(d: DecisionStatus): String = {
    val places = d.input.flatMap(_.offsets).map { case (place, end) => s"$place $end" }
    val more = places.size - MostPlaces
    val groups = d.input.map(_.group).filter(_.nonEmpty).distinct
    val noted =
      if (d.input.nonEmpty && places.isEmpty)
        s"more than ${SourceEnds.MostPartitions} partitions, which are not noted"
      else places.take(MostPlaces).mkString(", ") + (if (more > 0) s" and $more more" else "")
    noted + groups.map(g => s"; committed to group $g").mkString
  }

  private def ofOther(t: OpenTransaction): Seq[String] =
    ofTransaction(t, t.sink.fold("")(s => s", of sink $s"))

  private def ofTransaction(t: OpenTransaction, of: String): Seq[String] = {
    val id = t.transactionalId.getOrElse("transactional id unknown")
    val since = t.sinceMs.fold("")(ms => s", since ${time(ms)}")
    val end =
      if (t.isEnding) ", is ending"
      else t.timeoutMs.fold("")(ms => s", the brokers end it after ${ms / 1000} s")
    s"$id (producer ${t.producerId})$of$since$end" +: t.held.map { h =>
      s"  ${h.topicPartition}: from offset ${h.since} on; readers see up to ${h.stable}, the log " +
        s"ends at ${h.end}"
    }
  }

  private def summary(report: StatusReport): String = {
    val open = report.sinks.count(_.next.isInstanceOf[NextStart.Completes])
    val others = report.openOfOthers.size
    (Seq(s"${report.commitTopic}: ${counted(report.sinks.size.toLong, "sink")}") ++
      Option.when(open > 0)(
        s"$open not complete: a run that goes on completes it, or statemark topic finish"
      ) ++ Option.when(others > 0)(s"${counted(others.toLong, "transaction")} of others")).mkString(
      ", "
    )
  }

  /** What `topic finish` and `topic forget` have come to.
    * @param notes what people read
    */
  def json(identity: SinkIdentity, outcome: String, notes: Seq[String]): JObject =
    ("identity" -> identity.toString) ~ ("outcome" -> outcome) ~ ("notes" -> notes)

  def json(report: StatusReport): JObject =
    ("commitTopic" -> report.commitTopic) ~
      ("sinks" -> report.sinks.map(s => sinkJson(s, report.openOf(s.identity)))) ~
      ("others" -> report.openOfOthers.map(transactionJson)) ~
      ("notes" -> report.notes)

  private def sinkJson(s: SinkStatus, open: Seq[OpenTransaction]): JObject =
    ("identity" -> s.identity.toString) ~ ("appId" -> s.identity.appId) ~
      ("sink" -> s.identity.sink) ~
      ("queryId" -> s.record.map(_.queryId)) ~
      ("queryName" -> s.record.map(_.queryName).filter(_.nonEmpty)) ~
      ("prefix" -> s.record.map(_.prefix)) ~
      ("run" -> s.record.map(_.run)) ~
      ("begunAt" -> s.begunAtMs.map(instant)) ~
      ("topics" -> s.topics.toSeq.sorted) ~
      ("lastDecision" -> s.decision.map(decisionJson)) ~
      ("nextStart" -> (("kind" -> s.next.name) ~ ("text" -> s.next.text))) ~
      ("open" -> open.map(transactionJson))

  private def decisionJson(d: DecisionStatus): JObject =
    ("batch" -> d.batch) ~ ("decidedAt" -> d.decidedAtMs.map(instant)) ~ ("rows" -> d.rows) ~
      ("input" -> d.input.map(of =>
        ("source" -> of.source) ~ ("group" -> Some(of.group).filter(_.nonEmpty)) ~
          ("offsets" -> of.topics.map { case (topic, ends) =>
            topic -> JObject(ends.map { case (n, end) => n.toString -> JInt(end) }: _*)
          }.toMap)
      )) ~
      ("transactions" -> d.transactions) ~ ("complete" -> d.unfinished.isEmpty) ~
      ("unfinished" -> d.unfinished.map(u =>
        ("transactionalId" -> u.name.transactionalId) ~ ("rows" -> u.rows) ~
          ("committing" -> u.isCommitting)
      ))

  private def transactionJson(t: OpenTransaction): JObject =
    ("producerId" -> t.producerId) ~ ("transactionalId" -> t.transactionalId) ~
      ("sink" -> t.sink.map(_.toString)) ~ ("since" -> t.sinceMs.map(instant)) ~
      ("timeoutMs" -> t.timeoutMs) ~ ("ending" -> t.isEnding) ~
      ("partitions" -> t.held.map(h =>
        ("topic" -> h.topicPartition.topic) ~ ("partition" -> h.topicPartition.partition) ~
          ("since" -> h.since) ~ ("lastStableOffset" -> h.stable) ~ ("end" -> h.end)
      ))

  private def instant(ms: Long): String = Instant.ofEpochMilli(ms).toString

  private def time(ms: Long): String =
    Instant.ofEpochMilli(ms).truncatedTo(ChronoUnit.SECONDS).toString

  def counted(count: Long, what: String): String = counted(count, what, s"${what}s")

  def counted(count: Long, one: String, more: String): String =
    if (count == 1) s"1 $one" else s"$count $more"
}
