package statemark

import statemark.common.Clock
import statemark.engine.{EngineView, StoreState, VersionId}

/** How long versions that a store has left can still be read.
  *
  * @param versions so many at least; 0 for none at all
  * @param ms and all that were left in the last so many, up to [[ReadRetention.MaxVersions]]
  */
final case class ReadRetention(versions: Int, ms: Long, clock: Clock)

object ReadRetention {

  /** RocksDB keeps every version of a row that a snapshot sees. */
  val MaxVersions: Int = 512

  /** Readers see the newest version only. */
  val none: ReadRetention = ReadRetention(0, 0, Clock.system)
}

/** Versions that a store has left, for readers that were pinned to them.
  *
  * ''Thread:'' guarded by the store's lock.
  */
private[statemark] final class KeptVersions(retention: ReadRetention) extends AutoCloseable {
  import KeptVersions._

  private var kept = Vector.empty[Kept]

  /** @param view a view of `state`, which is this object's from now on */
  def add(state: StoreState, view: => EngineView): Unit = if (retention.versions > 0) {
    val now = retention.clock.nanos()
    kept = kept.filter { old => // a version that was rolled back and is left again
      val isOlder = old.state.version < state.version
      if (!isOlder) old.view.close()
      isOlder
    } :+ Kept(state, view, now)
    val (useless, rest) = kept.zipWithIndex.partition { case (k, i) =>
      val newer = kept.length - 1 - i
      newer >= ReadRetention.MaxVersions ||
      (newer >= retention.versions && now - k.leftNanos > retention.ms * NanosPerMs)
    }
    useless.foreach(_._1.view.close())
    kept = rest.map(_._1)
  }

  /** The view of a version, retained for the caller. */
  def find(at: VersionId): Option[(StoreState, EngineView)] =
    kept.find(_.state.at == at).filter(_.view.retain()).map(k => (k.state, k.view))

  override def close(): Unit = {
    kept.foreach(_.view.close())
    kept = Vector.empty
  }
}

private object KeptVersions {
  private val NanosPerMs = 1000L * 1000

  final case class Kept(state: StoreState, view: EngineView, leftNanos: Long)
}
