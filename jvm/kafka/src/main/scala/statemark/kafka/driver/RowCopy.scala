package statemark.kafka.driver

import org.apache.kafka.clients.producer.ProducerRecord
import org.apache.kafka.common.TopicPartition
import scala.collection.mutable
import statemark.common.Clock
import statemark.kafka.clients.SentRecords
import statemark.kafka.conf.{SinkIdentity, SinkObserver, SinkPhase, SinkSettings}
import statemark.kafka.decision.{DecidedTransaction, Decision}
import statemark.kafka.executor.TransactionLine
import statemark.kafka.log.{CommitTopic, Token}

/** Rows of one transaction that have to be copied.
  * @param copied how many of them are copied already
  * @param rows the others, in the order of the decision
  */
private[kafka] final case class CopySource(
    transaction: DecidedTransaction,
    slot: Int,
    copied: Long,
    rows: () => Iterator[ProducerRecord[Array[Byte], Array[Byte]]]
)

/** Sends decided rows again, in transactions of the driver's that end with tokens for what they hold (K9).
  * @param mostBytes of one transaction; @param mostMs that one takes
  */
private[kafka] final class RowCopy(
    line: TransactionLine,
    identity: SinkIdentity,
    commitPartition: TopicPartition,
    clock: Clock,
    observer: SinkObserver,
    mostBytes: Long,
    mostMs: Long
) {
  import RowCopy.Row

  /** Copies what is left of the sources, in their order.
    * @return the number of rows that were copied
    * @throws Exception of the client: what is committed is noted by its tokens, the rest is not visible
    */
  def copy(decision: Decision, sources: Seq[CopySource]): Long = {
    val rows = sources.iterator.flatMap { source =>
      source.rows().zip(Iterator.iterate(source.copied + 1)(_ + 1)).map { case (record, number) =>
        Row(source, record, number)
      }
    }
    var count = 0L
    while (rows.hasNext) count += copyPiece(decision, rows)
    count
  }

  private def copyPiece(decision: Decision, rows: Iterator[Row]): Long = {
    val sent = new SentRecords
    val count = sent.in(line.transaction { producer =>
      val begun = clock.nanos()
      val progress = mutable.LinkedHashMap.empty[CopySource, Long]
      var bytes = 0L
      var count = 0L
      do {
        val row = rows.next()
        sent.send(producer, row.record)
        if (count == 0) observer.reached(SinkPhase.CopyOpen)
        progress(row.source) = row.number
        bytes += sizeOf(row.record)
        count += 1
      } while (rows.hasNext && bytes < mostBytes && clock.nanos() - begun < mostMs * 1000000L)
      progress.foreach { case (source, copied) =>
        val token = Token(
          identity,
          source.slot,
          source.transaction.name,
          decision.batch,
          decision.round,
          Some(copied)
        )
        sent.send(producer, CommitTopic.record(commitPartition, token))
      }
      observer.reached(SinkPhase.Copied)
      count
    })
    observer.reached(SinkPhase.CopyCommitted)
    count
  }

  private def sizeOf(record: ProducerRecord[Array[Byte], Array[Byte]]): Long =
    Seq(record.key, record.value).flatMap(Option(_)).map(_.length.toLong).sum
}

private[kafka] object RowCopy {

  /** @param number of the row in its transaction, from 1 */
  private final case class Row(
      source: CopySource,
      record: ProducerRecord[Array[Byte], Array[Byte]],
      number: Long
  )

  val MostBytes: Long = 1L << 30

  /** A third of the timeout is left for the last rows and the tokens, and a third for the commit. */
  def mostMs(settings: SinkSettings): Long = settings.transactionTimeoutMs / 3
}
