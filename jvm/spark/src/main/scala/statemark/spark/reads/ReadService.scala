package statemark.spark.reads

import java.util.UUID
import org.apache.spark.sql.execution.streaming.state.ReadEndpoint
import org.slf4j.LoggerFactory
import scala.util.control.NonFatal
import statemark.common.{Interrupts, Position, StatemarkException, ViewClosedException}
import statemark.engine.{ColumnFamilies, VersionId}
import statemark.IsolationLevel
import statemark.spark.checkpoint.StoreAddress
import statemark.spark.errors.StoreUnreachableException
import statemark.spark.process.ObjectBytes
import statemark.transaction.RowScan

/** A request to a JVM that may have stores open. */
sealed trait ReadRequest

/** A request to the JVM in which a store is open. */
sealed trait StoreRequest extends ReadRequest {
  def address: StoreAddress
}

/** A request for a version of a store. */
sealed trait VersionRequest extends StoreRequest {
  def at: VersionId
  def level: String

  /** Returns the column families of the request's keys, where other families may have their ids by now. */
  def families: Option[ColumnFamilies]
}

/** A message about a read to all stores of an operator. The sender waits for no answer. */
sealed trait ReadNote extends ReadRequest {
  def runId: UUID
  def operator: Long
  def read: UUID
}

object ReadRequest {

  /** The column families of the store, and the source offsets that it holds. */
  final case class Describe(address: StoreAddress, at: VersionId, level: String)
      extends VersionRequest {
    override def families: Option[ColumnFamilies] = None
  }

  /** Rows of `keys`, in their order, from the first key on: as many as come to `maxBytes`, and where the first one is
    * longer that one alone.
    */
  final case class Get(
      address: StoreAddress,
      at: VersionId,
      level: String,
      families: Option[ColumnFamilies],
      keys: Array[Array[Byte]],
      maxBytes: Int
  ) extends VersionRequest

  /** Rows of `[begin, end)`, as many as come to `maxBytes`, and where the first one is longer that one alone. */
  final case class Scan(
      address: StoreAddress,
      at: VersionId,
      level: String,
      families: Option[ColumnFamilies],
      begin: Option[Array[Byte]],
      end: Option[Array[Byte]],
      maxBytes: Int
  ) extends VersionRequest

  /** The source offsets that the store holds.
    * @param ids in checkpoint format v2 those of the batch that made the version, of all stores of the partition
    */
  final case class Offsets(
      address: StoreAddress,
      version: Long,
      ids: Set[String],
      level: String
  ) extends StoreRequest

  /** The partitions of an operator whose stores have begun a batch. */
  final case class Begun(runId: UUID, operator: Long, batch: Long) extends ReadRequest

  /** `read` of `version` has been planned. */
  final case class Pin(runId: UUID, operator: Long, read: UUID, version: Long) extends ReadNote

  /** `read` needs these partitions only. */
  final case class Narrow(runId: UUID, operator: Long, read: UUID, partitions: Set[Int])
      extends ReadNote
}

sealed trait ReadReply

object ReadReply {

  /** The request has been carried out, and has no result. */
  case object Done extends ReadReply

  /** The store is not open there. */
  case object NotHere extends ReadReply
  final case class Failed(error: RuntimeException) extends ReadReply
  final case class Description(families: ColumnFamilies, offsets: StoreOffsets) extends ReadReply
  final case class Offsets(offsets: StoreOffsets) extends ReadReply
  final case class Partitions(ids: Set[Int]) extends ReadReply

  /** @param values those of the first keys, one at least; the asker asks for the rest */
  final case class Values(values: Array[Option[Array[Byte]]]) extends ReadReply

  /** @param isLast nothing comes after them */
  final case class Page(rows: Array[(Array[Byte], Array[Byte])], isLast: Boolean) extends ReadReply
}

/** Where the rows that a store answers with stand.
  * @param at the version that they are of, without those that are staged over it
  * @param position source offsets that they include; None where the store does not know them yet
  */
final case class StoreOffsets(at: VersionId, position: Option[Position])

/** Reads of stores that are open in this JVM, for others. Requests and replies travel as bytes ([[ObjectBytes]]). Nothing
  * is kept between two requests.
  *
  * ''Thread:'' any, several at once.
  */
object ReadService {
  private val log = LoggerFactory.getLogger(ReadService.getClass)

  def answer(request: Array[Byte]): Array[Byte] =
    served(request)((r: ReadRequest) => answer(r))

