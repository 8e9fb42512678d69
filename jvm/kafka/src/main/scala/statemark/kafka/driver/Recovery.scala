package statemark.kafka.driver

import org.apache.kafka.clients.admin.Admin
import org.apache.kafka.clients.producer.ProducerRecord
import org.apache.kafka.common.TopicPartition
import scala.collection.mutable
import scala.util.control.NonFatal
import statemark.kafka.clients.Fencing
import statemark.kafka.conf.{
  SinkException,
  SinkIdentity,
  SinkObserver,
  SinkPhase,
  SinkTransactionalId
}
import statemark.kafka.decision.{CompletionReport, LastDecision, Outcome, RecoveryReport}
import statemark.kafka.executor.TransactionLine
import statemark.kafka.log.{CommitLog, CommitRecord, CommitState, CommitTopic, IdentityRecord}

/** Takes an identity over: fences who wrote for it before, and completes what that has decided. Fence, then read; the
  * order is what makes it right. ''Thread:'' the driver's.
  */
private[kafka] final class Recovery(
    context: SinkContext,
    admin: Admin,
    line: TransactionLine,
    log: CommitLog,
    fencing: Fencing,
    completion: Completion,
    marker: CheckpointMarker,
    observer: SinkObserver,
    failures: DriverFailures
) {
  import context.{identity, settings}
  private val ownId = context.driverId.text
  // The last run that this driver has noted, or tried to.
  private var lastBegun = 0L

  /** Recovers. Afterwards the last decision is complete, and nobody but this driver can decide.
    * @param checks run once the id is initialized; lines for the log
    * @param completes whether the last decision is completed; false gives up what readers do not have of it
    * @throws SinkException where the sink cannot, or must not, go on
    */
  def run(checks: => Vector[String], completes: Boolean = true): RecoveryReport = {
    val hadCommitTopic = CommitTopic.ensure(admin, settings)
    initialize()
    observer.reached(SinkPhase.DriverInitialized)
    val notes = checks ++ hadCommitTopic.fold(
      Vector(s"Commit topic ${settings.commitTopic} was made")
    )(_ => Vector.empty)
    val ended = mutable.Set.empty[String]
    val read = () => log.read(identity, endCommits(_, ended))
    val before = fenceDrivers(read, Set(ownId))
    val isNewcomer = before.identity.isEmpty && !context.isRandom
    val warnings = if (isNewcomer) newcomer() else Vector.empty
    val run = before.identity.fold(1L)(_.run + 1)
    val prefixes = prefixesOf(before)
    begin(run)
    // Another driver may have done the same in between, also with an id that was fenced above: whoever is named in the log now
    // can decide no more.
    val state = fenceDrivers(read, Set(ownId))
    requireOwn(state, run)
    if (!marker.exists()) marker.write()
    var open: Either[String, Set[String]] = Right(Set.empty)
    // At once, as each fence waits until the outcome of a transaction is written.
    def fenceOpenAnd(ids: Set[String]): Unit = {
      open = fencing.open(identity, prefixes).map(_ - ownId)
      fencing.fence(ids ++ open.getOrElse(Set.empty))
      observer.reached(SinkPhase.RunBegun)
    }
    val completed = state.last match {
      case LastDecision.Decided(decision) if state.unfinished(decision).nonEmpty =>
        val unfinished = state.unfinished(decision).map(_._1.name).toSet
        if (completes) {
          Some(completion.complete(decision, state.progress(decision, _, _))(fenceOpenAnd))
        } else {
          fenceOpenAnd(unfinished.map(_.transactionalId) - ownId)
          None
        }
      case _ =>
        fenceOpenAnd(Set.empty)
        None
    }
    if (state.staleTokens.nonEmpty) removeTokens(log.read(identity).staleTokens)
    RecoveryReport(
      identity,
      run,
      state.last.decided.headOption.map(_.batch),
      outcomeOf(state.last, completed),
      open.getOrElse(Set.empty) ++ ended,
      completed,
      notes ++ warnings ++ open.left.toOption
    )
  }

  /** Takes the driver's id anew where the brokers have dropped it. The run goes on, and is noted again: of two drivers that take
    * the sink over at once, the one that is noted last goes on.
    * @throws SinkException.Superseded where another driver has the sink
    */
  def renew(run: Long): Unit = {
    requireOwn(log.read(identity), run)
    initialize()
    begin(run)
    requireOwn(log.read(identity), run)
  }

  private def outcomeOf(found: LastDecision, completed: Option[CompletionReport]): Outcome =
    found match {
      case LastDecision.Nothing => Outcome.Undecided
      case LastDecision.Decided(_) if completed.forall(_.reopened.isEmpty) => Outcome.Complete
      case LastDecision.Decided(_) | (_: LastDecision.Reopened) => Outcome.Lost
    }

  /** Fences every driver that the state names; reads again until nobody new is named. */
  private def fenceDrivers(read: () => CommitState, fenced: Set[String]): CommitState = {
    val state = read()
    val others = state.drivers -- fenced
    if (others.isEmpty) state
    else {
      fencing.fence(others)
      fenceDrivers(read, fenced ++ others)
    }
  }

  /** Ends what holds the commit topic back, where it may be a commit of the last decision: an executor that died with its
    * token sent leaves it open until its timeout. What is aborted is copied. Where the cleaner could take the rows before
    * they are kept, the timeout is waited for.
    * @param ended takes the ids of what was open
    */
  private def endCommits(known: CommitState, ended: mutable.Set[String]): Unit =
    known.last match {
      case LastDecision.Decided(decision) if !completion.mayLoseRows(decision) =>
        val ids = known.unfinished(decision).map(_._1.name.transactionalId).toSet
        val open = fencing.open(identity, prefixesOf(known)).getOrElse(Set.empty).intersect(ids)
        ended ++= open - ownId
        fencing.fence(ids - ownId)
      case _ => ()
    }

  private def prefixesOf(state: CommitState): Set[String] =
    state.identity.map(_.prefix).toSet + settings.prefix

  private def begin(run: Long): Unit = {
    lastBegun = run
    val record = IdentityRecord(
      identity,
      context.queryId,
      ownId,
      settings.prefix,
      run,
      context.queryName.take(Recovery.MostNameCharacters),
      settings.topic.toVector
    )
    write("The run could not be noted")(place => Seq(CommitTopic.record(place, record)))
  }

  private def write(problem: String)(
      records: TopicPartition => Seq[ProducerRecord[Array[Byte], Array[Byte]]]
  ): Unit =
    failures.deciding(problem) {
      line.transaction { producer =>
        records(CommitTopic.partitionOf(settings, identity)).foreach(producer.send(_): Unit)
      }
    }

  /** Removes old tokens in the middle of a run, once they are many: each executor that is launched leaves one. To be called
    * while no batch is in progress, whose tokens may be on their way.
    */
  def removeStaleTokens(state: CommitState): Unit = {
    val keys = state.staleTokens
    if (keys.size > Recovery.MostStaleTokens) removeTokens(keys)
  }

  /** Behind the fences, and by what the log says then: an order that outlives its driver may be carried out until its
    * executor is fenced, and its token would be removed with the older one of the same key.
    */
  private def removeTokens(keys: Vector[Array[Byte]]): Unit =
    write("Old tokens could not be removed")(place => keys.map(CommitTopic.tombstone(place, _)))

  /** @throws SinkException.Superseded where the commit topic names another run */
  def requireOwn(state: CommitState, run: Long): Unit =
    if (!state.identity.exists(r => r.driverId == ownId && r.run == run))
      throw new SinkException.Superseded(
        "another driver took the sink over while this one did",
        Map(
          "sink" -> identity.toString,
          "driver" -> ownId,
          "otherDriver" -> state.identity.fold("none")(_.driverId)
        ),
        None
      )

  /** Nothing is known of the identity: it is new, or what was known is lost.
    * @return lines for the log
    */
  private def newcomer(): Vector[String] = {
    val namesakes = new Namesakes(context)
    // Besides the query's other sinks: somebody may have copied the topic into one of another shape (K6).
    val ofQuery =
      log.readAll(_.appId == identity.appId, Option.when(namesakes.isNamed)(namesakes.note(_, _))) {
        (of, state) =>
          (of == identity && state.records.nonEmpty, unfinishedNote(of, state))
      }
    if (ofQuery.exists(_._1)) throw unlessTaken(
      "Records of the sink lie in another partition of the commit topic",
      s"they belong into partition ${identity.commitPartition}: the topic was copied, and not " +
        "partition by partition",
      "Copy it anew, each record into the partition of the same number"
    )
    if (marker.exists()) throw unlessTaken(
      "The commit topic does not know the sink, but the checkpoint does",
      "the topic was lost or made anew, or this is another cluster, or option 'commitTopic' " +
        "has changed",
      "Name the right cluster and commit topic; or remove what the checkpoint knows, the file " +
        s"_statemark/kafka/${SinkTransactionalId.escaped(identity.sink)} in it: ${SinkException.Repeats}"
    )
    namesakes.lines(log) ++ ofQuery.flatMap(_._2).sorted
  }

  /** Another option `sinkName`, or `topic`, makes another sink: what the old one has decided stays as it is. */
  private def unfinishedNote(other: SinkIdentity, state: CommitState): Option[String] =
    if (other == identity || !state.isReadable) None
    else state.last match {
      case LastDecision.Decided(decision) if state.unfinished(decision).nonEmpty =>
        Some(
          s"Sink $other of the same query has decided batch ${decision.batch}, which is not " +
            "complete: run the query once more with the options that it had, or complete it with " +
            "`statemark topic finish`; this sink may write the batch's rows again"
        )
      case _ => None
    }

  /** Compares like [[requireOwn]], after a failure, which may have left a run of this driver's behind that did not get through.
    * @throws SinkException.Superseded where the commit topic names a run of another driver's, or none: only a new run takes
    *   the sink back
    */
  def requireLast(state: CommitState): Unit =
    if (!state.identity.exists(r => r.driverId == ownId && r.run <= lastBegun))
      requireOwn(state, lastBegun)

  /** Returns what is wrong with the commit topic.
    * @throws SinkException.Superseded where another driver began the sink since this one read that nobody had
    */
  private def unlessTaken(problem: String, reason: String, remedy: String): SinkException = {
    val state = log.read(identity)
    if (state.identity.isDefined) requireOwn(state, lastBegun)
    wrongHistory(problem, reason, remedy)
  }

  private def wrongHistory(problem: String, reason: String, remedy: String) =
    new SinkException.WrongHistory(
      problem,
      reason,
      remedy,
      Map("sink" -> identity.toString, "commitTopic" -> settings.commitTopic)
    )

  private def initialize(): Unit =
    try line.open()
    catch { case NonFatal(e) => throw DriverFailures.ofInitialization(e, context) }
}

