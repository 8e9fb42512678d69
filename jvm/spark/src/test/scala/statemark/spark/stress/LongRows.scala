package statemark.spark.stress

import java.util.UUID
import org.apache.hadoop.conf.Configuration
import org.apache.spark.sql.catalyst.expressions.{UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.unsafe.types.UTF8String
import scala.util.Random
import statemark.spark.{Line, StatemarkStateStoreProvider, TestFiles}
import statemark.spark.model._

/** A store of lists that are together larger than the heap. A batch appends to all of them and reads none: neither the
  * batch, nor whoever replays it, takes more memory than some of them need.
  */
private[stress] final class LongRows(world: World, random: Random) {
  private var isDone = false

  /** Once in a history, where the heap is small; whether it was. */
  def run(): Boolean = !isDone && LongRows.mostHeap > 0 && {
    isDone = true
    val length = LongRows.Shortest + random.nextInt(LongRows.Shortest)
    val lists = (LongRows.mostHeap * 5 / 4 / length).toInt
    world.log += s"$lists lists of $length bytes"
    append(lists, length)
    true
  }

  private def append(lists: Int, length: Int): Unit = {
    val text = UTF8String.fromString("v" * length)
    var version = 0L
    var id = Option.empty[String]
    def batch(provider: StateStoreProvider, there: Int)(writes: StateStore => Unit): Unit = {
      val store = Line.getStore(provider, version, id, force = false)
      version =
        try {
          writes(store)
          store.commit()
        } catch {
          case e: Throwable =>
            store.abort()
            throw e
        }
      id = store.getStateStoreCheckpointInfo().stateStoreCkptId
      Check.same("lists", there.toLong, store.metrics.numKeys)
    }
    def check(provider: StateStoreProvider): Unit = {
      val store = provider.getReadStore(version, id)
      try for (_ <- 1 to LongRows.Looks) {
          val list = random.nextInt(lists)
          val found = store.valuesIterator(LongRows.key(list), LongRows.family)
          Check.same(
            s"values of list $list",
            Seq(list -> length, list + 1 -> 1),
            found.map(row => row.getInt(0) -> row.getUTF8String(1).numBytes).toVector
          )
        }
      finally Line.release(store)
    }
    val first = provider()
    try {
      (0 until lists).grouped(LongRows.PerBatch).foreach { some =>
        batch(first, some.last + 1) { store =>
          some.foreach(list =>
            store.put(LongRows.key(list), LongRows.value(list, text), LongRows.family)
          )
        }
      }
      first.doMaintenance()
      val one = UTF8String.fromString("v")
      batch(first, lists) { store =>
        (0 until lists).foreach(list =>
          store.merge(LongRows.key(list), LongRows.value(list + 1, one), LongRows.family)
        )
      }
      check(first)
    } finally first.close()
    // The snapshot is of the version before.
    val replaying = provider()
    try check(replaying)
    finally replaying.close()
  }

  private def provider(): StateStoreProvider = {
    val sql = new SQLConf
    val stateStore = "spark.sql.streaming.stateStore"
    sql.setConfString(s"$stateStore.minDeltasForSnapshot", "1")
    sql.setConfString(s"$stateStore.rocksdb.changelogCheckpointing.enabled", "true")
    sql.setConfString(s"$stateStore.checkpointFormatVersion", s"${world.settings.formatVersion}")
    val hadoop = TestFiles.forTest(new Configuration(false))
    hadoop.set(Line.runIdKey, UUID.randomUUID().toString)
    val made = new StatemarkStateStoreProvider
    made.init(
      StateStoreId(world.root.resolve("long").toString, 0, 0),
      KeyKind.plain,
      Family.valueSchema,
      NoPrefixKeyStateEncoderSpec(KeyKind.plain),
      true,
      new StateStoreConf(sql),
      hadoop,
      true,
      Some(new TestStateSchemaProvider)
    )
    made
  }
}

private object LongRows {
  val family: String = StateStore.DEFAULT_COL_FAMILY_NAME
  val Shortest: Int = 1 << 20
  val PerBatch = 16
  val Looks = 20
  private val LargestHeap = 1L << 30

  /** The heap, 0 where it is so large that a store beyond it would take minutes. */
  val mostHeap: Long = {
    val heap = Runtime.getRuntime.maxMemory
    if (heap < LargestHeap) heap else 0
  }

  private val toKey = UnsafeProjection.create(KeyKind.plain)
  private val toValue = UnsafeProjection.create(Family.valueSchema)

  def key(list: Int): UnsafeRow = toKey(InternalRow(UTF8String.fromString("list"), list)).copy()

  def value(number: Int, text: UTF8String): UnsafeRow = toValue(InternalRow(number, text)).copy()
}
