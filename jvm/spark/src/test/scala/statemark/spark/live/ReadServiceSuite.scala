package statemark.spark.live

import java.nio.file.attribute.FileTime
import java.nio.file.Files
import java.util.UUID
import org.apache.spark.sql.execution.streaming.state.{
  NoPrefixKeyStateEncoderSpec,
  StateStore,
  StateStoreProvider
}
import org.scalatest.funsuite.AnyFunSuite
import statemark.common.{Bytes, ViewClosedException}
import statemark.engine.{ColumnFamilies, RocksEngine, VersionId}
import statemark.spark.checkpoint.StoreAddress
import statemark.spark.conf.StoreSettings
import statemark.spark.{Line, Providers, StatemarkStateStoreProvider}
import statemark.spark.errors.{StoreMovedException, VersionGoneException}
import statemark.spark.process.JvmState
import statemark.spark.reads.{LiveReads, ReadReply, ReadRequest, ReadService, RemoteRows}
import statemark.transaction.{RowScan, Rows}

/** Reads of a store that is open in another JVM, as bytes there and back. */
class ReadServiceSuite extends AnyFunSuite with Providers {
  private def addressOf(provider: StateStoreProvider): StoreAddress =
    provider.asInstanceOf[StatemarkStateStoreProvider].address

  private def ask(request: ReadRequest): ReadReply =
    ReadService.decode[ReadReply](ReadService.answer(ReadService.encode(request)))

  private def remote(address: StoreAddress, version: Long): Option[RemoteRows] =
    RemoteRows.open(address, VersionId(version, None), "READ_COMMITTED", ask)

  /** Versions 1 to 3 of `rows` rows each; version 3 is prepared, 2 the base, 1 was left while there were readers. */
  private def filled(rows: Int, settings: Map[String, String] = Map.empty): StateStoreProvider = {
    val provider = open(settings.map { case (k, v) => StoreSettings.Prefix + k -> v })
    for (v <- 0 until 3) {
      commit(provider, v, (0 until rows).map(i => f"k$i%05d" -> (i + v)).toMap, None): Unit
      if (v == 0) remote(addressOf(provider), 1): Unit
    }
    provider
  }

  private def scan(rows: RemoteRows): Seq[Array[Byte]] = {
    val scan = rows.range(None, None)
    try Iterator.continually(scan.next()).takeWhile(identity).map(_ => scan.key).toVector
    finally scan.close()
  }

  test("rows by key, and pages of a scan, as the store has them") {
    val provider = filled(20000)
    for (version <- 1L to 3L) {
      val rows = remote(addressOf(provider), version).get
      val keys = scan(rows)
      assert(keys.length == 20000 && keys.sliding(2).forall(p => Bytes.order.lt(p(0), p(1))))
      assert(rows.getAll(Seq(keys(7), Array[Byte](0), keys(9))).toSeq.map(_.isDefined) == Seq(
        true,
        false,
        true
      ))
      assert(rows.get(keys.head).exists(_.nonEmpty))
    }
  }

  test("a store that is not open there, and a version that is gone, are told by name") {
    val provider = filled(3)
    val address = addressOf(provider)
    assert(remote(address.copy(runId = UUID.randomUUID()), 3).isEmpty)
    assert(remote(address, 9).isEmpty, "another executor has it")
    val forgetful = filled(3, Map("readRetentionVersions" -> "0"))
    val gone = intercept[VersionGoneException](
      remote(addressOf(forgetful), 1).get.get(Array[Byte](1))
    )
    intercept[VersionGoneException](remote(addressOf(forgetful), 0))
    assert(gone.getMessage.contains("Version 1") && gone.getMessage.contains("at version 2"))
    val rows = remote(address, 3).get
    provider.close()
    intercept[StoreMovedException](rows.get(Array[Byte](1)))
  }

  test(
    "a committed version is asked for its families once, until the store is elsewhere; what is staged, each time"
  ) {
    val provider = filled(3)
    val address = addressOf(provider)
    var asked = 0
    def remote(level: String) = RemoteRows.open(
      address,
      VersionId(3, None),
      level,
      request => {
        asked += 1
        ask(request)
      }
    )
    def asks(level: String) = (1 to 3).map { _ =>
      asked = 0
      assert(remote(level).isDefined)
      asked
    }
    assert(asks("READ_COMMITTED") == Seq(1, 0, 0))
    assert(asks("READ_UNCOMMITTED") == Seq(1, 1, 1))
    provider.close()
    intercept[StoreMovedException](remote("READ_COMMITTED").get.get(Array[Byte](1)))
    assert(remote("READ_COMMITTED").isEmpty)
  }

  test("a column family that only its reader has is none that the owner creates afterwards") {
    val ofOwner = ColumnFamilies.none.created("a", isInternal = false)
    val rows = new Rows {
      override def families: ColumnFamilies = ofOwner
      override def get(key: Array[Byte]): Option[Array[Byte]] = None

      override def range(begin: Option[Array[Byte]], end: Option[Array[Byte]]): RowScan =
        throw new IllegalStateException("nothing is scanned")
    }
    val reads = new LiveReads(rows, None, () => ())
    Seq("a", "b").foreach(reads.createColumnFamily)
    val later = Seq("c", "d").foldLeft(ofOwner)(_.created(_, isInternal = false))
    assert(reads.families.byName("a") == ofOwner.byName("a"))
    assert(!later.byName.values.map(_.id).toSet.contains(reads.families.byName("b").id))
  }

  test("rows of a family are not taken for those of another that has its id since") {
    val provider = open(usesFamilies = true)
    commit(provider, 0, Map("a" -> 1)): Unit
    def begun(family: String): StateStore = {
      val store = Line.getStore(provider, 1, None, force = false)
      val spec = NoPrefixKeyStateEncoderSpec(Providers.keySchema)
      store.createColFamilyIfAbsent(family, Providers.keySchema, Providers.valueSchema, spec)
      store.put(Providers.key(family), Providers.value(1), family)
      store
    }
    def staged: RemoteRows =
      RemoteRows.open(addressOf(provider), VersionId(1, None), "READ_UNCOMMITTED", ask).get
    def keysOf(rows: RemoteRows, family: String): Seq[Array[Byte]] = {
      val found = rows.prefix(RocksEngine.familyPrefix(rows.families.byName(family).id))
      try Iterator.continually(found.next()).takeWhile(identity).map(_ => found.key).toVector
      finally found.close()
    }
    val first = begun("first")
    val before = staged
    val key = keysOf(before, "first").head
    first.createColFamilyIfAbsent(
      "more",
      Providers.keySchema,
      Providers.valueSchema,
      NoPrefixKeyStateEncoderSpec(Providers.keySchema)
    )
    assert(before.get(key).isDefined, "a family more changes nothing")
    first.abort()
    val second = begun("second")
    try {
      val after = staged
      assert(after.families.byName("second").id == before.families.byName("first").id)
      intercept[ViewClosedException](keysOf(before, "first"))
      intercept[ViewClosedException](before.get(key))
      assert(keysOf(after, "second").length == 1)
    } finally second.abort()
  }

  test("a version that was prepared here and written by another executor since is not here") {
    JvmState.runsOnCluster.set(() => true)
    try {
      val sole = addressOf(filled(3))
      assert(remote(sole, 3).isDefined)
      val overwritten = addressOf(filled(3))
      Files.setLastModifiedTime(storeDir.resolve("3.changelog"), FileTime.fromMillis(1))
      assert(remote(overwritten, 3).isEmpty)
      assert(remote(overwritten, 2).isDefined)
    } finally JvmState.runsOnCluster.clear()
  }
}
