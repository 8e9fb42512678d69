package statemark.spark.conf

import java.util.UUID
import org.apache.hadoop.fs.Path
import org.slf4j.LoggerFactory
import scala.util.Try
import statemark.spark.process.{JvmState, RecentlyUsed}

/** Says so where a query keeps its state in another provider than its session names. A checkpoint pins the provider of
  * its first batch, and Spark goes on with that one; its own warning is one of many about settings, and names neither
  * query nor command.
  *
  * ''Thread:'' any of the driver.
  *
  * ''Source:'' Spark 4.2 `OffsetSeqMetadata.setSessionConf`.
  */
private[spark] object PinnedProvider {
  private lazy val log = LoggerFactory.getLogger("statemark.spark.conf.PinnedProvider")

  /** More than a driver runs at once. */
  private val MaxKnown = 256

  /** The classes that sessions named, by the checkpoint of the query that they started. */
  private val named = JvmState.value(new RecentlyUsed[String, Option[String]](MaxKnown))
  private val notes = JvmState.value(new RecentlyUsed[UUID, Option[String]](MaxKnown))

  // In a shell these stand for themselves.
  private val Plain = """[\w@%+=:,./-]+""".r

  /** Notes what a session names as it starts a query: it may name another one by the time that a batch is planned.
    *
    * @param settings those of the session, without Spark's defaults
    */
  def starts(checkpoint: String, settings: Map[String, String]): Unit = {
    def isAllowed = Try(StoreSettings.allowsRealTime(settings)).getOrElse(false)
    val chosen =
      settings.get(ProviderName.Key).orElse(Option.when(isAllowed)(ProviderName.Statemark))
    named().put(new Path(checkpoint).toString, chosen)
  }

  /** Looks at a run once, when its first batch with state is planned, and warns where there is something to say.
    *
    * @param stateRoot the folder of the operators' state, below the checkpoint location
    * @param used the provider's class that the query goes on with
    */
  def look(runId: UUID, stateRoot: String, used: String): Unit =
    if (notes().get(runId).isEmpty) {
      val checkpoint = new Path(stateRoot).getParent.toString
      // Plans that nobody runs have no start.
      named().get(checkpoint).foreach { chosen =>
        val said = chosen.flatMap(note(checkpoint, used, _))
        notes().put(runId, said)
        said.foreach(text => log.warn(s"Run $runId: $text"))
      }
    }

  /** Returns what was said of a run; None where nothing was. */
  def noteOf(runId: UUID): Option[String] = notes().get(runId).flatten

  /** Returns what there is to say; None where both are the same, or neither is Statemark. */
  private[spark] def note(checkpoint: String, used: String, chosen: String): Option[String] = {
    import ProviderClass._
    val target = (ProviderClass.of(used), ProviderClass.of(chosen)) match {
      case (a, b) if a == b => None
      case (RocksDb | Hdfs, Statemark) => Some(Some(Statemark))
      case (Statemark, RocksDb) => Some(Some(RocksDb))
      case (_, Statemark) | (Statemark, _) => Some(None)
      case _ => None
    }
    target.map { to =>
      val remedy = to.fold("To use that one, begin with a new checkpoint location.")(provider =>
        s"To move the state, stop the query and run: statemark switch ${quoted(checkpoint)} --to ${provider.shortName}"
      )
      s"The state is kept in $used, which the checkpoint $checkpoint pins, and not in $chosen, which the session " +
        s"named. $remedy"
    }
  }

  private def quoted(word: String): String =
    if (Plain.matches(word)) word else s"'${word.replace("'", "'\\''")}'"
}
