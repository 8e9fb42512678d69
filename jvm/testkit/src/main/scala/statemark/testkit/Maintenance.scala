package statemark.testkit

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.execution.streaming.state.{StateStore, StateStoreProvider}
import org.apache.spark.sql.functions.udf
import scala.collection.mutable

/** A SQL function that runs maintenance of a checkpoint's state stores on the executor that calls it, one after the
  * other, and returns how many there are. With an interval that never ends, a test so decides when snapshots are
  * uploaded and old versions deleted.
  *
  * ''Source:'' Spark 4.2 `StateStore.loadedProviders`, which Spark keeps to itself.
  */
object Maintenance {

  /** Registers the function in a session; `name` is how SQL calls it, with the checkpoint's location. */
  def register(session: SparkSession, name: String): Unit = {
    val _ = session.udf.register(
      name,
      udf((checkpoint: String) => runOnce(checkpoint)).asNondeterministic()
    )
  }

  private def runOnce(checkpoint: String): Int = {
    val field = StateStore.getClass.getDeclaredField("loadedProviders")
    field.setAccessible(true)
    val stores = field.get(StateStore).asInstanceOf[mutable.Map[Any, StateStoreProvider]]
    val providers = stores.synchronized(stores.values.toVector)
      .filter(_.stateStoreId.checkpointRootLocation == s"$checkpoint/state")
    providers.foreach(_.doMaintenance())
    providers.size
  }
}
