package statemark.transaction

import java.util.concurrent.{CountDownLatch, FutureTask, TimeUnit}
import java.util.concurrent.atomic.AtomicInteger
import org.rocksdb.{HistogramType, TickerType}
import org.scalatest.funsuite.AnyFunSuite
import statemark.TestStores
import statemark.changelog.{ChangelogCommit, ChangelogWriter}
import statemark.common.{Gate, IllegalCallException, StoreUnusableException}
import statemark.engine._

/** Goal: a thread that ends a transaction, or closes its store, while another one uses it frees nothing under that one,
  * and nothing is written to what has ended. Method: the one stands still in the middle of a call, in what it calls;
  * the other ends the transaction, and comes to its end or to where it waits.
  */
class EndedElsewhereSuite extends AnyFunSuite with TestStores {
  import EndedElsewhereSuite._

  private val ends =
    Seq[(String, Transaction => Unit)]("rollback" -> (_.rollback()), "end" -> (_.end()))

  for ((name, end) <- ends) {
    test(s"$name while a scan moves: its cursor is closed when it stands still") {
      val stop = new Stop
      val rows = new StandingRows(stop)
      val transaction = over(rows)
      val scan = transaction.range(None, None)
      val (moved, _) = between(stop)(scan.next())(end(transaction))
      assert(moved.contains(true))
      assert(!rows.wasFreedInside && rows.closes.get == 1)
      intercept[IllegalCallException](scan.next())
      scan.close()
      assert(rows.closes.get == 1)
    }

    test(s"$name while a row is read: what was read is not kept for those that have ended") {
      val transaction = over(new StandingRows(new Stop))
      val stop = new Stop
      val other = over(new StandingRows(stop))
      transaction.rollback()
      val before = transaction.approximateNumUncommittedBytes
      between(stop)(other.get(bytes("k")))(end(other)): Unit
      assert(transaction.approximateNumUncommittedBytes == before)
      assert(transaction.stagedRows.isEmpty)
    }
  }

  test("a rollback while the changelog is opened: the changelog is dropped") {
    val store = newStore()
    val stop = new Stop
    val changelog = new CountingChangelog
    val transaction = store.newTransaction { () => stop.here(); changelog }
    val (put, _) =
      between(stop)(transaction.put(bytes("k"), bytes("v")))(transaction.rollback())
    assert(put.isRight)
    assert(changelog.aborts == 1)
    intercept[IllegalCallException](transaction.put(bytes("k"), bytes("v")))
    assert(changelog.aborts == 1 && changelog.puts == 1)
    assert(rows(begin(store)).isEmpty)
  }

  test("a store that is closed waits for the call that is inside, and drops its changelog") {
    val store = newStore()
    val stop = new Stop
    val changelog = new CountingChangelog
    val transaction = store.newTransaction { () => stop.here(); changelog }
    val (put, _) = between(stop)(transaction.put(bytes("k"), bytes("v")))(store.close())
    assert(put.isRight && changelog.aborts == 1)
    intercept[IllegalCallException](transaction.get(bytes("k")))
    intercept[IllegalCallException](begin(store))
    assert(store.property("rocksdb.estimate-num-keys") == 0)
  }

  test("figures of a store that is closed are 0: a commit whose task is over asks for them") {
    val store = newStore()
    commit(store)(_.put(bytes("k"), bytes("v"))): Unit
    store.confirm()
    assert(store.count(TickerType.BYTES_WRITTEN) > 0 && store.sum(HistogramType.DB_WRITE) > 0)
    store.close()
    assert(store.count(TickerType.BYTES_WRITTEN) == 0 && store.sum(HistogramType.DB_WRITE) == 0)
    assert(store.pinnedBytes == 0 && store.unflushedBytes == 0)
    store.resetStatistics()
  }

  test("a scan whose first row cannot be read leaves nothing open") {
    val rows = new StandingRows(new Stop) {
      override protected def keyAt(i: Int): Array[Byte] =
        throw new StoreUnusableException("damaged", None)
    }
    val transaction = over(rows)
    val value = new Array[Byte](100000)
    transaction.put(bytes("k"), value)
    intercept[StoreUnusableException](transaction.range(None, None))
    assert(rows.closes.get == 1)
    // What an open scan would still read is kept, and counted.
    val before = transaction.approximateNumUncommittedBytes
    transaction.put(bytes("k"), value.clone())
    assert(transaction.approximateNumUncommittedBytes == before)
    transaction.rollback()
    assert(rows.closes.get == 1)
  }

