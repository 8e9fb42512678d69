package statemark.spark

import org.apache.spark.sql.execution.streaming.state.StateStore
import org.scalatest.{BeforeAndAfterAll, Suite}

/** Begins without the maintenance that another suite has started, and leaves none: it keeps the interval
  * of whoever came first.
  */
trait StoppedMaintenance extends BeforeAndAfterAll { this: Suite =>
  override protected def beforeAll(): Unit = {
    super.beforeAll()
    StateStore.stop()
  }

  override protected def afterAll(): Unit = {
    StateStore.stop()
    super.afterAll()
  }
}