/** Sinks of other queries that have the name of this one, and its topic: one of them may be this query, with a checkpoint
  * that was deleted. Those are kept in mind that began last. ''Thread:'' the driver's.
  */
private final class Namesakes(context: SinkContext) {
  import Recovery.{MostNameCharacters, MostNamesakes}

  private val name = context.queryName.take(MostNameCharacters)
  private val begunAtMs = mutable.Map.empty[SinkIdentity, Long]
  private var isCut = false

  /** Tells whether the query has a name. */
  def isNamed: Boolean = name.nonEmpty

  /** Keeps the sink of a record in mind, if it is one of these. */
  def note(record: CommitRecord, timestampMs: Long): Unit = record match {
    case record: IdentityRecord if isMeant(record) =>
      begunAtMs(record.identity) = timestampMs
      if (begunAtMs.size > MostNamesakes) {
        begunAtMs -= begunAtMs.minBy(_._2)._1
        isCut = true
      }
    case _ => ()
  }

  /** Returns lines for the log about those that the commit topic still knows. */
  def lines(log: CommitLog): Vector[String] =
    if (begunAtMs.isEmpty) Vector.empty
    else {
      val found = log.readAll(begunAtMs.contains) { (_, state) =>
        state.identity.filter(record => isMeant(record) && state.isReadable).map { record =>
          val last = state.last.decided.headOption.fold("none")(_.batch.toString)
          s"Another query ${record.queryId} of the name '${record.queryName}' has written to " +
            s"${record.topics.mkString(", ")}, last batch $last: if its checkpoint was deleted, its " +
            "rows are written again"
        }
      }
      found.flatten.sorted ++ Option.when(isCut)(
        s"More queries of the name '$name' have written there: the $MostNamesakes that began last are named"
      )
    }

  private def isMeant(record: IdentityRecord): Boolean =
    isNamed && record.queryName == name && record.queryId != context.queryId &&
      record.topics == context.settings.topic.toVector
}

private object Recovery {

  /** Of a query's name, which only helps to find another query of the same name; a record holds 64 KiB of it. */
  val MostNameCharacters = 1000

  /** So many queries of one name are told of. */
  val MostNamesakes = 20

  /** Tokens of executors that are gone, which a run leaves in the commit topic. */
  val MostStaleTokens = 100
}
