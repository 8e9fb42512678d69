package statemark.spark

import scala.util.{Failure, Success, Try}

import org.apache.hadoop.conf.Configuration
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.internal.SQLConf
import org.scalatest.funsuite.AnyFunSuite

/** Bugs that transactional state stores of others had, as they would show through Spark's interface.
  * Each test runs with and without column families, in both checkpoint formats.
  */
abstract class StoreContractSuiteBase extends AnyFunSuite {
  import StoreContractSuiteBase._
  import StateStoreTestsHelper.{get => valueOf, _}

  protected def providerClass: String

  /** Spark's provider leaves iterators usable after the store has ended; ours ends them. */
  protected def iteratorsOutliveStore: Boolean

  private def contract(name: String)(body: Checkpoint => Unit): Unit =
    for (useFamilies <- Seq(true, false); format <- Seq(1, 2))
      test(s"$name (families $useFamilies, format v$format)") {
        body(new Checkpoint(providerClass, useFamilies, format))
      }

  private def rows(store: ReadStateStore): Seq[((String, Int), Int)] =
    store.iterator(default).map(rowPairToDataPair).toList.sorted

  contract("KAFKA-20933: no bulk write goes past the transaction") { checkpoint =>
    val many = checkpoint.useFamilies && Line.hasStoreOf42
    def create(store: StateStore): Unit = if (many) {
      val spec = RangeKeyScanStateEncoderSpec(keySchemaWithRangeScan, Seq(0))
      store.createColFamilyIfAbsent("timers", spec.keySchema, valueSchema, spec, true)
    }
    def timers(store: StateStore): Seq[((Long, String), Int)] =
      if (!many) Nil
      else {
        Line.iteratorWithMultiValues(store, "timers").map { pair =>
          keyRowWithRangeScanToData(pair.key) -> valueRowToData(pair.value)
        }.toList
      }
    def timer(at: Long) = dataToKeyRowWithRangeScan(at, "t")
    def values(of: Int*) = of.map(dataToValueRow).toArray

    checkpoint.withProvider { provider =>
      val first = checkpoint.open(provider)
      create(first)
      put(first, "a", 1, 1)
      put(first, "b", 2, 2)
      if (many)
        (1L to 5L).foreach(at => Line.putList(first, timer(at), values(at.toInt, 9), "timers"))
      checkpoint.commit(first)

      val aborted = checkpoint.open(provider)
      create(aborted)
      val (plain, timed) = (rows(aborted), timers(aborted))
      put(aborted, "a", 1, 100)
      put(aborted, "c", 3, 3)
      aborted.remove(dataToKeyRow("b", 2))
      if (many) {
        Line.putList(aborted, timer(1), values(7, 7, 7), "timers")
        Line.mergeList(aborted, timer(2), values(8, 8), "timers")
        aborted.merge(timer(9), dataToValueRow(1), "timers")
        Line.deleteRange(aborted, timer(3), timer(5), "timers")
        aborted.createColFamilyIfAbsent(
          "late",
          keySchema,
          valueSchema,
          NoPrefixKeyStateEncoderSpec(keySchema)
        )
        put(aborted, "x", 1, 1, "late")
      }
      assert(rows(aborted) !== plain)
      aborted.abort()

      def checkUnchanged(provider: StateStoreProvider): Unit = {
        val store = checkpoint.open(provider)
        create(store)
        assert(rows(store) === plain)
        assert(timers(store) === timed)
        if (many) assert(Line.familyNames(store) === Set(default, "timers"))
        store.abort()
      }
      checkUnchanged(provider)
      checkpoint.withProvider(checkUnchanged(_))
    }
  }

  contract("KAFKA-20753: aborting and reopening again and again wipes nothing") { checkpoint =>
    checkpoint.withProvider { provider =>
      val store = checkpoint.open(provider)
      put(store, "a", 1, 1)
      checkpoint.commit(store)
      provider.doMaintenance()
    }
    val files = (checkpoint.files.changelogs, checkpoint.files.snapshots)
    (1 to 5).foreach { round =>
      checkpoint.withProvider { provider =>
        (1 to 2).foreach { _ =>
          val store = checkpoint.open(provider)
          assert(rows(store) === Seq(("a", 1) -> 1), s"round $round")
          put(store, "a", 1, 2)
          put(store, "b", round, 2)
          store.abort()
          provider.doMaintenance()
        }
      }
      assert((checkpoint.files.changelogs, checkpoint.files.snapshots) === files, s"round $round")
    }
  }

