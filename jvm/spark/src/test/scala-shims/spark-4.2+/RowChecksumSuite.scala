package statemark.spark

import org.apache.spark.SparkException
import org.apache.spark.sql.execution.streaming.state._
import org.scalatest.funsuite.AnyFunSuite
import statemark.spark.provider.StatemarkRocksDBStateStore

/** A row that does not fit its checksum is refused, wherever it is read: Spark's suite for this reaches
  * into Spark's own classes.
  *
  * ''Source:'' Spark 4.2 `RocksDBStateStoreRowChecksumSuite`
  */
class RowChecksumSuite extends AnyFunSuite with Providers {
  private val rowChecksum = "spark.sql.streaming.stateStore.rowChecksum"

  override protected def settings: Map[String, String] =
    Map(s"$rowChecksum.enabled" -> "true", s"$rowChecksum.readVerificationRatio" -> "1")

  test("a damaged row fails its get and every scan, and no other row's get") {
    val store = open().getStore(0, None)
    put(store, Map("a" -> 1, "b" -> 2))
    damage(store, "a")
    assert(store.get(Providers.key("b")).getInt(0) == 2)
    assertRefused(store.get(Providers.key("a")))
    assertRefused(rows(store))
    store.abort()
  }

  test("a damaged value among merged ones fails the whole list") {
    val provider = open(usesFamilies = true)
    val store = provider.getStore(0, None)
    store.createColFamilyIfAbsent(
      "list",
      Providers.keySchema,
      Providers.valueSchema,
      NoPrefixKeyStateEncoderSpec(Providers.keySchema),
      useMultipleValuesPerKey = true
    )
    val key = Providers.key("a")
    Seq(1, 2, 3).foreach(n => store.merge(key, Providers.value(n), "list"))
    assert(store.valuesIterator(key, "list").map(_.getInt(0)).toSeq == Seq(1, 2, 3))
    damage(store, "a")
    assertRefused(store.valuesIterator(key, "list").foreach(_.getInt(0)))
    assertRefused(store.iteratorWithMultiValues("list").foreach(_.value.getInt(0)))
    store.abort()
  }

  test("a damaged row in a changelog fails the load, also where reads are not verified") {
    val unverified = Map(s"$rowChecksum.readVerificationRatio" -> "0")
    val writer = open(unverified)
    val store = writer.getStore(0, None)
    put(store, Map("a" -> 1, "b" -> 2))
    damage(store, "b")
    store.commit(): Unit
    writer.close()
    val failure = intercept[SparkException](open(unverified).getStore(1, None))
    assertRefused(throw failure.getCause)
  }

  for ((ratio, refused) <- Seq(0 -> 0, 1 -> 10, 2 -> 5))
    test(s"with a verification ratio of $ratio, $refused of 10 reads are verified") {
      val store =
        open(Map(s"$rowChecksum.readVerificationRatio" -> ratio.toString)).getStore(0, None)
      val names = ('a' to 'j').map(_.toString)
      put(store, names.map(_ -> 1).toMap)
      names.foreach(damage(store, _))
      assert(names.count { name =>
        try store.get(Providers.key(name)) == null
        catch { case _: SparkException => true }
      } == refused)
      store.abort()
    }

  /** Flips a bit of the number that the store holds for a key, in whichever column family. */
  private def damage(store: StateStore, name: String): Unit = {
    val transaction = store.asInstanceOf[StatemarkRocksDBStateStore].owned.transaction
    val scan = transaction.range(None, None)
    val encoded = Providers.key(name).getBytes
    val (key, value) = Iterator.continually(scan.next()).takeWhile(identity)
      .map(_ => (scan.key, scan.value)).find(_._1.endsWith(encoded))
      .getOrElse(fail(s"no row of $name"))
    scan.close()
    val number = value.length - 8
    value(number) = (value(number) ^ 1).toByte
    transaction.put(key, value)
  }

  private def assertRefused(read: => Any): Unit = {
    val refusal = intercept[SparkException](read)
    assert(refusal.getCondition == "STATE_STORE_ROW_CHECKSUM_VERIFICATION_FAILED")
  }
}