  /** Answers a request in bytes. A failure is an answer, too: one that Spark passes on could not be told from a
    * failure of the connection, and so the JVM would be taken for gone.
    */
  def served[A <: ReadRequest](request: Array[Byte])(answer: A => ReadReply): Array[Byte] =
    try encode(answer(decode[A](request)))
    catch {
      case NonFatal(e) =>
        log.warn("A read of a running query failed.", e)
        // The failure itself may be what cannot be encoded.
        encode(ReadReply.Failed(new IllegalStateException(e.toString)))
    }

  /** Returns an answer of another JVM. A failure that is no kind of Statemark's becomes one by its name.
    *
    * @param asked the JVM that is asked, and why that one
    * @throws InterruptedException where the thread is interrupted
    */
  def named(address: StoreAddress, asked: String)(answer: => ReadReply): ReadReply = {
    def unreachable(e: Throwable) =
      ReadReply.Failed(new StoreUnreachableException(address.toString, asked, e))
    try
      Interrupts.apart(answer) match {
        case ReadReply.Failed(e) if !e.isInstanceOf[StatemarkException] => unreachable(e)
        case reply => reply
      }
    catch { case NonFatal(e) => unreachable(e) }
  }

  def answer(request: ReadRequest): ReadReply = request match {
    case note: ReadNote =>
      ReadableStores.note(note)
      ReadReply.Done
    case begun: ReadRequest.Begun =>
      ReadReply.Partitions(ReadableStores.begun(begun.runId, begun.operator, begun.batch))
    case of: ReadRequest.Offsets =>
      failing {
        ReadableStores.offsets(of.address, of.version, of.ids, IsolationLevel.of(of.level))
          .fold[ReadReply](ReadReply.NotHere)(ReadReply.Offsets(_))
      }
    case request: VersionRequest => read(request)
  }

  private def failing(reply: => ReadReply): ReadReply =
    try reply
    catch { case e: RuntimeException => ReadReply.Failed(e) }

  private def read(request: VersionRequest): ReadReply =
    failing {
      ReadableStores.view(request.address, request.at, IsolationLevel.of(request.level))
        .fold[ReadReply](ReadReply.NotHere) { view =>
          try {
            if (!request.families.forall(_.agreesWith(view.families))) throw rolledBack
            request match {
              case _: ReadRequest.Describe =>
                ReadReply.Description(view.families, StoreOffsets(view.state.at, view.position))
              case get: ReadRequest.Get =>
                ReadReply.Values(
                  taken(view.getAll(get.keys.toSeq), get.maxBytes)(_.fold(0)(_.length))._1.toArray
                )
              case scan: ReadRequest.Scan => page(view.range(scan.begin, scan.end), scan.maxBytes)
            }
          } finally view.close()
        }
    }

  private def rolledBack = new ViewClosedException(
    "The transaction that was read has rolled back, and another has given the ids of its column families to others. " +
      "Read again."
  )

  private def page(scan: RowScan, maxBytes: Int): ReadReply =
    try {
      val rows = Iterator.continually(scan.next()).takeWhile(identity)
        .map(_ => (scan.key, scan.value))
      val (first, isLast) = taken(rows, maxBytes) { case (key, value) => key.length + value.length }
      ReadReply.Page(first.toArray, isLast)
    } finally scan.close()

  /** Takes as many items as come to `maxBytes`, and where the first one is longer that one alone; tells whether no items
    * come after them. The item after them is read, and dropped.
    */
  private def taken[A](
      items: Iterator[A],
      maxBytes: Int
  )(bytesOf: A => Int): (Vector[A], Boolean) = {
    val first = Vector.newBuilder[A]
    var bytes = 0L
    val over = items.find { item =>
      val isOver = bytes > 0 && bytes + bytesOf(item) > maxBytes
      if (!isOver) {
        first += item
        bytes += bytesOf(item)
      }
      isOver
    }
    (first.result(), over.isEmpty)
  }

  /** Asks the driver, which asks the JVM where the store is open. */
  private[spark] def askDriver(driver: ReadEndpoint)(request: StoreRequest): ReadReply =
    named(request.address, "The driver, which knows where stores are open,") {
      decode[ReadReply](driver.ask(encode(request)))
    }

  private[spark] def encode(message: AnyRef): Array[Byte] = ObjectBytes.encode(message)

  private[spark] def decode[A](bytes: Array[Byte]): A = ObjectBytes.decode(bytes)
}
