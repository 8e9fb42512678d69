package statemark

import java.util.concurrent.{ConcurrentHashMap, CyclicBarrier, ExecutorService, Executors, Future}
import java.util.concurrent.atomic.AtomicLong
import org.scalatest.funsuite.AnyFunSuite
import scala.util.Random
import statemark.common.{Clock, ViewClosedException}
import statemark.engine.VersionId
import statemark.transaction.{Transaction, UncommittedLimit, UncommittedMemory}

/** Readers beside a writer, in the manner of the published catalogues of anomalies (Adya; Berenson et al.).
  * Money moves between accounts of several partitions, so that the sum over all of them is the same in every
  * committed version (I9) and, but for chance, in nothing else:
  *
  *   - dirty and aborted reads (G1a): a sum with what was rolled back, or prepared and dropped;
  *   - intermediate reads (G1b): a value that its own batch has replaced, or a range that was deleted and is
  *     being written again;
  *   - fractured reads: partitions of two batches, or one of them torn;
  *   - non-repeatable reads: a view that changes;
  *   - lost commits: a read that begins after a commit and sees a version before it.
  *
  * A schedule is what a seed makes of the writer's batches and the readers' reads; threads interleave freely.
  */
class IsolationSuite extends AnyFunSuite with TestStores {
  private val Partitions = 3
  private val Accounts = 8
  private val Start = 100L
  private val Total = Partitions * Accounts * Start
  private val Readers = 2
  // RocksDB reads slower the more range deletes its memtable has.
  private val SchedulesPerBank = 200
  private val LowLimit = 700L
  private val Schedules = sys.env.getOrElse("STATEMARK_SCHEDULES", "6000").toInt

  private def encoded(cell: Cell) = bytes(s"${cell.balance}:${cell.stamp}")

  private def decoded(value: Array[Byte]): Cell = {
    val parts = text(value).split(':')
    Cell(parts(0).toLong, parts(1).toLong)
  }

  private def account(i: Int) = bytes(s"account-$i")

  /** What readers found, over all schedules. */
  private final class Findings {
    val reads = new AtomicLong
    val dirty = new AtomicLong
    val plannedAgain = new AtomicLong
    val endedUnder = new AtomicLong
    val spills = new AtomicLong
  }

  /** One query: stores at the same version, and a commit log that says which one counts. */
  private final class Bank(name: String, val limit: Option[UncommittedLimit])
      extends AutoCloseable {
    val stores: Vector[TransactionalStore] = (0 until Partitions).map { p =>
      val keepsOne = ReadRetention(1, 0, Clock.system)
      newStore(s"$name-$p", retention = keepsOne, limit = limit)
    }.toVector
    val log = new AtomicLong(0)
    val staged: ConcurrentHashMap.KeySetView[Long, java.lang.Boolean] =
      ConcurrentHashMap.newKeySet[Long]()
    private var balances = Vector.fill(Partitions, Accounts)(Start)
    private var stamp = 0L

    open()

    private def open(): Unit = {
      val transactions = begun()
      transactions.foreach(t => (0 until Accounts).foreach(i => write(t, i, Start)))
      commit(transactions)
      log.set(1)
    }

    /** Confirms the last batch everywhere and begins the next: in Spark's order, partition by partition. */
    private def begun(): Vector[Transaction] = stores.map { store =>
      store.confirm()
      begin(store)
    }

    private def commit(transactions: Vector[Transaction]): Unit =
      stores.zip(transactions).foreach { case (store, t) => store.commit(t): Unit }

    private def write(t: Transaction, i: Int, balance: Long): Unit = {
      stamp += 1
      staged.add(stamp)
      t.put(account(i), encoded(Cell(balance, stamp)))
    }

    /** A batch, with attempts at it that fail: while it stages, or after some partitions have prepared it. */
    def batch(random: Random): Unit = {
      var transactions = begun()
      for (_ <- 0 until random.nextInt(3)) {
        move(transactions, random)
        val prepared = random.nextInt(Partitions + 1)
        stores.zip(transactions).take(prepared).foreach { case (s, t) =>
          s.commit(t): Unit
        }
        transactions.drop(prepared).foreach(_.rollback())
        transactions = stores.map { store =>
          store.dropPrepared(): Unit
          begin(store)
        }
      }
      balances = move(transactions, random)
      commit(transactions)
      log.incrementAndGet(): Unit
    }

    override def close(): Unit = stores.foreach(_.close())

    /** Balances after some transfers, which `transactions` stage one write after the other. */
    private def move(transactions: Vector[Transaction], random: Random): Vector[Vector[Long]] = {
      var now = balances
      for (_ <- 0 to random.nextInt(6)) {
        val (from, to) = (random.nextInt(Partitions), random.nextInt(Partitions))
        val (a, b) = (random.nextInt(Accounts), random.nextInt(Accounts))
        val amount = 1L + random.nextInt(50)
        now = now.updated(from, now(from).updated(a, now(from)(a) - amount))
        write(transactions(from), a, now(from)(a))
        now = now.updated(to, now(to).updated(b, now(to)(b) + amount))
        write(transactions(to), b, now(to)(b))
      }
      if (random.nextInt(4) == 0) { // all accounts of a partition go, and come again
        val p = random.nextInt(Partitions)
        transactions(p).deleteRange(bytes("account-"), bytes("account-9"))
        (0 until Accounts).foreach(i => write(transactions(p), i, now(p)(i)))
      }
      now
    }
  }

