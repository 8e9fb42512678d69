package statemark.kafka.compaction

import org.apache.kafka.clients.consumer.ConsumerRecord
import org.apache.kafka.common.TopicPartition
import scala.annotation.tailrec
import scala.util.Using
import scala.util.control.NonFatal
import statemark.common.Clock
import statemark.kafka.{RowConsumer, RowProducer}
import statemark.kafka.conf.SinkException

/** What a repair takes from outside. Tests put faults in its place.
  * @param chunkKeys how many winners are copied at most between two looks at what came meanwhile
  * @param chunkBytes about how large they may be together
  * @param copying told before winners are copied
  * @param sees whether a record is noticed
  */
private[kafka] final case class RepairSeams(
    chunkKeys: Int = 1000,
    chunkBytes: Long = 16L << 20,
    copying: () => Unit = () => (),
    sees: ConsumerRecord[Array[Byte], Array[Byte]] => Boolean = _ => true
)

/** What has to stay as it is while a topic is repaired. */
private[compaction] trait TopicWatch {

  /** Told that the topic was read, and may be repaired by its rule, before anything is copied. */
  def isRead(): Unit

  /** Asked before the first copy, and after every read behind copies.
    * @throws SinkException where the cleaner may have come, or the topic is another one
    */
  def requireSame(): Unit
}

/** What the readings of one repair have in common. ''Thread:'' one at a time. */
private[compaction] final class RepairState {

  /** Records that were written. */
  var appended = 0L

  /** Winners that were removed before they could be copied. */
  var gone = 0L

  /** Whether no copy lies on a better record, as far as the copies of this repair go. */
  var isSettled = true

  /** Why a winner was not taken. */
  var refused: Option[SinkException] = None
}

/** One reading of a topic, and the copies that follow from it.
  *
  * A producer may write a better record between the read that found a winner and the copy of that. The copy is the last
  * record then, and the cleaner would remove the better one. So every copy is followed by a read to behind it; what is
  * found there to beat it, is copied in turn, before anything else. Until it is read, the better record has to be in the
  * log: the cleaner must stay away from it.
  *
  * ''Thread:'' one at a time.
  */
