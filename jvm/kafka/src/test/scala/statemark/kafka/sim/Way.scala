package statemark.kafka.sim

import java.io.{DataInputStream, DataOutputStream, EOFException, IOException}
import java.net.{InetAddress, ServerSocket, Socket}
import java.nio.ByteBuffer
import java.util.concurrent.{ConcurrentHashMap, CountDownLatch, TimeUnit}
import org.apache.kafka.common.message.{
  DescribeClusterResponseData,
  FindCoordinatorResponseData,
  MetadataResponseData
}
import org.apache.kafka.common.protocol.{
  ApiKeys,
  ApiMessage,
  ByteBufferAccessor,
  ObjectSerializationCache
}
import org.apache.kafka.common.requests.ResponseHeader
import scala.jdk.CollectionConverters._

/** A way to the one broker that belongs to one process: a proxy that knows Kafka's protocol. It can be cut, or stand
  * still, and answers of a kind can be lost or come late on it, behind what the broker has done. ''Thread:'' any.
  * @param broker its host and port
  */
final class Way(broker: String) extends AutoCloseable {
  import Way._

  private val server = new ServerSocket(0, 50, InetAddress.getLoopbackAddress)
  private val connections = ConcurrentHashMap.newKeySet[Connection]
  private val lost = ConcurrentHashMap.newKeySet[ApiKeys]
  private val late = new ConcurrentHashMap[ApiKeys, Long]
  private var isCut = false
  private var isHeld = false
  @volatile private var isClosed = false

  /** What clients of the process are told to connect to. */
  val bootstrap: String = s"127.0.0.1:${server.getLocalPort}"

  start("way-accept") {
    while (!isClosed) {
      val client = server.accept()
      if (isOpen) new Connection(client).start() else client.close()
    }
  }

  /** Ends every connection, and lets none in until [[mend]]. */
  def cut(): Unit = {
    synchronized { isCut = true }
    connections.asScala.toVector.foreach(_.end())
  }

  /** Nothing passes until [[mend]]; connections stay. */
  def hold(): Unit = synchronized { isHeld = true }

  /** The next answer of the kind does not come: the connection ends instead. */
  def lose(kind: ApiKeys): Unit = lost.add(kind): Unit

  /** The next answer of the kind, and what comes behind it on its connection, is late. */
  def delay(kind: ApiKeys, ms: Long): Unit = late.put(kind, ms): Unit

  /** From now on everything passes. */
  def mend(): Unit = {
    lost.clear()
    late.clear()
    synchronized {
      isCut = false
      isHeld = false
      notifyAll()
    }
  }

  /** The process is gone. */
  override def close(): Unit = {
    isClosed = true
    mend()
    server.close()
    connections.asScala.toVector.foreach(_.end())
  }

  private def isOpen: Boolean = synchronized(!isCut) && !isClosed

  private def awaitPassage(): Unit = synchronized(while (isHeld) wait())

  private final class Connection(client: Socket) {
    private val (host, port) = addressOf(broker)
    private val upstream = new Socket(host, port)
    private val asked = new ConcurrentHashMap[Int, Request]
    Seq(client, upstream).foreach(_.setTcpNoDelay(true))

    def start(): Unit = {
      connections.add(this)
      // Cut in between.
      if (!isOpen) end()
      pump(client, upstream)(note)
      pump(upstream, client)(answer)
    }

    def end(): Unit = {
      connections.remove(this)
      Seq(client, upstream).foreach(_.close())
    }

    private def note(frame: Array[Byte]): Option[Array[Byte]] = {
      val buffer = ByteBuffer.wrap(frame)
      val kind = ApiKeys.forId(buffer.getShort.toInt)
      val version = buffer.getShort
      asked.put(buffer.getInt, Request(kind, version))
      Some(frame)
    }

    private def answer(frame: Array[Byte]): Option[Array[Byte]] = {
      val request = asked.remove(ByteBuffer.wrap(frame).getInt)
      if (lost.remove(request.kind)) None
      else {
        Option(late.remove(request.kind)).foreach(ms =>
          new CountDownLatch(1).await(ms, TimeUnit.MILLISECONDS)
        )
        Some(renamed(request, frame, server.getLocalPort))
      }
    }

    /** @param change what passes instead; None ends the connection */
    private def pump(from: Socket, to: Socket)(change: Array[Byte] => Option[Array[Byte]]): Unit =
      Way.start("way-pump") {
        try {
          val in = new DataInputStream(from.getInputStream)
          val out = new DataOutputStream(to.getOutputStream)
          while (!from.isClosed) {
            val frame = new Array[Byte](in.readInt())
            in.readFully(frame)
            awaitPassage()
            change(frame) match {
              case Some(bytes) =>
                awaitPassage()
                out.write(
                  ByteBuffer.allocate(bytes.length + 4).putInt(bytes.length).put(bytes).array
                )
                out.flush()
              case None => end()
            }
          }
        } finally end()
      }
  }
}

object Way {
  private final case class Request(kind: ApiKeys, version: Short)

  private def start(name: String)(body: => Unit): Unit = {
    val thread = new Thread(
      () =>
        try body
        catch { case _: IOException | _: EOFException => () },
      name
    )
    thread.setDaemon(true)
    thread.start()
  }

  private def addressOf(broker: String): (String, Int) = {
    val at = broker.lastIndexOf(':')
    (broker.take(at), broker.drop(at + 1).toInt)
  }

  /** An answer in which the broker has the way's address, so that clients come back to it. */
  private def renamed(request: Request, frame: Array[Byte], port: Int): Array[Byte] = {
    val buffer = ByteBuffer.wrap(frame)
    val version = request.version
    ResponseHeader.parse(buffer, request.kind.responseHeaderVersion(version)): Unit
    val begin = buffer.position()
    val body = new ByteBufferAccessor(buffer)
    val host = "127.0.0.1"
    val changed: Option[ApiMessage] = request.kind match {
      case ApiKeys.METADATA =>
        val data = new MetadataResponseData(body, version)
        data.brokers.forEach(b => b.setHost(host).setPort(port): Unit)
        Some(data)
      case ApiKeys.FIND_COORDINATOR =>
        val data = new FindCoordinatorResponseData(body, version)
        if (!data.host.isEmpty) data.setHost(host).setPort(port): Unit
        data.coordinators.forEach(c => if (!c.host.isEmpty) c.setHost(host).setPort(port): Unit)
        Some(data)
      case ApiKeys.DESCRIBE_CLUSTER =>
        val data = new DescribeClusterResponseData(body, version)
        data.brokers.forEach(b => b.setHost(host).setPort(port): Unit)
        Some(data)
      case _ => None
    }
    changed.fold(frame) { data =>
      val cache = new ObjectSerializationCache
      val bytes = ByteBuffer.allocate(begin + data.size(cache, version)).put(frame, 0, begin)
      data.write(new ByteBufferAccessor(bytes), cache, version)
      bytes.array
    }
  }
}