  private def balancesOf(view: ReadView, random: Random): Seq[Cell] =
    if (random.nextBoolean()) (0 until Accounts).flatMap(i => view.get(account(i))).map(decoded)
    else {
      val scan = view.range(None, None)
      val found = Seq.newBuilder[Cell]
      try while (scan.next()) found += decoded(scan.value)
      finally scan.close()
      found.result()
    }

  /** All partitions at the version that the log names; planned again where one is gone meanwhile. */
  private def committed(bank: Bank, findings: Findings, atLeast: Long): (Long, Vector[ReadView]) = {
    val version = bank.log.get
    assert(version >= atLeast, "a commit is lost")
    val views = bank.stores.map(_.readAt(VersionId(version, None)))
    if (views.forall(_.isDefined)) (version, views.flatten)
    else {
      views.flatten.foreach(_.close())
      findings.plannedAgain.incrementAndGet(): Unit
      committed(bank, findings, version)
    }
  }

  private def readCommitted(bank: Bank, random: Random, findings: Findings, atLeast: Long): Long = {
    val (version, views) = committed(bank, findings, atLeast)
    try {
      val cells = views.map(balancesOf(_, random))
      assert(cells.forall(_.length == Accounts), s"accounts are missing at $version: $cells")
      assert(cells.flatten.map(_.balance).sum == Total, s"at $version: $cells")
      val again = views.map(balancesOf(_, random))
      assert(again == cells, s"a view of $version has changed")
      findings.reads.incrementAndGet(): Unit
      version
    } finally views.foreach(_.close())
  }

  private def readUncommitted(bank: Bank, random: Random, findings: Findings): Unit = {
    val views = bank.stores.map(_.readOnly(IsolationLevel.ReadUncommitted))
    try {
      val cells = views.flatMap(balancesOf(_, random))
      assert(cells.forall(cell => bank.staged.contains(cell.stamp)), "a value that nobody wrote")
      if (cells.map(_.balance).sum != Total) findings.dirty.incrementAndGet(): Unit
    } catch {
      // What is spilled goes with its transaction.
      case _: ViewClosedException if bank.limit.isDefined =>
        findings.endedUnder.incrementAndGet(): Unit
    } finally views.foreach(_.close())
  }

  test(s"$Schedules schedules of a writer beside $Readers readers") {
    val findings = new Findings
    val pool = Executors.newFixedThreadPool(Readers + 1)
    try
      for (seeds <- (0 until Schedules).grouped(SchedulesPerBank)) {
        // One bank in fifty has no room for what its batches stage.
        val limit = Option.when(seeds.head / SchedulesPerBank % 50 == 9)(
          UncommittedLimit(new UncommittedMemory, LowLimit)
        )
        val bank = new Bank(s"bank-${seeds.head}", limit)
        val newest = new AtomicLong
        seeds.foreach(seed =>
          withClue(s"schedule $seed: ")(run(bank, seed, newest, pool, findings))
        )
        bank.close()
        limit.foreach(l => findings.spills.addAndGet(l.memory.spills))
      }
    finally pool.shutdownNow(): Unit
    info(
      s"${findings.reads} committed reads, ${findings.plannedAgain} planned again, ${findings.dirty} dirty sums, ${findings.spills} spills, " +
        s"${findings.endedUnder} reads of what had ended"
    )
    assert(findings.reads.get >= Schedules, "committed reads")
    assert(
      findings.dirty.get > 0,
      "READ_UNCOMMITTED was never dirty: nothing ran beside the writer"
    )
    assert(findings.plannedAgain.get > 0, "no version was ever gone")
    assert(Schedules < 2000 || findings.spills.get > 100, "spills")
  }

  private def run(
      bank: Bank,
      seed: Int,
      newest: AtomicLong,
      pool: ExecutorService,
      findings: Findings
  ): Unit = {
    val barrier = new CyclicBarrier(Readers + 1)
    def start(body: => Unit): Future[_] = pool.submit[Unit] { () =>
      barrier.await(): Unit
      body
    }
    val writer = start {
      val random = new Random(seed)
      for (_ <- 0 to random.nextInt(8)) bank.batch(random)
    }
    val readers = (1 to Readers).map(r =>
      start {
        val random = new Random(seed * 31L + r)
        var seen = newest.get
        for (_ <- 0 to random.nextInt(4))
          if (random.nextInt(3) == 0) readUncommitted(bank, random, findings)
          else seen = readCommitted(bank, random, findings, seen)
        newest.accumulateAndGet(seen, (a, b) => math.max(a, b)): Unit
      }
    )
    (writer +: readers).foreach(_.get())
  }
}

/** Balance and stamp of an account: no two writes have one stamp. */
private final case class Cell(balance: Long, stamp: Long)