private[compaction] final class TopicRepair(
    settings: CompactionSettings,
    rules: TopicRules,
    windowMs: Option[Long],
    parts: TopicRepair.Parts,
    state: RepairState,
    progress: CompactionProgress,
    clock: Clock,
    seams: RepairSeams
) {
  import TopicRepair._
  import parts.table
  import settings.{rule, topic}

  private val places =
    Vector.tabulate(rules.partitions)(number => new TopicPartition(topic, number))
  private val reader = new TopicReader(parts.reading, places, clock, PatienceMs)
  private val fetcher = new RecordFetcher(parts.fetching, topic, clock, FetchPatienceMs)
  private val scanned = new TopicScan(table, rule)
  // When the last read began: what has come since may not have been read.
  private var readAt = Moment.now(clock)

  /** Reads the topic up to its end. */
  def scan(): TopicReport = {
    val isWhole = readOn(Map.empty)
    val found = scanned.report(reader.positions, isWhole)
    requireVersions(found)
    found
  }

  /** Reads the topic, and copies winners in rounds, each of which puts right what lies before its bounds: until no key is
    * wrong, somebody says stop, or producers have put keys wrong as fast for some rounds.
    * @return Left where a winner was gone before it was copied
    */
  def repair(watch: TopicWatch): Either[WinnerGone, RepairReport] = {
    scan(): Unit
    table.allWrong.foreach(requireTime)
    // What came during the long read is read in a short one.
    val found = scannedSoon(MostScans)
    def report(bounds: Option[Map[TopicPartition, Long]]) = {
      val ends = bounds.map(_.map { case (place, offset) => place.partition -> offset })
      RepairReport(found, state.appended, table.wrong, state.gone, ends, None)
    }
    if (!found.isWhole) Right(report(None))
    else if (found.wrong == 0) {
      if (found.records > 0) watch.isRead()
      Right(report(Some(reader.positions)))
    } else {
      watch.requireSame()
      watch.isRead()
      try
        Right(report(Using.resource(new CopySender(topic, parts.copier(scanned.largest))) {
          round(_, watch, reader.positions, None, MostRounds)
        }))
      catch { case e: WinnerGone => Left(e) }
    }
  }

  /** Reads on until there was little to read: the next read, behind copies, has to be done within the window. */
  @tailrec private def scannedSoon(left: Int): TopicReport = {
    val begun = Moment.now(clock)
    val report = scan()
    if (!report.isWhole || left == 0 || begun.elapsedMs(clock) < ShortMs) report
    else scannedSoon(left - 1)
  }

  /** A mistyped header would make every last record a winner. */
  private def requireVersions(found: TopicReport): Unit = {
    requireEachVersion()
    if (found.records > 0 && found.withoutVersion + found.unreadable == found.records)
      throw TopicRules.withoutVersions(topic, found.records, rule)
  }

  /** Looks whether a record has no version, where that is not let pass. */
  private def requireEachVersion(): Unit =
    if (settings.missing == MissingVersion.Refuse) scanned.firstWithout.foreach {
      case (partition, offset) => throw new SinkException.RefusedSetting(
          s"Topic $topic is not repaired",
          s"a record has no ${rule.name} of 8 bytes, and --missing refuse lets none pass",
          "Have every producer write the header, or use --missing oldest, by which such a record loses",
          Map("topic" -> topic, "partition" -> s"$partition", "offset" -> s"$offset")
        )
    }

  /** @param bounds of this round, in each partition
    * @param done those of the last round that came to its end
    * @return the bounds of the last round that came to its end
    */
  @tailrec private def round(
      sender: CopySender,
      watch: TopicWatch,
      bounds: Map[TopicPartition, Long],
      done: Option[Map[TopicPartition, Long]],
      left: Int
  ): Option[Map[TopicPartition, Long]] = {
    val isWhole = places.forall(place =>
      copyBefore(sender, watch, place.partition, 0L, bounds(place))
    )
    if (!isWhole) done
    else if (state.refused.isDefined) throw state.refused.get
    else if (table.wrong == 0) Some(reader.positions)
    else if (left == 1 || progress.isStopped) Some(bounds)
    else round(sender, watch, reader.positions, Some(bounds), left - 1)
  }

  /** Copies the winners of wrong keys that lie from one offset of a partition on, and before another.
    * @return false where somebody has said stop before it was done
    */
  @tailrec private def copyBefore(
      sender: CopySender,
      watch: TopicWatch,
      partition: Int,
      offset: Long,
      bound: Long
  ): Boolean = {
    val wrong = table.wrongFrom(partition, offset, seams.chunkKeys)
      .takeWhile(key => key.partition == partition && key.state.winner.offset < bound)
    val chunk = wrong.take(fitting(wrong))
    if (chunk.isEmpty) true
    else if (progress.isStopped) false
    else {
      requireEachVersion()
      chunk.foreach(requireTime)
      fetched(chunk)(progress.isStopped) match {
        case None => false
        case Some(records) =>
          state.isSettled = false
          val sent = append(sender, watch, chunk.map(WinnerCopy.first), records)
          settle(sender, watch, sent.copies)
          state.isSettled = true
          // It is thrown once the others are right.
          state.refused = state.refused.orElse(sent.refused)
          progress.repaired(state.appended, table.wrong)
          copyBefore(sender, watch, partition, chunk.last.state.winner.offset + 1, bound)
      }
    }
  }

  /** How many of these winners are in memory at once. */
  private def fitting(keys: Vector[WrongKey]): Int = {
    val sums = keys.iterator.scanLeft(0L)(_ + _.state.winner.bytes).drop(1)
    math.max(1, sums.takeWhile(_ <= seams.chunkBytes).size)
  }

  /** Copies whatever is better than copies and lies before them, until there is nothing. Also where a producer has written
    * behind the copy: who reads the topic next takes a copy for a record, which would beat one of its own version that lies
    * before it.
    */
  @tailrec private def settle(
      sender: CopySender,
      watch: TopicWatch,
      copies: Vector[WinnerCopy]
  ): Unit = {
    val buried = copies.flatMap { copy =>
      table.get(copy.key.partition, copy.key.key)
        .filter(now => now.isWrong && now.winner.offset < copy.offset)
        .map(now => copy.copy(key = copy.key.copy(state = now)))
    }
    if (buried.nonEmpty) {
      buried.find(_.before >= MostCopies).foreach(copy => throw tooFast(copy))
      val next = buried.take(fitting(buried.map(_.key)))
      val records =
        try fetched(next.map(_.key))(isStopped = false).get
        catch { case e: WinnerGone => throw e.buried }
      val sent = append(sender, watch, next, records)
      // What is not taken lies under its copy still.
      sent.refused.foreach(throw _)
      settle(sender, watch, buried.drop(next.size) ++ sent.copies)
    }
  }

  /** Copies winners to the ends of their partitions, and reads to behind the copies. */
  private def append(
      sender: CopySender,
      watch: TopicWatch,
      copies: Vector[WinnerCopy],
      records: Vector[Record]
  ): CopySender.Sent = {
    requireWindow()
    seams.copying()
    val sent =
      try sender.send(copies, records)
      catch {
        case NonFatal(e) =>
          // A topic that is not there any more gives no answer.
          watch.requireSame()
          throw e
      }
    state.appended += sent.copies.size
    val originals = sent.copies.map(c => (c.key.partition, c.offset) -> c.key).toMap
    val behind = sent.copies.groupMapReduce(c => new TopicPartition(topic, c.key.partition))(
      _.offset + 1
    )(math.max)
    if (sent.copies.nonEmpty) readOn(behind, originals): Unit
    watch.requireSame()
    sent
  }

  /** The records that win, as they are in the log; None where somebody says stop. */
  private def fetched(keys: Vector[WrongKey])(isStopped: => Boolean): Option[Vector[Record]] = {
    val places = keys.groupBy(_.partition).toVector.sortBy(_._1)
    places.foldLeft(Option(Map.empty[(Int, Long), Record])) {
      case (sofar, (partition, of)) => sofar.flatMap { found =>
          val offsets = of.map(_.state.winner.offset).sorted
          fetcher.fetch(partition, offsets)(isStopped).map { records =>
            if (records.size < offsets.size)
              throw new WinnerGone(topic, partition, offsets.diff(records.map(_.offset)))
            found ++ records.map(record => (partition, record.offset) -> record)
          }
        }
    }.map(found => keys.map(key => same(key, found((key.partition, key.state.winner.offset)))))
  }

  /** A record, where it is the one that was read before. */
  private def same(key: WrongKey, record: Record): Record =
    if (isSame(key, record)) record else throw another(record)

  private def isSame(key: WrongKey, record: Record): Boolean =
    java.util.Arrays.equals(record.key, key.key) && rule.of(record) == key.state.winner.version

  private def another(record: Record) = new SinkException.FailedWrite(
    s"Topic $topic is not the one that was read",
    s"another record is at offset ${record.offset} of partition ${record.partition}: it was made anew, or its leader " +
      "lacked records",
    "Run the repair again, which reads the topic from its beginning",
    Map("topic" -> topic),
    None
  )

  private def tooFast(copy: WinnerCopy) = new SinkException.FailedWrite(
    s"Topic $topic cannot be repaired for now",
    s"better records of one key came before its copy $MostCopies times in a row",
    "Run the repair again while its producers are slower",
    Map("topic" -> topic, "partition" -> copy.key.partition.toString),
    None
  )

  /** @param originals the keys whose winners were copied, by the places of the copies
    * @return false where it was stopped before the ends
    */
  private def readOn(
      least: Map[TopicPartition, Long],
      originals: Map[(Int, Long), WrongKey] = Map.empty
  ): Boolean = {
    val begun = Moment.now(clock)
    val isWhole = reader.readOn(least) { record =>
      if (seams.sees(record)) {
        val original = originals.get((record.partition, record.offset))
        original.foreach(key => if (!isSame(key, record)) throw another(record))
        scanned.add(record, original.map(_.state.winner.offset))
      }
    } { ahead =>
      progress.scanned(scanned.records, ahead)
      progress.isStopped
    }
    if (least.nonEmpty) requireWindow()
    readAt = begun
    isWhole
  }

  /** A record that came since the last read began has to be in the log still. */
  private def requireWindow(): Unit = windowMs.filter(readAt.elapsedMs(clock) > _).foreach { _ =>
    throw new SinkException.FailedWrite(
      s"A record of topic $topic may have been removed that is better than a copy",
      s"the repair stood still for ${readAt.elapsedMs(clock)} ms, and the cleaner may have come first",
      "Run it again at once, with --set-lag",
      Map("topic" -> topic),
      None
    )
  }

  /** A copy keeps its timestamp, by which the topic may refuse it, or delete it at once. */
  private def requireTime(key: WrongKey): Unit = {
    val time = key.state.winner.timestampMs
    val ageMs = if (time < 0) 0L else clock.epochMs() - time
    rules.oldest.filter(ageMs > _.ms).foreach { oldest =>
      throw refusedTime(
        key,
        s"a winner is $ageMs ms old, and the topic takes none, or keeps none, above ${oldest.ms} (${oldest.setting})",
        oldest
      )
    }
    rules.newest.filter(-ageMs > _.ms).foreach { newest =>
      throw refusedTime(
        key,
        s"a winner's timestamp is ${-ageMs} ms ahead, and the topic takes none above ${newest.ms} (${newest.setting})",
        newest
      )
    }
  }

  private def refusedTime(key: WrongKey, reason: String, limit: TopicRules.Limit) =
    new SinkException.RefusedSetting(
      s"Topic $topic cannot be repaired",
      reason,
      s"Raise ${limit.setting} for the time of the repair",
      Map(
        "topic" -> topic,
        "partition" -> key.partition.toString,
        "offset" -> key.state.winner.offset.toString
      )
    )
}

