package statemark.transaction

import java.io.File
import org.scalatest.funsuite.AnyFunSuite
import statemark.TestStores
import statemark.common.ScratchFullException
import statemark.engine.ScratchStore
import statemark.staging._

/** A disk is full in the middle of a spill, and has room again at the next one: an operator may have caught what its
  * write threw. Scans go on as they were opened (I7).
  */
class FailedSpillSuite extends AnyFunSuite with TestStores {
  private def rest(scan: StagedCursor): Seq[String] = {
    val all = Seq.newBuilder[String]
    while (scan.head.isDefined) {
      scan.head.foreach {
        case (key, StagedLookup.Value(value)) => all += s"${new String(key)}=${new String(value)}"
        case (key, other) => all += s"${new String(key)} $other"
      }
      scan.advance()
    }
    all.result()
  }

  /** @param failing number of the call, of `add` and `flush` together, that fails after its work is half done */
  private final class Failing(scratch: ScratchStore, failing: Int) extends SpilledWrites(scratch) {
    private var calls = 0

    private def full() = throw new ScratchFullException("the disk is full", None)

    override def add(table: StagedTable, writes: Iterable[(Long, OlderWrite)]): Unit = {
      calls += 1
      if (calls == failing) {
        super.add(table, writes.take((writes.size + 1) / 2))
        full()
      } else super.add(table, writes)
    }

    override def flush(): Unit = {
      calls += 1
      if (calls == failing) full()
      super.flush()
    }
  }

  // Two moments and what comes after them, then the flush.
  for (failing <- 1 to 4)
    test(
      s"step $failing of a spill fails: scans that have moved stay, the others move with the next"
    ) {
      val buffer = new TransactionBuffer(bytes(","))
      def put(keys: String, value: String) =
        keys.foreach(k => buffer.put(bytes(k.toString), bytes(value)))
      var spilled = Seq.empty[Failing]
      def spill() = buffer.spill { () =>
        val made =
          new Failing(new ScratchStore(new File(root, s"s${spilled.length}"), options), failing)
        spilled :+= made
        made
      }
      put("ac", "1")
      val first = buffer.scan(None, None)
      put("bc", "2")
      val second = buffer.scan(None, None)
      put("acde", "3")
      intercept[ScratchFullException](spill())
      put("f", "4")
      val third = buffer.scan(None, None)
      put("abf", "5")
      spill()
      assert(rest(first) == Seq("a=1", "c=1"))
      assert(rest(second) == Seq("a=1", "b=2", "c=2"))
      assert(rest(third) == Seq("a=3", "b=2", "c=3", "d=3", "e=3", "f=4"))
      assert(rest(buffer.scan(None, None)) == Seq("a=5", "b=5", "c=3", "d=3", "e=3", "f=5"))
      Seq(first, second, third).foreach(_.close())
      buffer.close()
    }
}
