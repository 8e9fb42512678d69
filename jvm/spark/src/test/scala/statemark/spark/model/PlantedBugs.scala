package statemark.spark.model

import scala.collection.mutable
import statemark.spark.Line

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state._

/** Ways to be wrong that the model must notice: each wraps a provider that is right. */
object PlantedBugs {
  type Bug = DelegatingProvider.Inner => DelegatingProvider.Inner

  private def perStore(bug: StateStore => DelegatingStore): Bug = inner =>
    new DelegatingProvider(inner) {
      override protected def wrap(store: StateStore): DelegatingStore = bug(store)
    }

  /** The delete of a key that the same batch wrote goes missing. */
  val droppedTombstone: Bug = perStore { store =>
    new DelegatingStore(store) {
      private val staged = mutable.Set.empty[(UnsafeRow, String)]
      override def put(key: UnsafeRow, value: UnsafeRow, family: String): Unit = {
        staged += key.copy() -> family
        super.put(key, value, family)
      }
      override def remove(key: UnsafeRow, family: String): Unit =
        if (!staged(key -> family)) super.remove(key, family)
    }
  }

  /** A list that is merged arrives in the wrong order. */
  val swappedMerge: Bug = perStore { store =>
    new DelegatingStore(store) {
      override def mergeList(key: UnsafeRow, values: Array[UnsafeRow], family: String): Unit =
        super.mergeList(key, values.reverse, family)
    }
  }

  /** Of three range deletes one does nothing. */
  val missedRangeDelete: Bug = {
    var calls = 0
    perStore { store =>
      new DelegatingStore(store) {
        override def deleteRange(begin: UnsafeRow, end: UnsafeRow, family: String): Unit = {
          calls += 1
          if (calls % 3 != 0) super.deleteRange(begin, end, family)
        }
      }
    }
  }

  /** An iterator shows what the store holds when it is first used, not when it was opened. */
  val liveIterator: Bug = perStore { store =>
    new DelegatingStore(store) {
      override def iterator(family: String): StateStoreIterator[UnsafeRowPair] = {
        lazy val late = inner.iterator(family)
        val rows = new Iterator[UnsafeRowPair] {
          override def hasNext: Boolean = late.hasNext
          override def next(): UnsafeRowPair = late.next()
        }
        new StateStoreIterator(rows, () => late.close())
      }
    }
  }

  /** The last put of an aborted batch is there in the next one. */
  val keptByAbort: Bug = inner =>
    new DelegatingProvider(inner) {
      private var kept = Option.empty[(UnsafeRow, UnsafeRow, String)]

      override protected def wrap(store: StateStore): DelegatingStore = new DelegatingStore(store) {
        private var last = Option.empty[(UnsafeRow, UnsafeRow, String)]
        private var leaked = kept
        kept = None

        private def leak(family: String): Unit = leaked.filter(_._3 == family).foreach {
          case (key, value, _) =>
            leaked = None
            store.put(key, value, family)
        }
        override def get(key: UnsafeRow, family: String): UnsafeRow = {
          leak(family)
          super.get(key, family)
        }
        override def put(key: UnsafeRow, value: UnsafeRow, family: String): Unit = {
          leak(family)
          last = Some((key.copy(), value.copy(), family))
          super.put(key, value, family)
        }
        override def abort(): Unit = {
          kept = last
          super.abort()
        }
      }
    }

  /** Asked again for the version before, the provider serves the one it committed last. */
  val newerAfterRewind: Bug = inner =>
    new DelegatingProvider(inner) {
      private var last = Option.empty[(Long, Option[String])]

      override def getStore(
          version: Long,
          id: Option[String],
          forceSnapshotOnCommit: Boolean,
          loadEmpty: Boolean
      ): StateStore = {
        val (served, servedId) = last.filter(_._1 == version + 1).getOrElse(version -> id)
        val ahead = served - version
        val store = Line.getStore(inner, served, servedId, forceSnapshotOnCommit, loadEmpty)
        new DelegatingStore(store) {
          override def version: Long = super.version - ahead
          override def commit(): Long = {
            val committed = super.commit()
            last = Some(committed -> super.getStateStoreCheckpointInfo().stateStoreCkptId)
            committed - ahead
          }
        }
      }
    }

  /** The bulk write of a list goes past the transaction: it survives an abort. */
  val unbufferedList: Bug = inner =>
    new DelegatingProvider(inner) {
      private val lists = mutable.Buffer.empty[(UnsafeRow, Array[UnsafeRow], String)]

      override protected def wrap(store: StateStore): DelegatingStore = new DelegatingStore(store) {
        private def leak(family: String): Unit = {
          val (mine, others) = lists.toList.partition(_._3 == family)
          lists.clear()
          lists ++= others
          mine.foreach { case (key, values, _) => Line.putList(store, key, values, family) }
        }
        override def get(key: UnsafeRow, family: String): UnsafeRow = {
          leak(family)
          super.get(key, family)
        }
        override def putList(key: UnsafeRow, values: Array[UnsafeRow], family: String): Unit = {
          staged += ((key.copy(), values.map(_.copy()), family))
          super.putList(key, values, family)
        }
        private val staged = mutable.Buffer.empty[(UnsafeRow, Array[UnsafeRow], String)]
        override def abort(): Unit = {
          lists ++= staged
          super.abort()
        }
      }
    }

  val all: Seq[(String, Bug)] = Seq(
    "a dropped tombstone" -> droppedTombstone,
    "a live iterator" -> liveIterator,
    "an abort that keeps one write" -> keptByAbort,
    "a rewind that returns the newer version" -> newerAfterRewind
  ) ++ Option.when(Line.hasStoreOf42)("a missed range delete" -> missedRangeDelete) ++
    Option.when(Line.hasStoreOf41)("a swapped merge order" -> swappedMerge) ++
    Option.when(Line.hasStoreOf41)("a list written past the transaction" -> unbufferedList)
}