  contract("KAFKA-20760: what was committed is known after a stop without maintenance") {
    checkpoint =>
      checkpoint.withProvider { provider =>
        (1 to 5).foreach { n =>
          val store = checkpoint.open(provider)
          put(store, s"k$n", n, n)
          checkpoint.commit(store)
        }
      }
      // The second time the provider before is not even closed.
      val abandoned = checkpoint.newProvider()
      try {
        val store = checkpoint.open(abandoned)
        assert(store.version === 5)
        assert(rows(store) === (1 to 5).map(n => (s"k$n", n) -> n))
        put(store, "k6", 6, 6)
        checkpoint.commit(store)
        assert(store.metrics.numKeys === 6)
        checkpoint.withProvider { provider =>
          val store = checkpoint.open(provider)
          assert(store.version === 6)
          assert(rows(store) === (1 to 6).map(n => (s"k$n", n) -> n))
          store.remove(dataToKeyRow("k1", 1))
          checkpoint.commit(store)
          assert(store.metrics.numKeys === 5)
        }
      } finally abandoned.close()
  }

  Seq[(String, KeyStateEncoderSpec)](
    "no prefix" -> NoPrefixKeyStateEncoderSpec(keySchema),
    "prefix" -> PrefixKeyScanStateEncoderSpec(keySchema, 1),
    "range" -> RangeKeyScanStateEncoderSpec(keySchema, Seq(1))
  ).foreach { case (kind, spec) =>
    contract(s"KAFKA-20749: scans over everything return the user's rows only, $kind") {
      checkpoint =>
        val keys = for (name <- Seq("", "a", "zz"); n <- Seq(Int.MinValue, -1, 0, Int.MaxValue))
          yield (name, n)

        def check(store: StateStore, expected: Seq[(String, Int)]): Unit = {
          assert(rows(store).map(_._1) === expected.sorted)
          if (kind == "range" && Line.hasStoreOf42) {
            val all = Line.rangeScan(store, None, None, default).map(rowPairToDataPair(_)._1).toList
            assert(all.sorted === expected.sorted)
          }
          if (kind == "prefix") {
            Seq("", "a", "b", "zz").foreach { name =>
              val found = store.prefixScan(dataToPrefixKeyRow(name), default)
              assert(
                found.map(rowPairToDataPair(_)._1).toSet === expected.filter(_._1 == name).toSet
              )
            }
          }
          if (checkpoint.useFamilies && Line.hasStoreOf42)
            assert(Line.familyNames(store) === Set(default))
        }

        def round(provider: StateStoreProvider, before: Seq[(String, Int)]): Unit = {
          val store = checkpoint.open(provider)
          check(store, before)
          keys.foreach { case (name, n) => put(store, name, n, n) }
          check(store, keys)
          checkpoint.commit(store)
          assert(store.metrics.numKeys === keys.size)
          provider.doMaintenance()
        }
        checkpoint.withProvider(spec) { provider =>
          round(provider, Nil)
          round(provider, keys)
        }
        checkpoint.withProvider(spec)(round(_, keys))
    }
  }

  contract("KAFKA-20777: an iterator that was closed, or whose store ended, fails or ends") {
    checkpoint =>
      checkpoint.withProvider { provider =>
        def opened(): (StateStore, StateStoreIterator[UnsafeRowPair]) = {
          val store = checkpoint.open(provider)
          (1 to 20).foreach(n => put(store, s"k$n", n, n))
          val iterator = store.iterator(default)
          assert(iterator.hasNext)
          iterator.next()
          (store, iterator)
        }
        def check(iterator: StateStoreIterator[UnsafeRowPair], mayGoOn: Boolean): Unit =
          Try(iterator.hasNext) match {
            case Success(goesOn) => assert(!goesOn || mayGoOn)
            case Failure(e: NullPointerException) => fail("not a clear error", e)
            case Failure(_) =>
          }

        val (store, closed) = opened()
        closed.close()
        closed.close()
        check(closed, mayGoOn = false)
        assert(valueOf(store, "k1", 1) === Some(1))
        store.abort()

        val (aborted, afterAbort) = opened()
        aborted.abort()
        check(afterAbort, iteratorsOutliveStore)
        afterAbort.close()

        val (committed, afterCommit) = opened()
        checkpoint.commit(committed)
        check(afterCommit, iteratorsOutliveStore)
        afterCommit.close()
      }
  }

