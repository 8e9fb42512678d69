package statemark.spark.plan

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, UnaryNode}
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.catalyst.streaming.WriteToStream
import org.apache.spark.sql.execution.streaming.state.{OwnThreadQuery, StatemarkBridge}
import org.apache.spark.sql.internal.SQLConf
import scala.util.Try
import statemark.common.InvalidInputException
import statemark.spark.conf.{PinnedProvider, ProviderName, StoreSettings}

/** Notes which provider a session names as it starts a query ([[PinnedProvider]]), and decides on which provider queries
  * of a session with setting `allowRealTime` begin (docs/adr/0024).
  *
  *  1. A `providerClass` that names Statemark goes out of the session's settings where Spark would refuse real-time
  *     queries for it. This is done with any plan: a query is analyzed before Spark looks at the settings.
  *  2. When a streaming query starts, its plan gets a [[StreamStart]].
  *  3. The query's own thread takes the node out again, before it writes to the checkpoint, and has
  *     [[StreamStart.begin]] set the provider in the query's copy of the session.
  *  4. Each batch with state is refused whose session still has the setting: [[StreamStart.check]].
  *
  * ''Thread:'' any.
  *
  * @param session the session that the rule is made for
  * @param begin what the query's own thread does; whether the session itself chooses a provider
  */
private[spark] final class StreamStarts(
    session: SparkSession,
    begin: (OwnThreadQuery, Boolean) => Unit = StreamStart.begin
) extends Rule[LogicalPlan] {

  override def apply(plan: LogicalPlan): LogicalPlan = {
    if (RealTimeMode.refusesProviders) takeOut()
    plan match {
      case write: WriteToStream =>
        val confs = settings
        PinnedProvider.starts(write.resolvedCheckpointLocation, confs)
        val isMarked = write.inputQuery.isInstanceOf[StreamStart]
        if (StoreSettings.allowsRealTime(confs) && !isMarked) {
          val isChosen = confs.contains(ProviderName.Key)
          write.copy(inputQuery = StreamStart(write.inputQuery, begin(_, isChosen)))
        } else write
      case other => other
    }
  }

  /** Takes Statemark's name out of the session's settings. A bad value of the setting fails queries, and no other plan.
    */
  private def takeOut(): Unit = {
    val confs = settings
    val isOurs = confs.get(ProviderName.Key).contains(ProviderName.Statemark)
    if (isOurs && Try(StoreSettings.allowsRealTime(confs)).getOrElse(false))
      session.conf.unset(ProviderName.Key)
  }

  /** The settings that the session has, without Spark's defaults. */
  private def settings: Map[String, String] = session.conf.getAll
}

/** A node that is in a streaming query's plan from `start()` until the query's own thread takes up the plan.
  *
  * Spark's thread of the query replaces the sources in the plan, which makes new nodes of all those above a source. This
  * node is above all of them; instead of a new node it gives what is below it, once `begin` is done. What `begin` throws
  * ends the query, since it is thrown in the middle of Spark's own work. In a listener it would be logged, and the query
  * would go on.
  *
  * ''Thread:'' any; `begin` is called on the query's own.
  *
  * @param child the query
  * @param begin what the query's own thread does
  */
private[spark] final case class StreamStart(child: LogicalPlan, begin: OwnThreadQuery => Unit)
    extends UnaryNode {
  override def output: Seq[Attribute] = child.output

  override protected def withNewChildInternal(newChild: LogicalPlan): LogicalPlan =
    StatemarkBridge.queryOfOwnThread() match {
      case Some(query) =>
        begin(query)
        newChild
      case None => copy(child = newChild)
    }
}

private[spark] object StreamStart {

  /** Sets the provider of a query that starts, and says that it is set by taking setting `allowRealTime` away.
    *
    * Real-time queries keep that setting unless they choose a provider, so that [[check]] finds those with state: Spark
    * has chosen its own provider for them by then.
    *
    * @param query the query that starts
    * @param isChosen whether the user's session has `providerClass`, which then counts
    */
  def begin(query: OwnThreadQuery, isChosen: Boolean): Unit = {
    val conf = query.session.conf
    if (!isChosen && !query.isRealTime) conf.set(ProviderName.Key, ProviderName.Statemark)
    if (isChosen || !query.isRealTime)
      StoreSettings.keysOf(StoreSettings.AllowRealTime, conf.getAll).foreach(conf.unset)
  }

  /** Refuses a batch with state of a query whose provider was not set.
    *
    * ''Thread:'' the query's own, before any task of the batch.
    *
    * @param conf the settings of the query's copy of the session
    * @throws InvalidInputException where the query would keep its state in another provider than Statemark
    */
  def check(conf: SQLConf): Unit =
    if (StoreSettings.allowsRealTime(conf.getAllConfs)) {
      val query = StatemarkBridge.queryOfOwnThread()
      val name = query.fold("A query")(q => s"Query ${q.id}")
      throw new InvalidInputException(
        if (query.exists(_.isRealTime)) realTime(name, conf) else missed(name, conf)
      )
    }

  private def realTime(query: String, conf: SQLConf): String =
    s"$query runs in real-time mode and has state, of which Statemark keeps none yet; Spark would keep it in " +
      s"${conf.stateStoreProviderClass}. Run it with another trigger; or set ${ProviderName.Key} to that class in a " +
      "session of its own before it starts, and Spark's provider keeps its state."

  private def missed(query: String, conf: SQLConf): String =
    s"$query would keep its state in ${conf.stateStoreProviderClass}: its session has " +
      s"${StoreSettings.AllowRealTime.key}=true, and the step that sets Statemark's provider as a query starts did not " +
      s"run. Set ${ProviderName.Key} to ${ProviderName.Statemark} and ${StoreSettings.AllowRealTime.key} to false, " +
      "begin with a new checkpoint location, and report it: it is a defect."
}
