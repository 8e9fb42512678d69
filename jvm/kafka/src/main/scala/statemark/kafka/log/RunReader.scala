package statemark.kafka.log

import java.util.Collections
import org.apache.kafka.common.errors.TimeoutException
import scala.jdk.CollectionConverters._
import statemark.common.Clock
import statemark.kafka.clients.KafkaClients
import statemark.kafka.conf.{SinkException, SinkSettings, SinkTransactionalId}

/** A reader of the runs of one sink, for an executor, which may be one of a run that is over and not know it.
  *
  * The reader sees records of open transactions, too. A driver notes its run once it has fenced the drivers before it, so a
  * run that is only about to be noted has ended them already. And no stranger's transaction is waited for.
  *
  * ''Thread:'' one at a time.
  *
  * @param id the transactional id that the executor wants
  * @param run the run of the executor
  * @param since up to where the driver of that run has read the commit topic: a later run is noted behind
  */
private[kafka] final class RunReader(
    clients: KafkaClients,
    settings: SinkSettings,
    clock: Clock,
    id: SinkTransactionalId,
    run: Long,
    since: Long
) extends AutoCloseable {
  private val place = CommitTopic.partitionOf(settings, id.identity)
  private val key = RecordCodec.key(
    IdentityRecord(id.identity, "", "", id.prefix, run, "", Vector.empty)
  ).toSeq
  private val driverId = SinkTransactionalId.driver(id.prefix, id.identity).text
  private val consumer = clients.consumer(committedOnly = false)
  private val places = Collections.singleton(place)
  consumer.assign(places)
  consumer.seek(place, since)

  /** Reads on to the end of the commit topic.
    * @throws SinkException.Superseded where a later run is noted there, or the sink was removed
    * @throws TimeoutException where brokers do not answer
    */
  def requireLast(): Unit = {
    val end = consumer.endOffsets(places).get(place)
    val untilNanos = clock.nanos() + settings.deliveryTimeoutMs * 1000000L
    while (consumer.position(place) < end) {
      val records = consumer.poll(TopicCommitLog.Poll)
      records.asScala.filter(r => Option(r.key).exists(_.toSeq == key)).foreach(r =>
        requireOwn(r.key, Option(r.value))
      )
      if (records.isEmpty && clock.nanos() > untilNanos)
        throw new TimeoutException(s"The commit topic was not read to its end in $place")
    }
  }

  override def close(): Unit = consumer.close()

  private def requireOwn(key: Array[Byte], value: Option[Array[Byte]]): Unit = value match {
    case None => throw superseded("what the commit topic knew of the sink was removed", Map.empty)
    case Some(bytes) =>
      val found =
        try Some(RecordCodec.decode(key, bytes))
        catch { case _: SinkException.UnreadableRecord => None } // of a later release
      found match {
        case Some(IdentityRecord(_, _, `driverId`, _, `run`, _, _)) => ()
        case Some(IdentityRecord(_, _, other, _, later, _, _)) =>
          throw superseded(
            "the commit topic names a later run of the sink",
            Map("laterRun" -> later.toString, "otherDriver" -> other)
          )
        case _ => throw superseded("another release of Statemark has the sink", Map.empty)
      }
  }

  private def superseded(reason: String, values: Map[String, String]) =
    new SinkException.Superseded(
      reason,
      values ++ Map("transactionalId" -> id.text, "run" -> run.toString),
      None
    )
}