  contract("KAFKA-20685: staged and aborted writes do not survive a crash") { checkpoint =>
    val crashed = checkpoint.newProvider()
    try {
      (1 to 2).foreach { n =>
        val store = checkpoint.open(crashed)
        put(store, "a", 1, n)
        checkpoint.commit(store)
      }
      val retry = checkpoint.open(crashed, version = 1)
      assert(valueOf(retry, "a", 1) === Some(1))
      put(retry, "aborted", 1, 1)
      retry.abort()
      val staged = checkpoint.open(crashed)
      put(staged, "staged", 1, 1)
      crashed.doMaintenance()

      // The first provider still holds its store, as a process that was killed would have.
      checkpoint.withProvider { provider =>
        (1 to 2).foreach { n =>
          val old = checkpoint.open(provider, version = n.toLong)
          assert(rows(old) === Seq(("a", 1) -> n))
          old.abort()
        }
        val store = checkpoint.open(provider)
        put(store, "a", 1, 3)
        checkpoint.commit(store)
      }
      staged.abort()
      checkpoint.withProvider { provider =>
        val store = checkpoint.open(provider)
        assert(rows(store) === Seq(("a", 1) -> 3))
        store.abort()
      }
    } finally crashed.close()
  }
}

object StoreContractSuiteBase {
  import StateStoreTestsHelper.{keySchema, newDir, valueSchema}

  private val default = StateStore.DEFAULT_COL_FAMILY_NAME

  /** A checkpoint of one store and what its driver knows: the versions committed and their ids. */
  final class Checkpoint(providerClass: String, val useFamilies: Boolean, format: Int) {
    private val id = StateStoreId(newDir(), 0, 0)
    private var committed = Vector(Option.empty[String])

    def files: CheckpointFiles = CheckpointFiles.of(id)

    def newProvider(
        spec: KeyStateEncoderSpec = NoPrefixKeyStateEncoderSpec(keySchema)
    ): StateStoreProvider = {
      val conf = new SQLConf
      conf.setConf(SQLConf.STATE_STORE_CHECKPOINT_FORMAT_VERSION, format)
      conf.setConf(SQLConf.STATE_STORE_MIN_DELTAS_FOR_SNAPSHOT, 3)
      conf.setConfString(
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled",
        "true"
      )
      val provider =
        Class.forName(providerClass).getConstructor().newInstance().asInstanceOf[StateStoreProvider]
      provider.init(
        id,
        spec.keySchema,
        valueSchema,
        spec,
        useFamilies,
        new StateStoreConf(conf),
        TestFiles.forTest(new Configuration())
      )
      provider
    }

    def withProvider(body: StateStoreProvider => Unit): Unit =
      withProvider(NoPrefixKeyStateEncoderSpec(keySchema))(body)

    def withProvider(spec: KeyStateEncoderSpec)(body: StateStoreProvider => Unit): Unit = {
      val provider = newProvider(spec)
      try body(provider)
      finally provider.close()
    }

    def open(provider: StateStoreProvider): StateStore = open(provider, committed.size - 1L)

    def open(provider: StateStoreProvider, version: Long): StateStore =
      provider.getStore(version, committed(version.toInt))

    def commit(store: StateStore): Unit = {
      val version = store.commit()
      committed =
        committed.take(version.toInt) :+ store.getStateStoreCheckpointInfo().stateStoreCkptId
    }
  }
}

/** The known bugs of others, tried on ours. */
class StatemarkContractSuite extends StoreContractSuiteBase {
  override protected def providerClass: String = classOf[StatemarkStateStoreProvider].getName
  override protected def iteratorsOutliveStore: Boolean = false
}