private[compaction] object TopicRepair {
  private type Record = ConsumerRecord[Array[Byte], Array[Byte]]

  /** A moment by both clocks: one of them stands still while the machine sleeps, the other one is set now and then. */
  private final case class Moment(nanos: Long, epochMs: Long) {
    def elapsedMs(clock: Clock): Long =
      math.max((clock.nanos() - nanos) / 1000000L, clock.epochMs() - epochMs)
  }

  private object Moment {
    def now(clock: Clock): Moment = Moment(clock.nanos(), clock.epochMs())
  }

  /** What it works with; whoever makes the parts closes them.
    * @param copier makes a producer, which the repair closes, of a topic whose largest record has so many bytes
    */
  final case class Parts(
      reading: RowConsumer,
      fetching: RowConsumer,
      table: KeyTable,
      copier: Int => RowProducer
  )

  /** Winners that the cleaner has taken. */
  final class WinnerGone(topic: String, partition: Int, val offsets: Vector[Long])
      extends RuntimeException {

    /** Where it was to be copied for the first time. */
    def unburied: SinkException = explained(
      s"Topic $topic is cleaned while it is repaired",
      s"Run the repair again, with --set-lag where ${CompactionLag.Setting} is short"
    )

    /** Where a copy lies behind it. */
    def buried: SinkException = explained(
      s"A record of topic $topic is lost that is better than a copy",
      "Write it again. The time between a record's timestamp and its write is longer than --lateness says, or somebody has " +
        s"lowered ${CompactionLag.Setting}"
    )

    private def explained(problem: String, remedy: String) = new SinkException.FailedWrite(
      problem,
      s"offset ${offsets.head} of partition $partition was removed before it could be copied",
      remedy,
      Map("topic" -> topic),
      None
    )
  }

  /** A read of so long is short, and so often at most is the topic read to be so. */
  private val ShortMs = 60L * 1000
  private val MostScans = 5

  /** So often are keys put right that producers have put wrong meanwhile. */
  private val MostRounds = 5

  /** So often may better records of one key come before its copy. */
  private val MostCopies = 100

  /** As long as the longest transaction that brokers allow by default, and some more. */
  private[compaction] val PatienceMs = 20L * 60 * 1000

  /** A new leader takes seconds. */
  private val FetchPatienceMs = 2L * 60 * 1000
}