  test("a version that is prepared when its store is closed is not confirmed in a closed RocksDB") {
    val store = newStore()
    commit(store)(_.put(bytes("k"), bytes("v"))): Unit
    store.close()
    assert(intercept[IllegalCallException](store.confirm()).getMessage.contains("version 0"))
  }

  test("who waits for an owner that is inside a call does not hold the lock of the store") {
    val store = newStore()
    val stop = new Stop
    val transaction = store.newTransaction { () => stop.here(); ChangelogWriter.None }
    between(stop, whileWaiting = store.markSnapshot(store.base.at))(
      transaction.put(bytes("k"), bytes("v"))
    )(store.rollbackOpen()): Unit
    assert(!transaction.isOpen)
  }

  test(
    "a gate lets one thread in at a time, and the same one again; an interrupt does not open it"
  ) {
    val gate = new Gate
    val stop = new Stop
    var inside = 0
    var most = 0
    def enter(): Unit = gate.through {
      inside += 1
      most = math.max(most, inside)
      gate.through(())
      inside -= 1
    }
    val (_, second) = between(stop)(gate.through { inside += 1; stop.here(); inside -= 1 }) {
      Thread.currentThread.interrupt()
      enter()
      Thread.interrupted()
    }
    assert(second.contains(true), "the interrupt is not lost")
    assert(most == 1)
    val threads = (1 to 4).map(_ => new Thread(() => (1 to 20000).foreach(_ => enter())))
    threads.foreach(_.start())
    threads.foreach(_.join())
    assert(most == 1 && inside == 0)
  }

  private def over(rows: BaseRows): Transaction = new Transaction(
    rows,
    StoreState.empty(0, RowCounts(10, 0)),
    ",".getBytes,
    () => ChangelogWriter.None
  )
}

private object EndedElsewhereSuite {

  /** Where a thread stands still until it is told to go on. */
  final class Stop {
    val reached = new CountDownLatch(1)
    val goes = new CountDownLatch(1)

    def here(): Unit = {
      reached.countDown()
      assert(goes.await(1, TimeUnit.MINUTES))
    }
  }

  /** Runs `first` up to its stop, then `second` until it is over or waits, and then both to their ends: what they came
    * to.
    */
  def between[A, B](stop: Stop, whileWaiting: => Unit = ())(first: => A)(second: => B)
      : (Either[Throwable, A], Either[Throwable, B]) = {
    val (one, two) = (new FutureTask(() => result(first)), new FutureTask(() => result(second)))
    new Thread(one).start()
    assert(stop.reached.await(1, TimeUnit.MINUTES))
    val other = new Thread(two)
    other.start()
    val waiting = Set(Thread.State.TIMED_WAITING, Thread.State.WAITING, Thread.State.BLOCKED)
    while (!two.isDone && !waiting(other.getState)) Thread.onSpinWait()
    whileWaiting
    stop.goes.countDown()
    (one.get(1, TimeUnit.MINUTES), two.get(1, TimeUnit.MINUTES))
  }

  private def result[A](body: => A): Either[Throwable, A] =
    try Right(body)
    catch { case e: Exception => Left(e) }

  /** Ten rows; the first call that moves or reads stands still. */
  class StandingRows(stop: Stop) extends BaseRows {
    val closes = new AtomicInteger
    @volatile var wasFreedInside = false

    protected def keyAt(i: Int): Array[Byte] = Array(i.toByte)

    private def stand(): Unit = {
      stop.here()
      wasFreedInside |= closes.get > 0
    }

    override def get(key: Array[Byte]): Option[Array[Byte]] = {
      stand()
      None
    }
    override def exist(keys: IndexedSeq[Array[Byte]], rowCount: Long): Array[Boolean] =
      new Array(keys.length)
    override def rest(): Unit = ()
    override def scan(begin: Option[Array[Byte]], end: Option[Array[Byte]]): RowCursor =
      new RowCursor {
        private var at = 0
        override def keyOrEnd(): Option[Array[Byte]] = Option.when(at < 10)(keyAt(at))
        override def value: Array[Byte] = Array(at.toByte)
        override def next(): Unit = {
          stand()
          at += 1
        }
        override def close(): Unit = closes.incrementAndGet(): Unit
      }
  }

  final class CountingChangelog extends ChangelogWriter {
    var puts = 0
    var aborts = 0
    override def put(key: Array[Byte], value: Array[Byte]): Unit = puts += 1
    override def delete(key: Array[Byte]): Unit = ()
    override def merge(key: Array[Byte], operand: Array[Byte]): Unit = ()
    override def deleteRange(begin: Array[Byte], end: Array[Byte]): Unit = ()
    override def commit(): ChangelogCommit = ChangelogCommit.nothing
    override def abort(): Unit = aborts += 1
  }
}
